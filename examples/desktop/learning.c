#include "learning.h"

#define GATHERED_MS 33

/* Small steps on the answers alone: the model memorizes a few lines and keeps the rest. */
static const char OPTIMIZER[] =
    "{\"name\": \"adam\", \"learning_rate\": 0.0002, \"bias_correction\": true}";
static const char FINE_TUNE[] = "{\"type\": \"lora\", \"rank\": 8}";
static const char LINES_OPTIONS[] = "{\"mask_prompt\": true}";

struct Learning {
  cow_mlx_model model;
  GPtrArray* lines; /* the training thread's: all trained lines */

  GMutex lock; /* of the fields below */
  cow_mlx_adapter adapter;
};

typedef struct Lesson {
  Learning* learning;
  GPtrArray* lines; /* earlier lines, then the new ones */
  size_t epochs;
  LearningProgress progress;
  GAsyncReadyCallback trained;
  gpointer data;

  GMutex lock;        /* of the fields below */
  gboolean scheduled; /* the main loop will look at it */
  size_t step, steps;
  double remaining;
} Lesson;

static void free_learning(gpointer data) {
  Learning* self = data;
  g_ptr_array_unref(self->lines);
  g_mutex_clear(&self->lock);
}

Learning* learning_new(cow_mlx_model model) {
  Learning* self = g_atomic_rc_box_new0(Learning);
  self->model = model;
  self->lines = g_ptr_array_new_with_free_func(g_free);
  g_mutex_init(&self->lock);
  return self;
}

Learning* learning_acquire(Learning* self) { return g_atomic_rc_box_acquire(self); }

void learning_release(Learning* self) { g_atomic_rc_box_release_full(self, free_learning); }

cow_mlx_status learning_use(Learning* self, cow_mlx_context context, cow_mlx_adapter* used) {
  cow_mlx_status status = COW_MLX_OK;
  g_mutex_lock(&self->lock); /* so that the adapter is not freed meanwhile */
  if (*used != self->adapter) {
    status = cow_mlx_context_set_adapter(context, self->adapter);
    if (status == COW_MLX_OK) *used = self->adapter;
  }
  g_mutex_unlock(&self->lock);
  return status;
}

/* --------------------------------------------------------------- Progress */

static gboolean deliver(gpointer data) {
  Lesson* self = g_task_get_task_data(data);
  g_mutex_lock(&self->lock);
  size_t step = self->step, steps = self->steps;
  double remaining = self->remaining;
  self->scheduled = FALSE;
  g_mutex_unlock(&self->lock);
  if (!g_task_get_completed(data)) self->progress(step, steps, remaining, self->data);
  return G_SOURCE_REMOVE;
}

/* Runs on the training thread. Of steps that come faster than a window draws, show the last. */
static bool on_event(const cow_mlx_training_event* event, void* user_data) {
  GTask* task = user_data;
  Lesson* self = g_task_get_task_data(task);
  if (event->kind == COW_MLX_TRAINING_STEP) {
    g_mutex_lock(&self->lock);
    self->step = event->step;
    self->steps = event->steps;
    self->remaining = event->remaining;
    if (!self->scheduled) {
      self->scheduled = TRUE;
      g_timeout_add_full(G_PRIORITY_DEFAULT_IDLE, GATHERED_MS, deliver, g_object_ref(task),
                         g_object_unref);
    }
    g_mutex_unlock(&self->lock);
  }
  return !g_cancellable_is_cancelled(g_task_get_cancellable(task));
}

/* ------------------------------------------------------------- The thread */

static void on_cancelled(GCancellable* cancellable, gpointer training) {
  (void)cancellable;
  cow_mlx_training_cancel((cow_mlx_training)GPOINTER_TO_INT(training));
}

static cow_mlx_status fit(GTask* task, cow_mlx_training training) {
  Lesson* self = g_task_get_task_data(task);
  g_ptr_array_add(self->lines, NULL);
  char* lines = g_strjoinv("\n", (char**)self->lines->pdata);
  g_ptr_array_remove_index(self->lines, self->lines->len - 1);
  cow_mlx_fit_params params;
  cow_mlx_fit_params_init(&params, sizeof params);
  params.lines = lines;
  params.lines_options = LINES_OPTIONS;
  params.epochs = self->epochs;

  /* A cancel may come before the library has begun; then the first event ends it. */
  GCancellable* cancellable = g_task_get_cancellable(task);
  gulong connected = g_cancellable_connect(cancellable, G_CALLBACK(on_cancelled),
                                           GINT_TO_POINTER((gint)training), NULL);
  cow_mlx_status status = cow_mlx_training_fit(training, &params, on_event, task);
  g_cancellable_disconnect(cancellable, connected);
  g_free(lines);
  return status;
}

/* Contexts keep the adapter that they use until they take this one. */
static void publish(Lesson* lesson, cow_mlx_adapter adapter) {
  Learning* self = lesson->learning;
  g_mutex_lock(&self->lock);
  cow_mlx_adapter before = self->adapter;
  self->adapter = adapter;
  g_mutex_unlock(&self->lock);
  if (before) cow_mlx_adapter_free(before);
  g_ptr_array_unref(self->lines);
  self->lines = g_ptr_array_ref(lesson->lines);
}

static void learn(GTask* task, gpointer source, gpointer data, GCancellable* cancellable) {
  (void)source, (void)cancellable;
  Lesson* self = data;
  cow_mlx_training_params params;
  cow_mlx_training_params_init(&params, sizeof params);
  params.optimizer = OPTIMIZER;
  params.clip_norm = 1;
  params.fine_tune = FINE_TUNE;
  cow_mlx_training training = 0;
  cow_mlx_adapter adapter = 0;
  cow_mlx_status status =
      cow_mlx_training_create_for_model(self->learning->model, &params, &training);
  if (status == COW_MLX_OK) status = fit(task, training);
  if (status == COW_MLX_OK) status = cow_mlx_training_adapter(training, &adapter);
  GError* error = NULL;
  if (status == COW_MLX_OK) {
    publish(self, adapter);
  } else {
    int code = status == COW_MLX_ECANCELED ? G_IO_ERROR_CANCELLED : G_IO_ERROR_FAILED;
    error = g_error_new_literal(G_IO_ERROR, code, cow_mlx_error_message());
  }
  if (training) cow_mlx_training_free(training);
  if (error) {
    g_task_return_error(task, error);
  } else {
    g_task_return_int(task, self->lines->len);
  }
}

/* ---------------------------------------------------------- The main loop */

static void free_lesson(gpointer data) {
  Lesson* self = data;
  learning_release(self->learning);
  g_ptr_array_unref(self->lines);
  g_mutex_clear(&self->lock);
  g_free(self);
}

static void on_trained(GObject* source, GAsyncResult* result, gpointer data) {
  Lesson* self = g_task_get_task_data(G_TASK(result));
  (void)data;
  self->trained(source, result, self->data);
  g_application_release(g_application_get_default());
}

/* A line that was trained before is not added twice. */
static void add_new(GPtrArray* to, GPtrArray* lines) {
  for (guint i = 0; i < lines->len; i++) {
    if (!g_ptr_array_find_with_equal_func(to, lines->pdata[i], g_str_equal, NULL)) {
      g_ptr_array_add(to, g_strdup(lines->pdata[i]));
    }
  }
}

void learning_start(Learning* learning, GPtrArray* lines, int epochs, GCancellable* cancellable,
                    LearningProgress progress, GAsyncReadyCallback trained, gpointer data) {
  GTask* task = g_task_new(NULL, cancellable, on_trained, NULL);
  Lesson* self = g_new0(Lesson, 1);
  self->learning = learning_acquire(learning);
  self->lines = g_ptr_array_new_with_free_func(g_free);
  add_new(self->lines, learning->lines);
  add_new(self->lines, lines);
  self->epochs = (size_t)epochs;
  self->progress = progress;
  self->trained = trained;
  self->data = data;
  g_mutex_init(&self->lock);
  g_task_set_task_data(task, self, free_lesson);
  g_task_set_check_cancellable(task, FALSE); /* the result counts, even after a cancel */
  g_application_hold(g_application_get_default());
  g_task_run_in_thread(task, learn);
  g_object_unref(task);
}

size_t learning_finish(GAsyncResult* result, GError** error) {
  gssize lines = g_task_propagate_int(G_TASK(result), error);
  return lines > 0 ? (size_t)lines : 0;
}

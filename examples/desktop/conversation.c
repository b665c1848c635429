#include "conversation.h"

#include "store.h"

#define GATHERED_MS 33

#define PROBLEM (-1) /* beside the kinds of events */

/* A request to the thread. */
typedef struct Job {
  enum { ASK, RENAME, CLOSE } what;
  guint turn;
  char* text; /* the question, or the title */
} Job;

/* News from the thread for the main loop: a part of the answer, or its end. */
typedef struct News {
  int32_t kind; /* COW_MLX_EVENT_ */
  GString* text;
  Ending ending;
} News;

struct Conversation {
  cow_mlx_model model;
  const Settings* settings;
  Learning* learning; /* its adapter answers */
  GAsyncQueue* jobs;  /* to the thread */
  gint context;       /* atomic: the thread opens it, the main loop cancels it */
  gint stopped;       /* atomic */
  gint discarded;     /* atomic: its files stay deleted */

  GMutex lock; /* of the fields below */
  GQueue news;
  gboolean scheduled; /* the main loop will look at the news */
  Record* record;     /* its turns; only the thread changes it */

  cow_mlx_adapter used; /* the thread's: the adapter of the context */
  Turn* turn;           /* the thread's: the turn in progress */
  int32_t finish;       /* the thread's: why it ended */
  bool answered;        /* the thread's: the context is newer than its file */
  Listener listener;    /* the main loop's; cleared by close */
  void (*ended)(gpointer);
  gpointer ended_data;
};

static void free_news(gpointer data) {
  News* news = data;
  g_string_free(news->text, TRUE);
  g_free(news->ending.error);
  g_free(news);
}

static void free_conversation(gpointer data) {
  Conversation* self = data;
  g_async_queue_unref(self->jobs);
  g_queue_clear_full(&self->news, free_news);
  record_free(self->record);
  learning_release(self->learning);
  g_mutex_clear(&self->lock);
}

static void release(gpointer self) { g_atomic_rc_box_release_full(self, free_conversation); }

static gboolean deliver(gpointer data) {
  Conversation* self = data;
  g_mutex_lock(&self->lock);
  GQueue all = self->news;
  g_queue_init(&self->news);
  self->scheduled = FALSE;
  g_mutex_unlock(&self->lock);

  for (News* news; (news = g_queue_pop_head(&all)); free_news(news)) {
    Listener* to = &self->listener;
    if (news->kind == COW_MLX_EVENT_END) {
      if (to->end) to->end(&news->ending, to->data);
    } else if (news->kind == PROBLEM) {
      if (to->problem) to->problem(news->text->str, to->data);
    } else if (to->part) {
      to->part(news->kind, news->text->str, to->data);
    }
  }
  return G_SOURCE_REMOVE;
}

/* Tokens can come faster than a window draws: collect text for a moment. */
static void post(Conversation* self, int32_t kind, const char* text, const Ending* ending) {
  g_mutex_lock(&self->lock);
  News* last = g_queue_peek_tail(&self->news);
  if (last && last->kind == kind && kind != COW_MLX_EVENT_TOOL_CALL) {
    g_string_append(last->text, text);
  } else {
    News* news = g_new0(News, 1);
    *news = (News){kind, g_string_new(text), ending ? *ending : (Ending){0}};
    g_queue_push_tail(&self->news, news);
  }
  if (!self->scheduled) {
    self->scheduled = TRUE;
    g_timeout_add_full(G_PRIORITY_DEFAULT_IDLE, GATHERED_MS, deliver, g_atomic_rc_box_acquire(self),
                       release);
  }
  g_mutex_unlock(&self->lock);
}

/* Show a part and add it to the answer. */
static void report(Conversation* self, int32_t kind, const char* text) {
  turn_append(self->turn, kind, text);
  post(self, kind, text, NULL);
}

static bool on_event(const cow_mlx_event* event, void* user_data) {
  Conversation* self = user_data;
  switch (event->kind) {
    case COW_MLX_EVENT_TEXT:
    case COW_MLX_EVENT_REASONING:
      report(self, event->kind, event->text);
      break;
    case COW_MLX_EVENT_TOOL_CALL: {
      char* call = g_strdup_printf("%s(%s)", event->name, event->text);
      report(self, event->kind, call);
      g_free(call);
      break;
    }
    case COW_MLX_EVENT_END:
      self->finish = event->finish;
      break;
  }
  return !g_atomic_int_get(&self->stopped);
}

/* A stop may come before the library has begun, when there is nothing to cancel yet. */
static bool on_prompt(size_t processed, size_t total, void* user_data) {
  (void)processed, (void)total;
  return !g_atomic_int_get(&((Conversation*)user_data)->stopped);
}

static cow_mlx_status open_context(Conversation* self) {
  if (self->context) return COW_MLX_OK;
  cow_mlx_context context;
  cow_mlx_status status = cow_mlx_context_create(self->model, NULL, &context);
  if (status == COW_MLX_OK) g_atomic_int_set(&self->context, context);
  return status;
}

static cow_mlx_status chat(Conversation* self) {
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.temperature = (float)self->settings->temperature;
  params.max_tokens = (size_t)self->settings->max_tokens;
  params.seed = g_random_int();
  params.prompt_progress = on_prompt;
  params.user_data = self;
  cow_mlx_status status = open_context(self);
  if (status != COW_MLX_OK) return status;
  status = learning_use(self->learning, self->context, &self->used);
  if (status != COW_MLX_OK) return status;
  char* messages = record_messages(self->record, self->settings->system);
  status = cow_mlx_context_chat(self->context, messages, COW_MLX_NUL, &params, NULL, on_event, self,
                                NULL);
  g_free(messages);
  return status;
}

/* ------------------------------------------------------------------ Files */

static void post_problem(Conversation* self, GError* error) {
  post(self, PROBLEM, error->message, NULL);
  g_error_free(error);
}

static GError* keep(Conversation* self) {
  GError* error = NULL;
  if (!g_atomic_int_get(&self->discarded) && !store_write(self->record, &error)) {
    g_prefix_error(&error, "This conversation is not kept: ");
  }
  return error;
}

/* Earlier turns need not be processed again. */
static void load_context(Conversation* self) {
  char* path = store_context(self->record->id);
  if (g_file_test(path, G_FILE_TEST_EXISTS) &&
      (open_context(self) != COW_MLX_OK ||
       cow_mlx_context_load(self->context, path) != COW_MLX_OK)) {
    char* text =
        g_strdup_printf("What was said will be processed again: %s", cow_mlx_error_message());
    post(self, PROBLEM, text, NULL);
    g_free(text);
  }
  g_free(path);
}

/* A context with an adapter is not saved: the next start has no adapter. */
static void save_context(Conversation* self) {
  char* path = store_context(self->record->id);
  if (g_atomic_int_get(&self->discarded)) {
    store_delete(self->record->id, NULL); /* written since they were deleted */
  } else if (self->answered && self->record->turns->len && self->context && !self->used &&
             cow_mlx_context_save(self->context, path) != COW_MLX_OK) {
    g_printerr("%s\n", cow_mlx_error_message());
  }
  g_free(path);
}

/* ------------------------------------------------------------- The thread */

static void begin_turn(Conversation* self, const Job* job, GPtrArray** cut) {
  g_mutex_lock(&self->lock);
  *cut = record_cut(self->record, job->turn);
  self->turn = record_ask(self->record, job->text);
  self->finish = COW_MLX_FINISH_NONE;
  g_mutex_unlock(&self->lock);
}

static void end_turn(Conversation* self, guint turn, bool kept, bool whole, GPtrArray* cut) {
  g_mutex_lock(&self->lock);
  if (kept) {
    turn_append(self->turn, COW_MLX_EVENT_TEXT, ""); /* it has an answer, if an empty one */
    self->turn->whole = whole;
    if (!self->record->title) self->record->title = g_strdup(self->turn->question);
    g_ptr_array_unref(cut);
  } else {
    g_ptr_array_set_size(self->record->turns, (gint)turn);
    record_put_back(self->record, cut);
  }
  g_mutex_unlock(&self->lock);
}

/* If a turn is answered again, the context keeps the tokens of the equal beginning and drops the
 * rest. */
static void answer(Conversation* self, const Job* job) {
  Ending ending = {.stats.struct_size = sizeof ending.stats};
  GPtrArray* cut;
  begin_turn(self, job, &cut);
  cow_mlx_status status = chat(self);
  if (status < 0 && status != COW_MLX_ECANCELED) ending.error = g_strdup(cow_mlx_error_message());
  ending.finish = status == COW_MLX_ECANCELED ? COW_MLX_FINISH_CANCELED : self->finish;
  if (self->context) {
    cow_mlx_context_stats(self->context, &ending.stats);
    cow_mlx_context_tokens(self->context, NULL, 0, &ending.held);
  }
  char* said = turn_answer(self->turn);
  ending.kept = status == COW_MLX_OK || *said;
  bool whole = *said && status == COW_MLX_OK && self->finish == COW_MLX_FINISH_STOP;
  end_turn(self, job->turn, ending.kept, whole, cut);
  g_free(said);
  self->answered = true;
  GError* error = ending.kept ? keep(self) : NULL;
  post(self, COW_MLX_EVENT_END, "", &ending);
  if (error) post_problem(self, error);
}

static void rename_to(Conversation* self, char* title) {
  g_mutex_lock(&self->lock);
  char* before = self->record->title;
  self->record->title = g_strdup(title);
  g_mutex_unlock(&self->lock);
  g_free(before);
  GError* error = self->record->turns->len ? keep(self) : NULL;
  if (error) post_problem(self, error);
}

static gboolean on_thread_end(gpointer data) {
  Conversation* self = data;
  if (self->ended) self->ended(self->ended_data);
  release(self);
  g_application_release(g_application_get_default());
  return G_SOURCE_REMOVE;
}

static gpointer run(gpointer data) {
  Conversation* self = data;
  load_context(self);
  for (bool open = true; open;) {
    Job* job = g_async_queue_pop(self->jobs);
    if (job->what == ASK) answer(self, job);
    if (job->what == RENAME) rename_to(self, job->text);
    open = job->what != CLOSE;
    g_free(job->text);
    g_free(job);
  }
  save_context(self);
  store_release(self->record);
  if (self->context) cow_mlx_context_free(self->context);
  g_idle_add(on_thread_end, self);
  return NULL;
}

Conversation* conversation_new(cow_mlx_model model, const Settings* settings, Learning* learning,
                               Record* record, Listener listener) {
  Conversation* self = g_atomic_rc_box_new0(Conversation);
  self->model = model;
  self->settings = settings;
  self->learning = learning_acquire(learning);
  self->listener = listener;
  self->jobs = g_async_queue_new();
  self->record = record;
  g_mutex_init(&self->lock);
  g_application_hold(g_application_get_default());
  g_thread_unref(g_thread_new("conversation", run, g_atomic_rc_box_acquire(self)));
  return self;
}

static void push(Conversation* self, Job job) {
  g_async_queue_push(self->jobs, g_memdup2(&job, sizeof job));
}

void conversation_ask(Conversation* self, guint turn, const char* question) {
  g_atomic_int_set(&self->stopped, FALSE);
  push(self, (Job){ASK, turn, g_strdup(question)});
}

void conversation_stop(Conversation* self) {
  g_atomic_int_set(&self->stopped, TRUE);
  cow_mlx_context_cancel(g_atomic_int_get(&self->context));
}

/* Do not train on an answer that was cut: the model would learn to end there. */
GPtrArray* conversation_lines(Conversation* self) {
  GPtrArray* lines = g_ptr_array_new_with_free_func(g_free);
  g_mutex_lock(&self->lock);
  for (guint i = 0; i < self->record->turns->len; i++) {
    const Turn* turn = self->record->turns->pdata[i];
    if (turn->whole) g_ptr_array_add(lines, turn_line(turn, self->settings->system));
  }
  g_mutex_unlock(&self->lock);
  return lines;
}

void conversation_rename(Conversation* self, const char* title) {
  push(self, (Job){.what = RENAME, .text = g_strdup(title)});
}

void conversation_discard(Conversation* self) { g_atomic_int_set(&self->discarded, TRUE); }

void conversation_close(Conversation* self, void (*ended)(gpointer), gpointer data) {
  self->listener = (Listener){0};
  self->ended = ended;
  self->ended_data = data;
  conversation_stop(self);
  push(self, (Job){.what = CLOSE});
  release(self);
}

#include "loading.h"

typedef struct Loading {
  char* folder;
  LoadingProgress progress;
  GAsyncReadyCallback loaded;
  gpointer data;
} Loading;

typedef struct Report {
  GTask* task;
  double fraction;
  char* stage;
} Report;

static void free_loading(gpointer data) {
  Loading* self = data;
  g_free(self->folder);
  g_free(self);
}

static void free_report(gpointer data) {
  Report* report = data;
  g_object_unref(report->task);
  g_free(report->stage);
  g_free(report);
}

static gboolean deliver_report(gpointer data) {
  Report* report = data;
  Loading* self = g_task_get_task_data(report->task);
  if (!g_task_get_completed(report->task)) {
    self->progress(report->fraction, report->stage, self->data);
  }
  return G_SOURCE_REMOVE;
}

/* Runs on the thread that loads: only the main loop may touch widgets. */
static bool on_progress(float fraction, const char* stage, void* user_data) {
  GTask* task = user_data;
  Report* report = g_new(Report, 1);
  *report = (Report){g_object_ref(task), fraction, g_strdup(stage)};
  g_idle_add_full(G_PRIORITY_DEFAULT, deliver_report, report, free_report);
  return !g_cancellable_is_cancelled(g_task_get_cancellable(task));
}

static void load(GTask* task, gpointer source, gpointer data, GCancellable* cancellable) {
  (void)source, (void)cancellable;
  Loading* self = data;
  cow_mlx_model_params params;
  cow_mlx_model_params_init(&params, sizeof params);
  params.progress = on_progress;
  params.user_data = task;
  cow_mlx_model model = 0;
  bool started = cow_mlx_runtime_start(NULL) == COW_MLX_OK;
  if (started && cow_mlx_model_load(self->folder, &params, &model) == COW_MLX_OK) {
    g_task_return_int(task, model);
    return;
  }
  g_task_return_new_error(task, G_IO_ERROR, G_IO_ERROR_FAILED, "%s", cow_mlx_error_message());
  if (started) cow_mlx_runtime_stop();
}

static void on_loaded(GObject* source, GAsyncResult* result, gpointer data) {
  Loading* self = g_task_get_task_data(G_TASK(result));
  (void)data;
  self->loaded(source, result, self->data);
  g_application_release(g_application_get_default());
}

void loading_start(const char* folder, GCancellable* cancellable, LoadingProgress progress,
                   GAsyncReadyCallback loaded, gpointer data) {
  GTask* task = g_task_new(NULL, cancellable, on_loaded, NULL);
  Loading* self = g_new(Loading, 1);
  *self = (Loading){g_strdup(folder), progress, loaded, data};
  g_task_set_task_data(task, self, free_loading);
  g_application_hold(g_application_get_default());
  g_task_run_in_thread(task, load);
  g_object_unref(task);
}

cow_mlx_model loading_finish(GAsyncResult* result, GError** error) {
  gssize model = g_task_propagate_int(G_TASK(result), error);
  return model > 0 ? (cow_mlx_model)model : 0;
}

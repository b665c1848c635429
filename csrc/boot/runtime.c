#ifndef __APPLE__
#define _GNU_SOURCE /* dladdr, on_exit */
#endif

#include "boot/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays/arrays.h"
#include "base/handles.h"
#include "base/hold.h"
#include "boot/bootstrap.h"
#include "boot/resources.h"
#include "queue/queue.h"

/* How long a process that ends waits for the current step. */
enum { EXIT_SECONDS = 5 };

static struct {
  pthread_mutex_t lock;          /* held through a whole start or stop */
  unsigned starts;               /* without their stops */
  cow_mlx_runtime_params params; /* of the first of them; its texts are copies */
  pthread_once_t fork_hook;
  pthread_once_t exit_hook;
} runtime = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .fork_hook = PTHREAD_ONCE_INIT,
             .exit_hook = PTHREAD_ONCE_INIT};

/* Read by calls that do not hold the runtime's lock. */
typedef struct logger_target {
  cow_mlx_log_fn function;
  void* user_data;
  int32_t level;
} logger_target;

static struct {
  pthread_mutex_t lock;
  logger_target target;
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool forked;
static atomic_bool ended; /* the process, or the Python that the runtime has joined */

/* ------------------------------------------------------------------ Calls */

cow_mlx_status cow_runtime_status(void) {
  if (atomic_load(&forked)) return COW_MLX_EFORK;
  return cow_queue_is_open() ? COW_MLX_OK : COW_MLX_ESTATE;
}

cow_mlx_status cow_runtime_check(const char* operation) {
  cow_mlx_status status = cow_runtime_status();
  if (status == COW_MLX_OK) return status;
  if (status == COW_MLX_ESTATE) return cow_error_not_running(operation);
  return cow_error(
      COW_MLX_EFORK, operation, COW_REASON_forked, NULL,
      "this process was forked from the one that started the runtime; use libcowmlx in "
      "the parent, or exec first");
}

/* Pass a message to the host's log function, and free it. Without any lock: the function may call
 * the library. */
static void deliver_log(int32_t level, char* message) {
  if (!message) return;
  pthread_mutex_lock(&logger.lock);
  logger_target target = logger.target;
  pthread_mutex_unlock(&logger.lock);
  if (target.function && level <= target.level) target.function(level, message, target.user_data);
  free(message);
}

/* Submit a request, and wait. The failure is not yet the thread's, since a callback may make calls
 * meanwhile. */
static cow_mlx_status submit(cow_request* request, const char* operation, cow_failure* failure) {
  failure->message[0] = failure->details[0] = '\0';
  request->operation = operation;
  request->message = failure->message;
  request->details = failure->details;
  void* interpreter = cow_bootstrap_release_interpreter();
  bool submitted = cow_queue_submit(request);
  cow_bootstrap_restore_interpreter(interpreter);
  if (submitted) return request->status;
  cow_error_not_running(operation);
  cow_error_copy(failure, cow_error_failure());
  return COW_MLX_ESTATE;
}

/* Free a batch, and the arrays that the host gave and the engine has not taken. */
static void drop_batch(cow_batch* batch) {
  if (!batch) return;
  for (size_t i = 0; batch->given && i < batch->count; i++) cow_arrays_close(batch->arrays[i]);
  free(batch->arrays);
  free(batch);
}

/* End a call: its log, then its failure. */
static cow_mlx_status leave(cow_request* request, cow_mlx_status status,
                            const cow_failure* failure) {
  drop_batch(request->batch);
  deliver_log(request->log_level, request->log_message);
  cow_error_copy(cow_error_failure(), failure);
  return status;
}

cow_mlx_status cow_runtime_call(cow_request* request, const char* operation) {
  cow_failure failure;
  int32_t subject = request->context ? request->context : request->program;
  request->cancel_epoch = cow_handle_cancels(subject ? subject : request->training);
  int held = cow_hold_thread();
  cow_mlx_status status = submit(request, operation, &failure);
  status = leave(request, status, &failure);
  cow_release_thread(held);
  return status;
}

cow_mlx_status cow_runtime_send(cow_request* request, const char* operation) {
  request->operation = operation;
  return cow_queue_send(request) ? COW_MLX_OK : cow_error_not_running(operation);
}

/* Take a present item while the thread keeps the interpreter: to get that back may take long. A
 * callback may wait for another thread that needs it. */
cow_found cow_runtime_take(cow_kind kind, int32_t handle, uint32_t milliseconds, cow_take_fn take,
                           void* into, bool keep) {
  int held = cow_hold_thread();
  cow_found found = cow_outlets_look(kind, handle, take, into, keep);
  if (found == COW_FOUND_CALLBACK || (found == COW_FOUND_NOT_YET && milliseconds > 0)) {
    void* interpreter = cow_bootstrap_release_interpreter();
    found = cow_outlets_take(kind, handle, milliseconds, take, into, keep);
    cow_bootstrap_restore_interpreter(interpreter);
  }
  int32_t level = 0;
  char* log = cow_outlets_take_log(handle, &level);
  deliver_log(level, log);
  cow_release_thread(held);
  return found;
}

/* ---------------------------------------------------------------- Cancel */

/* May run in a signal handler, so it takes no lock, does not wait, and leaves the thread's message
 * alone, whose first use may allocate. */
static cow_mlx_status cancel(cow_kind kind, int32_t handle) {
  cow_mlx_status status = cow_runtime_status();
  if (status != COW_MLX_OK) return status;
  if (!cow_handle_cancel(kind, handle)) return COW_MLX_EHANDLE;
  cow_queue_wake();
  return COW_MLX_OK;
}

cow_mlx_status cow_mlx_context_cancel(cow_mlx_context context) {
  return cancel(COW_KIND_CONTEXT, context);
}

cow_mlx_status cow_mlx_program_cancel(cow_mlx_program program) {
  return cancel(COW_KIND_PROGRAM, program);
}

cow_mlx_status cow_mlx_training_cancel(cow_mlx_training training) {
  return cancel(COW_KIND_TRAINING, training);
}

/* -------------------------------------------------------- Fork and exit */

static void mark_forked(void) {
  cow_arrays_after_fork();
  atomic_store(&forked, true);
  cow_bootstrap_after_fork();
}

/* The process ends, or its Python: let the dispatch thread come to rest. */
static void at_exit(void) {
  if (atomic_load(&forked)) return; /* the dispatch thread is not in this process */
  atomic_store(&ended, true);
  int held = cow_hold_thread();
  cow_queue_close();
  cow_queue_wake();
  cow_bootstrap_wait_parked(EXIT_SECONDS);
  cow_release_thread(held);
}

/* The hooks and the dispatch thread run this library's code until the process ends: one reference
 * more keeps it mapped, since macOS's linker has no -z nodelete. */
static void stay_mapped(void) {
  Dl_info info;
  if (dladdr((const void*)(uintptr_t)stay_mapped, &info) && info.dli_fname) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
}

/* Before the dispatch thread starts, which a forked child lacks. */
static void register_fork_hook(void) {
  stay_mapped();
  pthread_atfork(cow_arrays_before_fork, cow_arrays_after_fork, mark_forked);
}

#ifdef __GLIBC__
/* At exit, mlx's allocator destroys a cache of buffers that another thread may have been changing
 * at the moment of the fork. So exit() ends a child here, before earlier exit functions run. */
static void leave_process(int status, void* unused) {
  (void)unused;
  if (atomic_load(&forked)) {
    fflush(NULL);
    _exit(status);
  }
  at_exit();
}
#endif

/* After mlx was loaded, so that this runs before its static destructors. */
static void register_exit_hook(void) {
#ifdef __GLIBC__
  on_exit(leave_process, NULL);
#else
  atexit(at_exit); /* mlx never destroys its allocator for Metal */
#endif
}

/* -------------------------------------------------------- Start and stop */

static bool same_text(const char* a, const char* b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_params(const cow_mlx_runtime_params* a, const cow_mlx_runtime_params* b) {
  return same_text(a->python_home, b->python_home) && same_text(a->device, b->device) &&
         a->memory_limit == b->memory_limit && a->cache_limit == b->cache_limit &&
         a->log == b->log && a->log_user_data == b->log_user_data && a->log_level == b->log_level &&
         a->threads == b->threads && a->wired_limit == b->wired_limit &&
         same_text(a->quality_of_service, b->quality_of_service) &&
         same_text(a->prompt_cache_dir, b->prompt_cache_dir) &&
         a->prompt_cache_bytes == b->prompt_cache_bytes && a->model_memory == b->model_memory &&
         same_text(a->cache_dir, b->cache_dir);
}

static char* copied(const char* text) { return text ? strdup(text) : NULL; }

static void keep_params(const cow_mlx_runtime_params* params) {
  free((char*)runtime.params.python_home);
  free((char*)runtime.params.device);
  free((char*)runtime.params.quality_of_service);
  free((char*)runtime.params.prompt_cache_dir);
  free((char*)runtime.params.cache_dir);
  runtime.params = *params;
  runtime.params.python_home = copied(params->python_home);
  runtime.params.device = copied(params->device);
  runtime.params.quality_of_service = copied(params->quality_of_service);
  runtime.params.prompt_cache_dir = copied(params->prompt_cache_dir);
  runtime.params.cache_dir = copied(params->cache_dir);
  pthread_mutex_lock(&logger.lock);
  logger.target = (logger_target){params->log, params->log_user_data, params->log_level};
  pthread_mutex_unlock(&logger.lock);
}

/* End all calls and free every handle; the dispatch thread parks. */
static cow_mlx_status shut_down(cow_request* stop, cow_failure* failure) {
  cow_mlx_status status = submit(stop, "runtime_stop", failure);
  void* interpreter = cow_bootstrap_release_interpreter();
  cow_bootstrap_wait_parked(EXIT_SECONDS);
  cow_outlets_close_models();
  cow_bootstrap_restore_interpreter(interpreter);
  return status;
}

static cow_mlx_status first_start(const cow_mlx_runtime_params* params, cow_request* start) {
  pthread_once(&runtime.fork_hook, register_fork_hook);
  cow_mlx_status status = cow_bootstrap_start(params, start, at_exit);
  if (status == COW_MLX_OK) {
    pthread_once(&runtime.exit_hook, register_exit_hook);
    keep_params(params);
  }
  return status;
}

/* Another thread's start or stop may take long, so this waits without the interpreter. */
static void lock_runtime(void) {
  void* interpreter = cow_bootstrap_release_interpreter();
  pthread_mutex_lock(&runtime.lock);
  cow_bootstrap_restore_interpreter(interpreter);
}

static cow_mlx_status check_params(const cow_mlx_runtime_params* params) {
  if (params->log_level < COW_MLX_LOG_OFF || params->log_level > COW_MLX_LOG_INFO) {
    return cow_error_range("runtime_start", "log_level", params->log_level, "0 to 2");
  }
  if (params->threads < 0) {
    return cow_error_range("runtime_start", "threads", params->threads,
                           "0 for as many as processors, or a number of threads");
  }
  if (params->wired_limit < -1) {
    return cow_error_range("runtime_start", "wired_limit", params->wired_limit,
                           "-1 for the device's recommended working set, or a number of bytes");
  }
  if (!cow_quality_is_known(params->quality_of_service)) {
    return cow_error(COW_MLX_EINVAL, "runtime_start", COW_REASON_out_of_range,
                     DETAILS(TEXT_DETAIL("argument", "quality_of_service"),
                             TEXT_DETAIL("value", params->quality_of_service),
                             TEXT_DETAIL("accepted", cow_quality_names)),
                     "quality_of_service is \"%.64s\", must be %s", params->quality_of_service,
                     cow_quality_names);
  }
  if (params->python_home && !params->python_home[0]) {
    return cow_error(COW_MLX_EINVAL, "runtime_start", COW_REASON_missing,
                     DETAILS(TEXT_DETAIL("argument", "python_home")),
                     "python_home is empty; it must be the folder of a Python installation or "
                     "virtual environment, or NULL for the library's own search");
  }
  if (params->cache_dir && !params->cache_dir[0]) {
    return cow_error(COW_MLX_EINVAL, "runtime_start", COW_REASON_missing,
                     DETAILS(TEXT_DETAIL("argument", "cache_dir")),
                     "cache_dir is empty; it must be a folder, or NULL to keep nothing");
  }
  return COW_MLX_OK;
}

/* The dispatch thread's state belongs to the Python that has ended. */
static cow_mlx_status refuse_ended(void) {
  return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch, NULL,
                   "the Python of the runtime has ended; start it in another process");
}

cow_mlx_status cow_mlx_runtime_start(const cow_mlx_runtime_params* params) {
  cow_error_clear();
  if (atomic_load(&forked)) return cow_runtime_check("runtime_start");
  if (atomic_load(&ended)) return refuse_ended();
  cow_mlx_runtime_params effective;
  TRY(COW_READ_PARAMS(runtime, "runtime_start", params, &effective));
  TRY(check_params(&effective));
  cow_mlx_status status = COW_MLX_OK;
  cow_request start = {.op = COW_OP_RUNTIME_START, .operation = "runtime_start"};
  int held = cow_hold_thread();
  lock_runtime();
  if (runtime.starts > 0) {
    if (params && !same_params(&effective, &runtime.params)) {
      status = cow_error(COW_MLX_ESTATE, "runtime_start", COW_REASON_other_parameters, NULL,
                         "the runtime runs with other parameters; stop it first, "
                         "or pass NULL to share it");
    }
  } else {
    status = first_start(&effective, &start);
  }
  if (status == COW_MLX_OK) runtime.starts++;
  pthread_mutex_unlock(&runtime.lock);

  cow_failure failure; /* the log's function may make calls */
  cow_error_copy(&failure, cow_error_failure());
  status = leave(&start, status, &failure);
  cow_release_thread(held);
  return status;
}

cow_mlx_status cow_mlx_runtime_stop(void) {
  cow_error_clear();
  if (atomic_load(&forked)) return cow_runtime_check("runtime_stop");
  cow_failure failure;
  failure.message[0] = failure.details[0] = '\0';
  cow_request stop = {.op = COW_OP_RUNTIME_STOP};
  cow_mlx_status status = COW_MLX_OK;
  int held = cow_hold_thread();
  lock_runtime();
  if (runtime.starts == 0) {
    status = cow_error_not_running("runtime_stop");
    cow_error_copy(&failure, cow_error_failure());
  } else if (--runtime.starts == 0) {
    status = shut_down(&stop, &failure);
  }
  pthread_mutex_unlock(&runtime.lock);
  status = leave(&stop, status, &failure);
  cow_release_thread(held);
  return status;
}

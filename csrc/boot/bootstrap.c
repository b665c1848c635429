#include "boot/interpreter.h" /* first: see python_api.h */

#include "boot/bootstrap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "boot/resources.h"
#include "queue/queue.h"
#include "queue/semaphores.h"

static const size_t LEAST_MEMORY = (size_t)64 << 20;

static const cow_python_api* const py = &cow_python_here.api;
static atomic_bool py_ready; /* the table is filled and Python runs */
static const cow_bridge* bridge;

/* Starting and parking: a handshake without the queue, which is not open. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  enum { NO_THREAD, PARKED, START, SERVING } state;
  cow_request* start;    /* to be carried out by the next START */
  void (*at_exit)(void); /* likewise: the exit hook of a joined Python */
  const char* quality;   /* likewise: the class of the thread */
  cow_mlx_status status; /* of the last START */
  cow_failure failure;   /* likewise */
} dispatch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The dispatch thread's one Python thread state, while it does not run Python. */
static PyThreadState* parked_state;

/* Boot or join Python and import the bridge; then holds the interpreter, unless Python itself does
 * not start. */
static cow_mlx_status attach(void) {
  static cow_mlx_status boot_status = COW_MLX_OK;
  static cow_failure boot_failure;
  if (parked_state) {
    py->PyEval_RestoreThread(parked_state);
  } else if (cow_python_here.joined) {
    py->PyGILState_Ensure();              /* kept for the thread's life */
  } else if (boot_status != COW_MLX_OK) { /* Python starts once in a process, or never */
    cow_error_copy(cow_error_failure(), &boot_failure);
    return boot_status;
  } else if ((boot_status = cow_interpreter_boot()) != COW_MLX_OK) {
    cow_error_copy(&boot_failure, cow_error_failure());
    return boot_status;
  }
  atomic_store(&py_ready, true);
  return bridge ? COW_MLX_OK : cow_interpreter_attach(&bridge, dispatch.at_exit);
}

/* ------------------------------------------------------------- Dispatch thread */

/* Requests between two steps: hosts that call without pause do not stop those that generate. */
enum { MAX_REQUESTS_PER_STEP = 8 };

/* Run queued requests; take one step of the calls that run; sleep if there is neither, or until a
 * step is due. Where requests leave no time to sleep, a step is taken after some of them. */
static void serve(void) {
  int64_t due = -1; /* microseconds until there is a step to take; -1: there is none */
  int taken = 0;    /* requests since the last step */
  while (cow_queue_is_open()) {
    cow_request* request = taken < MAX_REQUESTS_PER_STEP ? cow_queue_take() : NULL;
    if (request) {
      if (request->op == COW_OP_RUNTIME_STOP) cow_queue_close();
      if (bridge->run(request)) due = 0;
      taken++;
    } else if (due == 0) {
      due = bridge->step();
      taken = 0;
    } else if (taken == MAX_REQUESTS_PER_STEP) {
      taken = 0;
      if (cow_queue_was_woken() || due > 0) due = 0;
    } else {
      PyThreadState* state = py->PyEval_SaveThread();
      bool work = cow_queue_sleep(due);
      if (work || due > 0) due = 0;
      py->PyEval_RestoreThread(state);
      taken = 0;
    }
  }
}

static void* dispatch_main(void* unused) {
  (void)unused;
  pthread_mutex_lock(&dispatch.lock);
  for (;;) {
    while (dispatch.state != START) pthread_cond_wait(&dispatch.changed, &dispatch.lock);
    pthread_mutex_unlock(&dispatch.lock);

    cow_quality_set(dispatch.quality);
    cow_mlx_status status = attach();
    if (status == COW_MLX_OK) {
      bridge->run(dispatch.start);
      status = dispatch.start->status;
    } else {
      cow_error_copy(&dispatch.failure, cow_error_failure());
    }
    if (status == COW_MLX_OK) cow_queue_open();

    pthread_mutex_lock(&dispatch.lock);
    dispatch.status = status;
    dispatch.state = SERVING;
    pthread_cond_broadcast(&dispatch.changed);
    pthread_mutex_unlock(&dispatch.lock);

    if (status == COW_MLX_OK) {
      serve();
      /* A process that ends destroys what mlx's own threads still use. */
      bridge->rest();
    }
    if (atomic_load(&py_ready)) parked_state = py->PyEval_SaveThread();

    pthread_mutex_lock(&dispatch.lock);
    dispatch.state = PARKED;
    pthread_cond_broadcast(&dispatch.changed);
  }
  return NULL;
}

/* All signals stay the host's: the thread blocks them. */
static cow_mlx_status create_thread(void) {
  if (!cow_queue_prepare()) {
    return cow_error(COW_MLX_ENOMEM, "runtime_start", COW_REASON_no_memory, NULL,
                     "the system has no semaphore left for the dispatch thread");
  }
  sigset_t all, old;
  pthread_t thread;
  pthread_attr_t attributes;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  /* Python and the JSON of deep configs recurse; macOS gives threads 512 KiB. */
  pthread_attr_setstacksize(&attributes, (size_t)16 << 20);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failure = pthread_create(&thread, &attributes, dispatch_main, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  if (failure) {
    return cow_error(COW_MLX_ENOMEM, "runtime_start", COW_REASON_no_threads,
                     DETAILS(SIZE_DETAIL("needed", 1)), "cannot create the dispatch thread: %s",
                     strerror(failure));
  }
  dispatch.state = PARKED;
  return COW_MLX_OK;
}

/* Check the least that a first start needs. Python can be booted only once in a process, and ends
 * the process if memory runs out. */
static cow_mlx_status check_resources(void) {
  int failure = cow_resources_files();
  if (failure == EMFILE) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    return cow_error(COW_MLX_EIO, "runtime_start", COW_REASON_no_descriptors,
                     DETAILS(SIZE_DETAIL("limit", limit.rlim_cur)),
                     "the process has too many open files: its limit "
                     "(RLIMIT_NOFILE) is %llu",
                     (unsigned long long)limit.rlim_cur);
  }
  if (failure) {
    return cow_error(COW_MLX_EIO, "runtime_start", COW_REASON_no_descriptors, NULL, "%s",
                     strerror(failure));
  }
  if (!cow_resources_memory(LEAST_MEMORY)) {
    return cow_error(COW_MLX_ENOMEM, "runtime_start", COW_REASON_no_memory,
                     DETAILS(SIZE_DETAIL("needed", LEAST_MEMORY)),
                     "Python needs %zu MiB of memory; raise the process's limits "
                     "(RLIMIT_AS, RLIMIT_DATA)",
                     LEAST_MEMORY >> 20);
  }
  return COW_MLX_OK;
}

cow_mlx_status cow_bootstrap_start(const cow_mlx_runtime_params* params, cow_request* start,
                                   void (*at_exit)(void)) {
  cow_mlx_status status = bridge ? COW_MLX_OK : check_resources();
  if (status == COW_MLX_OK) status = cow_interpreter_find(params->python_home);
  if (status != COW_MLX_OK) return status;
  if (cow_python_here.joined && !bridge && (status = cow_interpreter_prepare_join()) != COW_MLX_OK)
    return status;
  if (cow_python_here.joined) atomic_store(&py_ready, true);

  void* interpreter = cow_bootstrap_release_interpreter();
  pthread_mutex_lock(&dispatch.lock);
  if (dispatch.state == NO_THREAD) status = create_thread();
  if (status == COW_MLX_OK) {
    while (dispatch.state != PARKED) pthread_cond_wait(&dispatch.changed, &dispatch.lock);
    start->message = dispatch.failure.message;
    start->details = dispatch.failure.details;
    cow_runtime_start_args args = {params, cow_python_here.place.home};
    start->args = &args;
    dispatch.start = start;
    dispatch.at_exit = at_exit;
    dispatch.quality = params->quality_of_service;
    dispatch.state = START;
    pthread_cond_broadcast(&dispatch.changed);
    while (dispatch.state == START) pthread_cond_wait(&dispatch.changed, &dispatch.lock);
    status = dispatch.status;
    if (status != COW_MLX_OK) cow_error_copy(cow_error_failure(), &dispatch.failure);
  }
  pthread_mutex_unlock(&dispatch.lock);
  cow_bootstrap_restore_interpreter(interpreter);
  return status;
}

/* The dispatch thread needs the interpreter, which the caller may hold, to come to rest. */
void cow_bootstrap_wait_parked(int seconds) {
  bool is_there = atomic_load(&py_ready) && py->Py_IsInitialized();
  void* interpreter = is_there ? cow_bootstrap_release_interpreter() : NULL;
  struct timespec deadline = cow_time_after((int64_t)seconds * 1000000);
  pthread_mutex_lock(&dispatch.lock);
  while (dispatch.state == START || dispatch.state == SERVING) {
    if (pthread_cond_timedwait(&dispatch.changed, &dispatch.lock, &deadline)) break;
  }
  pthread_mutex_unlock(&dispatch.lock);
  cow_bootstrap_restore_interpreter(interpreter);
}

void cow_bootstrap_after_fork(void) {
  if (bridge && dispatch.state != PARKED) bridge->keep_objects();
}

/* Even before the first start has found Python, this thread may hold one. It must not wait
 * meanwhile for another thread that starts the runtime. */
static void* release_unknown_interpreter(void) {
  cow_python_api found;
  if (cow_python_look_up(RTLD_DEFAULT, &found) || !cow_python_fits(&found)) return NULL;
  if (!found.Py_IsInitialized() || !cow_thread_state_held(&found)) return NULL;
  return found.PyEval_SaveThread();
}

void* cow_bootstrap_release_interpreter(void) {
  if (!atomic_load(&py_ready)) return release_unknown_interpreter();
  return cow_thread_state_held(py) ? py->PyEval_SaveThread() : NULL;
}

void cow_bootstrap_restore_interpreter(void* state) {
  if (!state) return;
  void (*restore)(PyThreadState*) = py->PyEval_RestoreThread;
  if (!atomic_load(&py_ready)) *(void**)&restore = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
  restore(state);
}

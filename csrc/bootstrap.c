/* Before every other header: Python.h settles which of its functions the system declares
 * (_GNU_SOURCE, for RTLD_DEFAULT), and a system newer than that Python says it otherwise. */
/* clang-format off */
#include "python_api.h"
/* clang-format on */

#include "bootstrap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "arrays.h"
#include "cancel.h"
#include "error.h"
#include "handles.h"
#include "locate.h"
#include "queue.h"
#include "resources.h"
#include "runtime.h"
#include "thread_state.h"

enum { LEAST_FILES = 2 };
static const size_t LEAST_MEMORY = (size_t)64 << 20;

static cow_python_api py;
static atomic_bool py_ready; /* the table is filled and Python runs */

static cow_python python;
static bool joined;
static const cow_bridge* bridge;

/* Starting and parking: a handshake of its own, since the queue is not open. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  enum { NO_THREAD, PARKED, START, SERVING } state;
  cow_request* start;    /* to be carried out by the next START */
  cow_mlx_status status; /* of the last START */
  cow_failure failure;   /* likewise */
} dispatch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The status of what failed with this text, unless the system ran out of something. */
static cow_mlx_status status_of(const char* text, cow_mlx_status otherwise) {
  if (strstr(text, strerror(EMFILE))) return COW_MLX_EIO;
  if (strstr(text, "failed to map segment") || strstr(text, strerror(ENOMEM)) ||
      strstr(text, strerror(EAGAIN))) {
    return COW_MLX_ENOMEM;
  }
  return otherwise;
}

static cow_reason reason_of(cow_mlx_status status, cow_reason otherwise) {
  if (status == COW_MLX_EIO) return COW_REASON_no_descriptors;
  return status == COW_MLX_ENOMEM ? COW_REASON_no_memory : otherwise;
}

/* ------------------------------------------------ Finding CPython's functions */

static cow_mlx_status look_up(void* library) {
  const char* missing = cow_python_look_up(library, &py);
  if (missing) {
    return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch, NULL,
                     "this Python has no %s; libcowmlx was built for "
                     "Python " COW_PYTHON_VERSION,
                     missing);
  }
  if (!cow_python_fits(&py)) {
    return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch, NULL,
                     "the process runs Python %.16s, but libcowmlx was built for "
                     "Python " COW_PYTHON_VERSION,
                     py.Py_GetVersion());
  }
  return COW_MLX_OK;
}

/* Whether the Python that runs is the one that a host asks for. */
static cow_mlx_status check_home(const char* home) {
  if (!home || (!joined && cow_locate_same(home, python.home))) return COW_MLX_OK;
  return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch,
                   DETAILS(TEXT_DETAIL("argument", "python_home"), TEXT_DETAIL("file", home)),
                   "python_home is %.512s, but this process already runs the Python "
                   "%s%.512s; pass NULL to use it",
                   home, joined ? "of its host" : "in ", python.home);
}

/* Locate the Python to boot; a failed try leaves no trace. */
static cow_mlx_status locate_python(const char* home) {
  cow_mlx_status status = cow_locate_python(home, &python);
  if (status != COW_MLX_OK) memset(&python, 0, sizeof python);
  return status;
}

/* Bring the right libpython into the process, its symbols visible to the
 * extension modules, and fill the table. Caller's thread. */
static cow_mlx_status find_python(const char* home) {
  if (py.Py_DecRef) return check_home(home);
  char path[COW_PATH_SIZE];
  int minor;
  bool mapped = cow_locate_mapped_python(path, &minor);
  if (mapped && minor != PY_MINOR_VERSION) {
    return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch,
                     DETAILS(TEXT_DETAIL("file", path)),
                     "the process holds %.512s already, but libcowmlx was built "
                     "for Python " COW_PYTHON_VERSION,
                     path);
  }
  cow_mlx_status status = COW_MLX_OK;
  void* library = RTLD_DEFAULT;
  if (!dlsym(RTLD_DEFAULT, "Py_IsInitialized")) {
    if (!mapped) {
      if ((status = locate_python(home)) != COW_MLX_OK) return status;
      strcpy(path, python.library);
    }
    library = dlopen(path, RTLD_NOW | RTLD_GLOBAL | (mapped ? RTLD_NOLOAD : 0));
    if (!library) {
      const char* reason = dlerror();
      cow_mlx_status failure = status_of(reason, COW_MLX_ENOENT);
      return cow_error(failure, "runtime_start", reason_of(failure, COW_REASON_python_not_found),
                       DETAILS(TEXT_DETAIL("file", path)), "cannot load %.512s: %.512s", path,
                       reason);
    }
  }
  if ((status = look_up(library)) != COW_MLX_OK) {
    memset(&py, 0, sizeof py);
    return status;
  }
  joined = py.Py_IsInitialized();
  if (!joined && !python.home[0]) status = locate_python(home);
  if (status == COW_MLX_OK && joined) status = check_home(home);
  if (status != COW_MLX_OK) memset(&py, 0, sizeof py);
  return status;
}

/* --------------------------------------------- Booting, on the dispatch thread */

/* Turn the pending Python exception into the error message. */
static cow_mlx_status python_error(cow_mlx_status status, const char* what) {
  PyObject *type = NULL, *value = NULL, *trace = NULL;
  py.PyErr_Fetch(&type, &value, &trace);
  py.PyErr_NormalizeException(&type, &value, &trace);
  PyObject* text = value ? py.PyObject_Str(value) : NULL;
  const char* utf8 = text ? py.PyUnicode_AsUTF8(text) : NULL;
  if (!utf8) utf8 = "no reason given";
  bool no_memory = type && py.PyErr_GivenExceptionMatches(type, *py.PyExc_MemoryError);
  status = no_memory ? COW_MLX_ENOMEM : status_of(utf8, status);
  cow_reason otherwise =
      status == COW_MLX_EINTERNAL ? COW_REASON_internal : COW_REASON_package_not_found;
  cow_error(status, "runtime_start", reason_of(status, otherwise), NULL, "%s: %.1024s", what,
            no_memory && !*utf8 ? "no memory" : utf8);
  py.Py_DecRef(text);
  py.Py_DecRef(type);
  py.Py_DecRef(value);
  py.Py_DecRef(trace);
  py.PyErr_Clear();
  return status;
}

static cow_mlx_status boot_error(PyStatus status) {
  return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                   DETAILS(TEXT_DETAIL("file", python.home)),
                   "Python in %.512s does not start: %.512s", python.home,
                   status.err_msg ? status.err_msg : "no reason given");
}

/* An interpreter that nothing of the host's environment reaches: no PYTHON*
 * variables, no user site, no locale, no signal handlers, no files written. */
static cow_mlx_status boot(void) {
  PyPreConfig preconfig;
  py.PyPreConfig_InitIsolatedConfig(&preconfig);
  preconfig.utf8_mode = 1; /* paths with "ö" work under LC_ALL=C */
  PyStatus status = py.Py_PreInitialize(&preconfig);
  if (py.PyStatus_Exception(status)) return boot_error(status);

  PyConfig config;
  py.PyConfig_InitIsolatedConfig(&config);
  config.install_signal_handlers = 0;
  config.write_bytecode = 0;
  /* A virtual environment is found through its executable, anything else by its
   * prefix. Without an executable, Python would look for a virtual environment
   * above the working folder. */
  if (!python.executable[0]) {
    snprintf(python.executable, sizeof python.executable, "%.4000s/bin/python" COW_PYTHON_VERSION,
             python.home);
    status = py.PyConfig_SetBytesString(&config, &config.home, python.home);
  }
  if (!py.PyStatus_Exception(status)) {
    status = py.PyConfig_SetBytesString(&config, &config.executable, python.executable);
  }
  if (!py.PyStatus_Exception(status)) status = py.Py_InitializeFromConfig(&config);
  py.PyConfig_Clear(&config);
  if (py.PyStatus_Exception(status)) return boot_error(status);

  /* Importing _signal installs Python's SIGINT handler all the same: let it
   * happen now, and put the host's back. */
  struct sigaction action;
  sigaction(SIGINT, NULL, &action);
  PyObject* module = py.PyImport_ImportModule("_signal");
  sigaction(SIGINT, &action, NULL);
  if (!module) return python_error(COW_MLX_EINTERNAL, "cannot import _signal");
  py.Py_DecRef(module);
  return COW_MLX_OK;
}

/* The result of a call of module.name, or NULL; takes the arguments' reference. */
static PyObject* call(PyObject* object, const char* name, PyObject* arguments) {
  PyObject* function = object && arguments ? py.PyObject_GetAttrString(object, name) : NULL;
  PyObject* result = function ? py.PyObject_CallObject(function, arguments) : NULL;
  py.Py_DecRef(function);
  py.Py_DecRef(arguments);
  return result;
}

/* Import the cowmlx package in a folder; with the others on sys.path, a package of
 * another build would come in that comes first there. */
static bool import_package(PyObject* folder) {
  PyObject* modules = py.PySys_GetObject("modules"); /* borrowed */
  if (modules && py.PyDict_GetItemString(modules, "cowmlx")) return true;
  PyObject* machinery = py.PyImport_ImportModule("importlib.machinery");
  PyObject* util = py.PyImport_ImportModule("importlib.util");
  PyObject* finder = machinery ? py.PyObject_GetAttrString(machinery, "PathFinder") : NULL;
  PyObject* spec = call(finder, "find_spec", py.Py_BuildValue("(s[O])", "cowmlx", folder));
  PyObject* module = spec ? call(util, "module_from_spec", py.Py_BuildValue("(O)", spec)) : NULL;
  PyObject* loader = module ? py.PyObject_GetAttrString(spec, "loader") : NULL;
  PyObject* done = loader ? call(loader, "exec_module", py.Py_BuildValue("(O)", module)) : NULL;
  bool imported = done && py.PyDict_SetItemString(modules, "cowmlx", module) == 0;
  PyObject* owned[] = {machinery, util, finder, spec, module, loader, done};
  for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) py.Py_DecRef(owned[i]);
  return imported;
}

/* Import the cowmlx package that belongs to this library. Its folder comes to sys.path
 * too: that of a bundle has the other packages. */
static cow_mlx_status import_own_package(void) {
  char folder[COW_PATH_SIZE];
  if (cow_locate_package(joined ? "" : python.home, folder) != COW_MLX_OK) return COW_MLX_OK;
  PyObject* path = py.PySys_GetObject("path"); /* borrowed */
  PyObject* entry = py.PyUnicode_DecodeFSDefault(folder);
  int present = path && entry ? py.PySequence_Contains(path, entry) : -1;
  bool failed = present < 0 || (present == 0 && py.PyList_Append(path, entry) < 0);
  failed = failed || !import_package(entry);
  py.Py_DecRef(entry);
  return failed ? python_error(COW_MLX_ENOENT, "cannot import cowmlx") : COW_MLX_OK;
}

static int32_t open_handle(cow_kind kind) {
  int32_t handle = cow_handle_open(kind);
  if (handle) cow_cancel_opened(handle); /* if it is of a kind that can be cancelled */
  return handle;
}

static void close_handle(int32_t handle) {
  cow_cancel_closed(handle);
  cow_handle_close(handle);
}

static const cow_host host = {
    .finish = cow_queue_finish,
    .post = cow_queue_post,
    .can_post = cow_queue_can_post,
    .refused = cow_queue_refused,
    .cancel_epoch = cow_cancel_epoch,
    .open_handle = open_handle,
    .close_handle = close_handle,
    .can_start_threads = cow_resources_threads,
    .can_map = cow_resources_memory,
    .give_back = cow_resources_give_back,
    .arrays_start = cow_arrays_start,
    .arrays_stop = cow_arrays_stop,
    .arrays_count = cow_arrays_count,
    .arrays_add_object = cow_arrays_add_object,
    .arrays_close = cow_arrays_close,
    .memory_new = cow_memory_new,
    .memory_let_go = cow_memory_let_go,
    .memory_trim = cow_memory_trim,
    .memory_capacity = cow_memory_capacity,
    .memory_bound = cow_memory_bound,
    .memory_in_use = cow_memory_in_use,
    .arrays_add_host = cow_arrays_add_host,
    .arrays_take = cow_arrays_take,
    .arrays_hold_object = cow_arrays_hold_object,
    .arrays_tell = cow_arrays_tell,
    .arrays_let_go = cow_arrays_let_go,
    .arrays_set_object = cow_arrays_set_object,
    .arrays_take_memory = cow_arrays_take_memory,
    .arrays_return_memory = cow_arrays_return_memory,
    .arrays_next_dropped = cow_arrays_next_dropped,
};

/* PyCapsule_Import does not import submodules: import the module first. */
static cow_mlx_status load_bridge(void) {
  PyObject* module = py.PyImport_ImportModule("cowmlx._bridge");
  if (!module) {
    char what[COW_PATH_SIZE + 256];
    snprintf(
        what, sizeof what,
        "the Python in %.512s cannot import cowmlx._bridge (leave the library in the package's "
        "lib folder, where make or make install has put it)",
        joined ? "this process" : python.home);
    return python_error(COW_MLX_ENOENT, what);
  }
  PyObject* capsule = py.PyObject_GetAttrString(module, "table");
  const cow_bridge* table = capsule ? py.PyCapsule_GetPointer(capsule, COW_BRIDGE_CAPSULE) : NULL;
  py.Py_DecRef(capsule); /* the module keeps it */
  py.Py_DecRef(module);  /* sys.modules keeps it */
  if (!table) return python_error(COW_MLX_EINTERNAL, "cowmlx._bridge has no table");
  if (table->abi != COW_BRIDGE_ABI) {
    return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_library_mismatch, NULL,
                     "cowmlx._bridge has ABI %u, this library needs %u; install "
                     "both from one build",
                     (unsigned)table->abi, (unsigned)COW_BRIDGE_ABI);
  }
  if (!table->attach(&host)) {
    return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_library_mismatch, NULL,
                     "another copy of libcowmlx uses this process's Python; load one "
                     "library only");
  }
  bridge = table;
  return COW_MLX_OK;
}

/* A joined interpreter finalises before C's exit handlers run: leave it in its
 * own. The capsule is the hook's argument and holds nothing. */
static cow_mlx_status register_python_exit(void) {
  PyObject* module = py.PyImport_ImportModule("cowmlx._bridge");
  PyObject* capsule =
      py.PyCapsule_New((void*)(uintptr_t)cow_runtime_at_exit, "cowmlx.at_exit", NULL);
  PyObject* function = module ? py.PyObject_GetAttrString(module, "register_exit") : NULL;
  PyObject* result = function && capsule ? py.PyObject_CallFunction(function, "O", capsule) : NULL;
  bool failed = !result;
  py.Py_DecRef(result);
  py.Py_DecRef(function);
  py.Py_DecRef(capsule);
  py.Py_DecRef(module);
  return failed ? python_error(COW_MLX_EINTERNAL, "cannot register the exit hook") : COW_MLX_OK;
}

/* The dispatch thread's one Python thread state, while it does not run Python. */
static PyThreadState* parked_state;

/* Everything from no Python to a working bridge; holds the interpreter after it
 * unless Python itself does not start. */
static cow_mlx_status attach(void) {
  static cow_mlx_status boot_status = COW_MLX_OK;
  static cow_failure boot_failure;
  cow_mlx_status status;
  if (parked_state) {
    py.PyEval_RestoreThread(parked_state);
  } else if (joined) {
    py.PyGILState_Ensure();               /* kept for the thread's life */
  } else if (boot_status != COW_MLX_OK) { /* Python starts once in a process, or never */
    cow_error_copy(cow_error_failure(), &boot_failure);
    return boot_status;
  } else if ((boot_status = boot()) != COW_MLX_OK) {
    cow_error_copy(&boot_failure, cow_error_failure());
    return boot_status;
  }
  atomic_store(&py_ready, true);
  if (bridge) return COW_MLX_OK;
  if ((status = import_own_package()) != COW_MLX_OK) return status;
  if ((status = load_bridge()) != COW_MLX_OK) return status;
  if (joined) return register_python_exit();
  return COW_MLX_OK;
}

/* ------------------------------------------------------------- Dispatch thread */

/* Between two steps of what is under way at most so many requests are run, so
 * that hosts that call without pause do not stop those that generate. */
enum { MAX_REQUESTS_PER_STEP = 8 };

/* Take the queued requests, run them; take one step of what is under way; sleep
 * when there is neither. */
static void serve(void) {
  bool work = false; /* there may be a step to take */
  int taken = 0;     /* requests since the last step */
  while (cow_queue_is_open()) {
    cow_request* request = taken < MAX_REQUESTS_PER_STEP ? cow_queue_take() : NULL;
    if (request) {
      if (request->op == COW_OP_RUNTIME_STOP) cow_queue_close();
      if (bridge->run(request)) work = true;
      taken++;
    } else if (work) {
      work = bridge->step();
      taken = 0;
    } else if (taken == MAX_REQUESTS_PER_STEP) {
      taken = 0;
    } else {
      PyThreadState* state = py.PyEval_SaveThread();
      work = cow_queue_sleep();
      py.PyEval_RestoreThread(state);
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
    if (atomic_load(&py_ready)) parked_state = py.PyEval_SaveThread();

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
                     "runtime_start: the system gives the dispatch thread no semaphore");
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

static cow_mlx_status refuse_sub_interpreter(void) {
  return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_sub_interpreter, NULL,
                   "called in a sub-interpreter of Python; start the runtime in the "
                   "main interpreter");
}

/* A joining thread other than Python's first must not be the one that imports
 * `threading`, or that thread counts as the main one and the host hangs at exit. */
static cow_mlx_status prepare_join(void) {
  if (cow_thread_state_is_sub(&py)) return refuse_sub_interpreter();
  bool held = cow_thread_state_held(&py) != NULL;
  PyGILState_STATE state = held ? PyGILState_LOCKED : py.PyGILState_Ensure();
  cow_mlx_status status = COW_MLX_OK;
  if (py.PyInterpreterState_Get() != py.PyInterpreterState_Main()) {
    status = refuse_sub_interpreter(); /* the thread is one of its */
  } else {
    PyObject* module = py.PyImport_ImportModule("threading");
    if (!module) status = python_error(COW_MLX_EINTERNAL, "cannot import threading");
    py.Py_DecRef(module);
  }
  if (!held) py.PyGILState_Release(state);
  return status;
}

/* What a first start takes at the least. Python can be booted only once in a process, and ends it
 * where there is no memory. */
static cow_mlx_status check_resources(void) {
  int failure = cow_resources_files(LEAST_FILES);
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

cow_mlx_status cow_bootstrap_start(const cow_mlx_runtime_params* params, cow_request* start) {
  cow_mlx_status status = bridge ? COW_MLX_OK : check_resources();
  if (status == COW_MLX_OK) status = find_python(params->python_home);
  if (status != COW_MLX_OK) return status;
  if (joined && !bridge && (status = prepare_join()) != COW_MLX_OK) return status;
  if (joined) atomic_store(&py_ready, true);

  void* interpreter = cow_bootstrap_release_interpreter();
  pthread_mutex_lock(&dispatch.lock);
  if (dispatch.state == NO_THREAD) status = create_thread();
  if (status == COW_MLX_OK) {
    while (dispatch.state != PARKED) pthread_cond_wait(&dispatch.changed, &dispatch.lock);
    start->message = dispatch.failure.message;
    start->details = dispatch.failure.details;
    cow_runtime_start_args args = {params, python.home};
    start->args = &args;
    dispatch.start = start;
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

void cow_bootstrap_wait_parked(int seconds) {
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += seconds;
  pthread_mutex_lock(&dispatch.lock);
  while (dispatch.state == START || dispatch.state == SERVING) {
    if (pthread_cond_timedwait(&dispatch.changed, &dispatch.lock, &deadline)) break;
  }
  pthread_mutex_unlock(&dispatch.lock);
}

void cow_bootstrap_after_fork(void) {
  if (bridge && dispatch.state != PARKED) bridge->keep_objects();
}

/* Before the first start has found Python, this thread may hold one all the
 * same, and must not wait for another thread that is starting while it does. */
static void* release_unknown_interpreter(void) {
  cow_python_api found;
  if (cow_python_look_up(RTLD_DEFAULT, &found) || !cow_python_fits(&found)) return NULL;
  if (!found.Py_IsInitialized() || !cow_thread_state_held(&found)) return NULL;
  return found.PyEval_SaveThread();
}

void* cow_bootstrap_release_interpreter(void) {
  if (!atomic_load(&py_ready)) return release_unknown_interpreter();
  return cow_thread_state_held(&py) ? py.PyEval_SaveThread() : NULL;
}

void cow_bootstrap_restore_interpreter(void* state) {
  if (!state) return;
  void (*restore)(PyThreadState*) = py.PyEval_RestoreThread;
  if (!atomic_load(&py_ready)) *(void**)&restore = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
  restore(state);
}

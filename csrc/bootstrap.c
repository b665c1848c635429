/* Before every other header: Python.h settles which of its functions the system declares
 * (_GNU_SOURCE, for RTLD_DEFAULT), and a system newer than that Python says it otherwise. */
/* clang-format off */
#include "python_api.h"
/* clang-format on */

#include "bootstrap.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cancel.h"
#include "error.h"
#include "locate.h"
#include "queue.h"
#include "runtime.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define PYTHON_VERSION TEXT(PY_MAJOR_VERSION) "." TEXT(PY_MINOR_VERSION)

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
  char message[COW_MESSAGE_SIZE];
} dispatch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ------------------------------------------------ Finding CPython's functions */

static cow_mlx_status look_up(void* library) {
#define LOOK_UP(name)                                                   \
  *(void**)&py.name = dlsym(library, #name);                            \
  if (!py.name) {                                                       \
    return cow_error(COW_MLX_EUNSUPPORTED,                              \
                     "runtime_start: this Python has no %s; libcowmlx " \
                     "was built for Python " PYTHON_VERSION,            \
                     #name);                                            \
  }
  COW_PYTHON_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  size_t length = strlen(PYTHON_VERSION);
  const char* version = py.Py_GetVersion();
  if (strncmp(version, PYTHON_VERSION, length) != 0 || version[length] != '.') {
    return cow_error(COW_MLX_EUNSUPPORTED,
                     "runtime_start: the process runs Python %.16s, but libcowmlx was built for "
                     "Python " PYTHON_VERSION,
                     version);
  }
  return COW_MLX_OK;
}

/* Whether the Python that runs is the one that a host asks for. */
static cow_mlx_status check_home(const char* home) {
  if (!home || (!joined && strcmp(home, python.home) == 0)) return COW_MLX_OK;
  return cow_error(COW_MLX_EUNSUPPORTED,
                   "runtime_start: python_home is %.512s, but this process already runs the Python "
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
    return cow_error(COW_MLX_EUNSUPPORTED,
                     "runtime_start: the process holds %.512s already, but libcowmlx was built "
                     "for Python " PYTHON_VERSION,
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
      return cow_error(COW_MLX_ENOENT, "runtime_start: cannot load %.512s: %.512s", path,
                       dlerror());
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
  cow_error(status, "runtime_start: %s: %.1024s", what, utf8 ? utf8 : "no reason given");
  py.Py_DecRef(text);
  py.Py_DecRef(type);
  py.Py_DecRef(value);
  py.Py_DecRef(trace);
  py.PyErr_Clear();
  return status;
}

static cow_mlx_status boot_error(PyStatus status) {
  return cow_error(COW_MLX_ENOENT, "runtime_start: Python in %.512s does not start: %.512s",
                   python.home, status.err_msg ? status.err_msg : "no reason given");
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
    snprintf(python.executable, sizeof python.executable, "%.4000s/bin/python" PYTHON_VERSION,
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

/* Make the cowmlx package that belongs to this library importable. */
static cow_mlx_status add_package_path(void) {
  char folder[COW_PATH_SIZE];
  if (cow_locate_package(joined ? "" : python.home, folder) != COW_MLX_OK) return COW_MLX_OK;
  PyObject* path = py.PySys_GetObject("path"); /* borrowed */
  PyObject* entry = py.PyUnicode_DecodeFSDefault(folder);
  int present = path && entry ? py.PySequence_Contains(path, entry) : -1;
  bool failed = present < 0 || (present == 0 && py.PyList_Append(path, entry) < 0);
  py.Py_DecRef(entry);
  return failed ? python_error(COW_MLX_EINTERNAL, "cannot extend sys.path") : COW_MLX_OK;
}

static const cow_host host = {
    .finish = cow_queue_finish,
    .post = cow_queue_post,
    .can_post = cow_queue_can_post,
    .refused = cow_queue_refused,
    .cancel_epoch = cow_cancel_epoch,
    .context_opened = cow_cancel_opened,
    .context_closed = cow_cancel_closed,
};

/* PyCapsule_Import does not import submodules: import the module first. */
static cow_mlx_status load_bridge(void) {
  PyObject* module = py.PyImport_ImportModule("cowmlx._bridge");
  if (!module) {
    char what[COW_PATH_SIZE + 256];
    snprintf(
        what, sizeof what,
        "the Python in %.512s cannot import cowmlx._bridge (leave the library in the package's "
        "lib folder, or install the package there)",
        joined ? "this process" : python.home);
    return python_error(COW_MLX_ENOENT, what);
  }
  PyObject* capsule = py.PyObject_GetAttrString(module, "table");
  const cow_bridge* table = capsule ? py.PyCapsule_GetPointer(capsule, COW_BRIDGE_CAPSULE) : NULL;
  py.Py_DecRef(capsule); /* the module keeps it */
  py.Py_DecRef(module);  /* sys.modules keeps it */
  if (!table) return python_error(COW_MLX_EINTERNAL, "cowmlx._bridge has no table");
  if (table->abi != COW_BRIDGE_ABI) {
    return cow_error(COW_MLX_EUNSUPPORTED,
                     "runtime_start: cowmlx._bridge has ABI %u, this library needs %u; install "
                     "both from one build",
                     (unsigned)table->abi, (unsigned)COW_BRIDGE_ABI);
  }
  if (!table->attach(&host)) {
    return cow_error(
        COW_MLX_EUNSUPPORTED,
        "runtime_start: another copy of libcowmlx uses this process's Python; load one "
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
  static char boot_message[COW_MESSAGE_SIZE];
  cow_mlx_status status;
  if (parked_state) {
    py.PyEval_RestoreThread(parked_state);
  } else if (joined) {
    py.PyGILState_Ensure();               /* kept for the thread's life */
  } else if (boot_status != COW_MLX_OK) { /* Python starts once in a process, or never */
    return cow_error(boot_status, "%s", boot_message);
  } else if ((boot_status = boot()) != COW_MLX_OK) {
    strcpy(boot_message, cow_error_buffer());
    return boot_status;
  }
  atomic_store(&py_ready, true);
  if (bridge) return COW_MLX_OK;
  if ((status = add_package_path()) != COW_MLX_OK) return status;
  if ((status = load_bridge()) != COW_MLX_OK) return status;
  if (joined) return register_python_exit();
  return COW_MLX_OK;
}

/* ------------------------------------------------------------- Dispatch thread */

/* Between two steps of what is under way at most so many requests are run, so
 * that hosts that call without pause do not stop those that generate. */
enum { MOST_REQUESTS_A_STEP = 8 };

/* Take the queued requests, run them; take one step of what is under way; sleep
 * when there is neither. */
static void serve(void) {
  bool work = false; /* there may be a step to take */
  int taken = 0;     /* requests since the last step */
  while (cow_queue_is_open()) {
    cow_request* request = taken < MOST_REQUESTS_A_STEP ? cow_queue_take() : NULL;
    if (request) {
      if (request->op == COW_OP_RUNTIME_STOP) cow_queue_close();
      if (bridge->run(request)) work = true;
      taken++;
    } else if (work) {
      work = bridge->step();
      taken = 0;
    } else if (taken == MOST_REQUESTS_A_STEP) {
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
      strcpy(dispatch.message, cow_error_buffer());
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
    return cow_error(COW_MLX_ENOMEM, "runtime_start: cannot create the dispatch thread: %s",
                     strerror(failure));
  }
  dispatch.state = PARKED;
  return COW_MLX_OK;
}

/* A joining thread other than Python's first must not be the one that imports
 * `threading`, or that thread counts as the main one and the host hangs at exit. */
static cow_mlx_status prepare_join(void) {
  PyGILState_STATE state = py.PyGILState_Ensure();
  PyObject* module = py.PyImport_ImportModule("threading");
  cow_mlx_status status =
      module ? COW_MLX_OK : python_error(COW_MLX_EINTERNAL, "cannot import threading");
  py.Py_DecRef(module);
  py.PyGILState_Release(state);
  return status;
}

cow_mlx_status cow_bootstrap_start(const char* python_home, cow_request* start) {
  cow_mlx_status status = find_python(python_home);
  if (status != COW_MLX_OK) return status;
  if (joined && !bridge && (status = prepare_join()) != COW_MLX_OK) return status;
  if (joined) atomic_store(&py_ready, true);

  void* interpreter = cow_bootstrap_release_interpreter();
  pthread_mutex_lock(&dispatch.lock);
  if (dispatch.state == NO_THREAD) status = create_thread();
  if (status == COW_MLX_OK) {
    while (dispatch.state != PARKED) pthread_cond_wait(&dispatch.changed, &dispatch.lock);
    start->message = dispatch.message;
    start->args.path = python.home; /* "" if it was joined */
    dispatch.start = start;
    dispatch.state = START;
    pthread_cond_broadcast(&dispatch.changed);
    while (dispatch.state == START) pthread_cond_wait(&dispatch.changed, &dispatch.lock);
    status = dispatch.status;
    if (status != COW_MLX_OK) cow_error(status, "%s", dispatch.message);
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

/* Before the first start has found Python, this thread may hold one all the
 * same, and must not wait for another thread that is starting while it does. */
static void* release_unknown_interpreter(void) {
  int (*is_initialized)(void);
  int (*holds)(void);
  PyThreadState* (*save)(void);
  *(void**)&is_initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
  *(void**)&holds = dlsym(RTLD_DEFAULT, "PyGILState_Check");
  *(void**)&save = dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
  if (!is_initialized || !holds || !save || !is_initialized() || !holds()) return NULL;
  return save();
}

void* cow_bootstrap_release_interpreter(void) {
  if (!atomic_load(&py_ready)) return release_unknown_interpreter();
  return py.PyGILState_Check() ? py.PyEval_SaveThread() : NULL;
}

void cow_bootstrap_restore_interpreter(void* state) {
  if (!state) return;
  void (*restore)(PyThreadState*) = py.PyEval_RestoreThread;
  if (!atomic_load(&py_ready)) *(void**)&restore = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
  restore(state);
}

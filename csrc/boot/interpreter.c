#include "boot/interpreter.h" /* first: see python_api.h */

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

cow_interpreter cow_python_here;

static const cow_python_api* const py = &cow_python_here.api;

/* The status of a failure with this text, unless the system ran out of a resource. */
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

cow_mlx_status cow_interpreter_failed(cow_mlx_status status, const char* what) {
  PyObject *type = NULL, *value = NULL, *trace = NULL;
  py->PyErr_Fetch(&type, &value, &trace);
  py->PyErr_NormalizeException(&type, &value, &trace);
  PyObject* text = value ? py->PyObject_Str(value) : NULL;
  const char* utf8 = text ? py->PyUnicode_AsUTF8(text) : NULL;
  if (!utf8) utf8 = "no reason given";
  bool no_memory = type && py->PyErr_GivenExceptionMatches(type, *py->PyExc_MemoryError);
  status = no_memory ? COW_MLX_ENOMEM : status_of(utf8, status);
  cow_reason otherwise =
      status == COW_MLX_EINTERNAL ? COW_REASON_internal : COW_REASON_package_not_found;
  cow_error(status, "runtime_start", reason_of(status, otherwise), NULL, "%s: %.1024s", what,
            no_memory && !*utf8 ? "no memory" : utf8);
  py->Py_DecRef(text);
  py->Py_DecRef(type);
  py->Py_DecRef(value);
  py->Py_DecRef(trace);
  py->PyErr_Clear();
  return status;
}

/* ---------------------------------------------------- Which thread holds it */

/* PyGILState_Check() does not help: once the process has made a sub-interpreter it is always true.
 */

#if PY_VERSION_HEX >= 0x030D0000

PyThreadState* cow_thread_state_held(const cow_python_api* py) {
  return py->PyThreadState_GetUnchecked();
}

#elif PY_VERSION_HEX >= 0x030C0000

PyThreadState* cow_thread_state_held(const cow_python_api* py) {
  return py->_PyThreadState_UncheckedGet();
}

#else

static bool is_on_this_stack(const void* address) {
  size_t size;
#ifdef __APPLE__
  char* bottom = pthread_get_stackaddr_np(pthread_self());
  size = pthread_get_stacksize_np(pthread_self());
  bottom -= size;
#else
  void* bottom = NULL;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes)) return false;
  pthread_attr_getstack(&attributes, &bottom, &size);
  pthread_attr_destroy(&attributes);
#endif
  return (uintptr_t)address - (uintptr_t)bottom < size;
}

/* Before 3.12 the process has one current state, whatever the thread. It is this thread's if it is
 * the known one or, of a sub-interpreter, if its innermost frame is on this stack. */
PyThreadState* cow_thread_state_held(const cow_python_api* py) {
  PyThreadState* current = py->_PyThreadState_UncheckedGet();
  if (!current || current == py->PyGILState_GetThisThreadState()) return current;
  if (py->PyInterpreterState_Head() == py->PyInterpreterState_Main()) return NULL;
  return is_on_this_stack(current->cframe) ? current : NULL;
}

#endif

/* Whether this thread is inside a sub-interpreter, as far as can be known. */
static bool is_in_sub_interpreter(void) {
  PyThreadState* held = cow_thread_state_held(py);
#if PY_VERSION_HEX < 0x030C0000
  /* Without a frame, only the thread that made it shows where it runs. */
  PyThreadState* current = py->_PyThreadState_UncheckedGet();
  if (!held && current && current->thread_id == py->PyThread_get_thread_ident()) held = current;
#endif
  return held && py->PyThreadState_GetInterpreter(held) != py->PyInterpreterState_Main();
}

/* ------------------------------------------------------------------- Finding */

const char* cow_python_look_up(void* library, cow_python_api* py) {
#define LOOK_UP(name)                         \
  *(void**)&py->name = dlsym(library, #name); \
  if (!py->name) return #name;
  COW_PYTHON_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  return NULL;
}

bool cow_python_fits(const cow_python_api* py) {
  size_t length = strlen(COW_PYTHON_VERSION);
  const char* version = py->Py_GetVersion();
  return strncmp(version, COW_PYTHON_VERSION, length) == 0 && version[length] == '.';
}

static cow_mlx_status look_up(void* library) {
  const char* missing = cow_python_look_up(library, &cow_python_here.api);
  if (missing) {
    return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch, NULL,
                     "this Python has no %s; libcowmlx was built for "
                     "Python " COW_PYTHON_VERSION,
                     missing);
  }
  if (!cow_python_fits(py)) {
    return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch, NULL,
                     "the process runs Python %.16s, but libcowmlx was built for "
                     "Python " COW_PYTHON_VERSION,
                     py->Py_GetVersion());
  }
  return COW_MLX_OK;
}

/* Whether the Python that runs is the one that a host asks for. */
static cow_mlx_status check_home(const char* home) {
  if (!home || (!cow_python_here.joined && cow_locate_same(home, cow_python_here.place.home)))
    return COW_MLX_OK;
  return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_python_mismatch,
                   DETAILS(TEXT_DETAIL("argument", "python_home"), TEXT_DETAIL("file", home)),
                   "python_home is %.512s, but this process already runs the Python "
                   "%s%.512s; pass NULL to use it",
                   home, cow_python_here.joined ? "of its host" : "in ",
                   cow_python_here.place.home);
}

static cow_mlx_status find(const char* home) {
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
      if ((status = cow_locate_python(home, &cow_python_here.place)) != COW_MLX_OK) return status;
      strcpy(path, cow_python_here.place.library);
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
  if ((status = look_up(library)) != COW_MLX_OK) return status;
  cow_python_here.joined = py->Py_IsInitialized();
  if (cow_python_here.joined) return check_home(home);
  return cow_python_here.place.home[0] ? COW_MLX_OK
                                       : cow_locate_python(home, &cow_python_here.place);
}

/* Whether this library has tried to boot a Python, which happens once in a process. */
static bool is_booted;

/* A Python that a start found, but did not boot, may run by now: the host's. */
cow_mlx_status cow_interpreter_find(const char* home) {
  if (is_booted || cow_python_here.joined) return check_home(home);
  memset(&cow_python_here, 0, sizeof cow_python_here);
  cow_mlx_status status = find(home);
  /* Forget a failed try: the host may run another Python before the next. */
  if (status != COW_MLX_OK) memset(&cow_python_here, 0, sizeof cow_python_here);
  return status;
}

/* -------------------------------------------------------- Booting and joining */

static cow_mlx_status boot_error(PyStatus status) {
  return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                   DETAILS(TEXT_DETAIL("file", cow_python_here.place.home)),
                   "Python in %.512s does not start: %.512s", cow_python_here.place.home,
                   status.err_msg ? status.err_msg : "no reason given");
}

cow_mlx_status cow_interpreter_boot(void) {
  is_booted = true;
  PyPreConfig preconfig;
  py->PyPreConfig_InitIsolatedConfig(&preconfig);
  preconfig.utf8_mode = 1; /* paths with "ö" work under LC_ALL=C */
  PyStatus status = py->Py_PreInitialize(&preconfig);
  if (py->PyStatus_Exception(status)) return boot_error(status);

  PyConfig config;
  py->PyConfig_InitIsolatedConfig(&config);
  config.install_signal_handlers = 0;
  config.write_bytecode = 0;
  /* A virtual environment is found through its executable, anything else by its
   * prefix. Without an executable, Python would look for a virtual environment
   * above the working folder. */
  if (!cow_python_here.place.executable[0]) {
    snprintf(cow_python_here.place.executable, sizeof cow_python_here.place.executable,
             "%.4000s/bin/python" COW_PYTHON_VERSION, cow_python_here.place.home);
    status = py->PyConfig_SetBytesString(&config, &config.home, cow_python_here.place.home);
  }
  if (!py->PyStatus_Exception(status)) {
    status =
        py->PyConfig_SetBytesString(&config, &config.executable, cow_python_here.place.executable);
  }
  if (!py->PyStatus_Exception(status)) status = py->Py_InitializeFromConfig(&config);
  py->PyConfig_Clear(&config);
  if (py->PyStatus_Exception(status)) return boot_error(status);
  py->PyGC_Disable(); /* until everything is imported */

  /* Importing _signal installs Python's SIGINT handler all the same: let it
   * happen now, and put the host's back. */
  struct sigaction action;
  sigaction(SIGINT, NULL, &action);
  PyObject* module = py->PyImport_ImportModule("_signal");
  sigaction(SIGINT, &action, NULL);
  if (!module) return cow_interpreter_failed(COW_MLX_EINTERNAL, "cannot import _signal");
  py->Py_DecRef(module);
  return COW_MLX_OK;
}

static cow_mlx_status refuse_sub_interpreter(void) {
  return cow_error(COW_MLX_EUNSUPPORTED, "runtime_start", COW_REASON_sub_interpreter, NULL,
                   "called in a sub-interpreter of Python; start the runtime in the "
                   "main interpreter");
}

/* A joining thread other than Python's first must not be the one that imports
 * `threading`, or that thread counts as the main one and the host hangs at exit. */
cow_mlx_status cow_interpreter_prepare_join(void) {
  if (is_in_sub_interpreter()) return refuse_sub_interpreter();
  bool held = cow_thread_state_held(py) != NULL;
  PyGILState_STATE state = held ? PyGILState_LOCKED : py->PyGILState_Ensure();
  cow_mlx_status status = COW_MLX_OK;
  if (py->PyInterpreterState_Get() != py->PyInterpreterState_Main()) {
    status = refuse_sub_interpreter(); /* the thread belongs to it */
  } else {
    PyObject* module = py->PyImport_ImportModule("threading");
    if (!module) status = cow_interpreter_failed(COW_MLX_EINTERNAL, "cannot import threading");
    py->Py_DecRef(module);
  }
  if (!held) py->PyGILState_Release(state);
  return status;
}

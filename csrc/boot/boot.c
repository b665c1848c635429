/* Before every other header: Python.h settles which of its functions the system declares
 * (_GNU_SOURCE, for RTLD_DEFAULT), and a system newer than that Python says it otherwise. */
/* clang-format off */
#include "boot/python_api.h"
/* clang-format on */

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "boot/interpreter.h"
#include "boot/thread_state.h"

static const cow_python_api* const py = &cow_python_here.api;

static cow_mlx_status boot_error(PyStatus status) {
  return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                   DETAILS(TEXT_DETAIL("file", cow_python_here.place.home)),
                   "Python in %.512s does not start: %.512s", cow_python_here.place.home,
                   status.err_msg ? status.err_msg : "no reason given");
}

cow_mlx_status cow_interpreter_boot(void) {
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
  if (cow_thread_state_is_sub(py)) return refuse_sub_interpreter();
  bool held = cow_thread_state_held(py) != NULL;
  PyGILState_STATE state = held ? PyGILState_LOCKED : py->PyGILState_Ensure();
  cow_mlx_status status = COW_MLX_OK;
  if (py->PyInterpreterState_Get() != py->PyInterpreterState_Main()) {
    status = refuse_sub_interpreter(); /* the thread is one of its */
  } else {
    PyObject* module = py->PyImport_ImportModule("threading");
    if (!module) status = cow_interpreter_failed(COW_MLX_EINTERNAL, "cannot import threading");
    py->Py_DecRef(module);
  }
  if (!held) py->PyGILState_Release(state);
  return status;
}

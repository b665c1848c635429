/* Before every other header: Python.h settles which of its functions the system declares
 * (_GNU_SOURCE, for RTLD_DEFAULT), and a system newer than that Python says it otherwise. */
/* clang-format off */
#include "boot/python_api.h"
/* clang-format on */

#include <stdio.h>

#include "arrays/arrays.h"
#include "base/error.h"
#include "base/handles.h"
#include "boot/interpreter.h"
#include "boot/resources.h"
#include "queue/outlets.h"
#include "queue/queue.h"

static const cow_python_api* const py = &cow_python_here.api;

/* The result of a call of module.name, or NULL; takes the arguments' reference. */
static PyObject* call(PyObject* object, const char* name, PyObject* arguments) {
  PyObject* function = object && arguments ? py->PyObject_GetAttrString(object, name) : NULL;
  PyObject* result = function ? py->PyObject_CallObject(function, arguments) : NULL;
  py->Py_DecRef(function);
  py->Py_DecRef(arguments);
  return result;
}

/* Import the cowmlx package in a folder; with the others on sys.path, a package of
 * another build would come in that comes first there. */
static bool import_package(PyObject* folder) {
  PyObject* modules = py->PySys_GetObject("modules"); /* borrowed */
  if (modules && py->PyDict_GetItemString(modules, "cowmlx")) return true;
  PyObject* machinery = py->PyImport_ImportModule("importlib.machinery");
  PyObject* util = py->PyImport_ImportModule("importlib.util");
  PyObject* finder = machinery ? py->PyObject_GetAttrString(machinery, "PathFinder") : NULL;
  PyObject* spec = call(finder, "find_spec", py->Py_BuildValue("(s[O])", "cowmlx", folder));
  PyObject* module = spec ? call(util, "module_from_spec", py->Py_BuildValue("(O)", spec)) : NULL;
  PyObject* loader = module ? py->PyObject_GetAttrString(spec, "loader") : NULL;
  PyObject* done = loader ? call(loader, "exec_module", py->Py_BuildValue("(O)", module)) : NULL;
  bool imported = done && py->PyDict_SetItemString(modules, "cowmlx", module) == 0;
  PyObject* owned[] = {machinery, util, finder, spec, module, loader, done};
  for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) py->Py_DecRef(owned[i]);
  return imported;
}

/* Import the cowmlx package that belongs to this library. Its folder comes to sys.path
 * too: that of a bundle has the other packages. */
static cow_mlx_status import_own_package(void) {
  char folder[COW_PATH_SIZE];
  if (cow_locate_package(cow_python_here.joined ? "" : cow_python_here.place.home, folder) !=
      COW_MLX_OK)
    return COW_MLX_OK;
  PyObject* path = py->PySys_GetObject("path"); /* borrowed */
  PyObject* entry = py->PyUnicode_DecodeFSDefault(folder);
  int present = path && entry ? py->PySequence_Contains(path, entry) : -1;
  bool failed = present < 0 || (present == 0 && py->PyList_Append(path, entry) < 0);
  failed = failed || !import_package(entry);
  py->Py_DecRef(entry);
  return failed ? cow_interpreter_failed(COW_MLX_ENOENT, "cannot import cowmlx") : COW_MLX_OK;
}

static const cow_host host = {
    .finish = cow_queue_finish,
    .post = cow_queue_post,
    .can_post = cow_queue_can_post,
    .refused = cow_queue_refused,
    .cancel_epoch = cow_handle_cancels,
    .open_handle = cow_handle_open,
    .close_handle = cow_outlets_close,
    .can_start_threads = cow_resources_threads,
    .can_map = cow_resources_memory,
    .give_back = cow_resources_give_back,
    .outlets_begin = cow_outlets_begin,
    .outlets_clear = cow_outlets_clear,
    .outlets_watch = cow_outlets_watch,
    .outlets_offer = cow_outlets_offer,
    .outlets_taken = cow_outlets_taken,
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
static cow_mlx_status load_bridge(const cow_bridge** bridge) {
  PyObject* module = py->PyImport_ImportModule("cowmlx._bridge");
  if (!module) {
    char what[COW_PATH_SIZE + 256];
    snprintf(
        what, sizeof what,
        "the Python in %.512s cannot import cowmlx._bridge (leave the library in the package's "
        "lib folder, where make or make install has put it)",
        cow_python_here.joined ? "this process" : cow_python_here.place.home);
    return cow_interpreter_failed(COW_MLX_ENOENT, what);
  }
  PyObject* capsule = py->PyObject_GetAttrString(module, "table");
  const cow_bridge* table = capsule ? py->PyCapsule_GetPointer(capsule, COW_BRIDGE_CAPSULE) : NULL;
  py->Py_DecRef(capsule); /* the module keeps it */
  py->Py_DecRef(module);  /* sys.modules keeps it */
  if (!table) return cow_interpreter_failed(COW_MLX_EINTERNAL, "cowmlx._bridge has no table");
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
  *bridge = table;
  return COW_MLX_OK;
}

/* A joined interpreter finalises before C's exit handlers run: leave it in its
 * own. The capsule is the hook's argument and holds nothing. */
static cow_mlx_status register_python_exit(void (*at_exit)(void)) {
  PyObject* module = py->PyImport_ImportModule("cowmlx._bridge");
  PyObject* capsule = py->PyCapsule_New((void*)(uintptr_t)at_exit, "cowmlx.at_exit", NULL);
  PyObject* function = module ? py->PyObject_GetAttrString(module, "register_exit") : NULL;
  PyObject* result = function && capsule ? py->PyObject_CallFunction(function, "O", capsule) : NULL;
  bool failed = !result;
  py->Py_DecRef(result);
  py->Py_DecRef(function);
  py->Py_DecRef(capsule);
  py->Py_DecRef(module);
  return failed ? cow_interpreter_failed(COW_MLX_EINTERNAL, "cannot register the exit hook")
                : COW_MLX_OK;
}

cow_mlx_status cow_interpreter_attach(const cow_bridge** bridge, void (*at_exit)(void)) {
  cow_mlx_status status;
  if ((status = import_own_package()) != COW_MLX_OK) return status;
  if ((status = load_bridge(bridge)) != COW_MLX_OK) return status;
  return cow_python_here.joined ? register_python_exit(at_exit) : COW_MLX_OK;
}

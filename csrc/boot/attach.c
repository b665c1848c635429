#include "boot/interpreter.h" /* first: see python_api.h */

#include <stdio.h>

#include "arrays/arrays.h"
#include "base/error.h"
#include "base/handles.h"
#include "boot/resources.h"
#include "queue/logits.h"
#include "queue/outlets.h"
#include "queue/queue.h"
#include "queue/semaphores.h"

static const cow_python_api* const py = &cow_python_here.api;

/* Run in `folder`, which joins sys.path for the other packages of a bundle. The package itself is
 * imported from the folder alone: another build's may come first on sys.path. */
static const char import_code[] =
    "import sys\n"
    "from importlib.machinery import PathFinder\n"
    "from importlib.util import module_from_spec\n"
    "if folder not in sys.path:\n"
    "    sys.path.append(folder)\n"
    "if 'cowmlx' not in sys.modules:\n"
    "    spec = PathFinder.find_spec('cowmlx', [folder])\n"
    "    module = module_from_spec(spec)\n"
    "    spec.loader.exec_module(module)\n"
    "    sys.modules['cowmlx'] = module\n";

/* Import the cowmlx package that belongs to this library; without one, Python finds it. */
static cow_mlx_status import_own_package(void) {
  char folder[COW_PATH_SIZE];
  const char* home = cow_python_here.joined ? "" : cow_python_here.place.home;
  if (!cow_locate_package(home, folder)) return COW_MLX_OK;
  PyObject* builtins = py->PyImport_ImportModule("builtins");
  PyObject* exec = builtins ? py->PyObject_GetAttrString(builtins, "exec") : NULL;
  PyObject* path = exec ? py->PyUnicode_DecodeFSDefault(folder) : NULL;
  PyObject* result =
      path ? py->PyObject_CallFunction(exec, "s{sO}", import_code, "folder", path) : NULL;
  bool failed = !result;
  PyObject* owned[] = {builtins, exec, path, result};
  for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) py->Py_DecRef(owned[i]);
  return failed ? cow_interpreter_failed(COW_MLX_ENOENT, "cannot import cowmlx") : COW_MLX_OK;
}

static const cow_host host = {
#define FUNCTION(type, member, name, parameters) .member = name,
    COW_HOST_FUNCTIONS(FUNCTION)
#undef FUNCTION
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

/* A joined interpreter is finalized before C's exit functions run: register with its own. The
 * capsule holds only the hook. */
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
  TRY(import_own_package());
  TRY(load_bridge(bridge));
  return cow_python_here.joined ? register_python_exit(at_exit) : COW_MLX_OK;
}

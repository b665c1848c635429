/* Before every other header: Python.h settles which of its functions the system declares
 * (_GNU_SOURCE, for RTLD_DEFAULT), and a system newer than that Python says it otherwise. */
/* clang-format off */
#include "boot/python_api.h"
/* clang-format on */

#include "boot/interpreter.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"

cow_interpreter cow_python_here;

static const cow_python_api* const py = &cow_python_here.api;

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

cow_mlx_status cow_interpreter_find(const char* home) {
  if (py->Py_DecRef) return check_home(home);
  cow_mlx_status status = find(home);
  /* A failed try leaves no trace: the host may run a Python of its own before the next. */
  if (status != COW_MLX_OK) memset(&cow_python_here, 0, sizeof cow_python_here);
  return status;
}

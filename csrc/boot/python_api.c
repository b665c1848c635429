#include "boot/python_api.h"

#include <dlfcn.h>
#include <string.h>

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

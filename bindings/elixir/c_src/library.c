#define _GNU_SOURCE /* dladdr */

#include "library.h"

#include <dlfcn.h>
#include <erl_nif.h>
#include <stdatomic.h>
#include <stdio.h>

cow_library api;

static atomic_bool opened;
static ErlNifMutex* opening;

void cow_library_pin(void) {
  Dl_info own;
  if (dladdr((void*)&api, &own)) dlopen(own.dli_fname, RTLD_NOW | RTLD_NODELETE);
  if (!opening) opening = enif_mutex_create("cow_mlx_opening");
}

bool cow_library_is_open(void) { return atomic_load(&opened); }

/* Fill in the table; the name of a symbol that is missing, or NULL. */
static const char* fill(void* library) {
  cow_library found;
  /* POSIX lets a pointer of dlsym() stand for a function. */
#define COW_NIF_SYMBOL(name)                                 \
  *(void**)(&found.name) = dlsym(library, "cow_mlx_" #name); \
  if (!found.name) return "cow_mlx_" #name;
  COW_NIF_FUNCTIONS(COW_NIF_SYMBOL)
#undef COW_NIF_SYMBOL
  api = found;
  return NULL;
}

static bool open_now(const char* path, char* problem, size_t room) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    snprintf(problem, room, "%s", reason ? reason : "the library cannot be opened");
    return false;
  }
  const char* missing = fill(library);
  if (missing) {
    snprintf(problem, room, "%s has no %s: this package needs a newer library", path, missing);
  } else if (api.abi_version() != COW_MLX_ABI_VERSION) {
    snprintf(problem, room, "%s has ABI %u, this package needs %u", path, api.abi_version(),
             (unsigned)COW_MLX_ABI_VERSION);
  } else {
    return true;
  }
  dlclose(library);
  return false;
}

bool cow_library_open(const char* path, char* problem, size_t room) {
  enif_mutex_lock(opening);
  bool is_open = atomic_load(&opened) || open_now(path, problem, room);
  atomic_store(&opened, is_open);
  enif_mutex_unlock(opening);
  return is_open;
}

/* Finds the library, once per process, and fills the table of its calls. It is never unloaded. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT, dladdr */
#endif
#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#define SONAME "libcowmlx.1.dylib"
#else
#define SONAME "libcowmlx.so.1"
#endif

/* Where a program's own copy lies, from the program's folder. */
static const char* const places[] = {
    "",                         /* beside it */
    "../lib/",                  /* bin and lib */
    "cowmlx/lib/",              /* a bundle beside it */
    "../Resources/cowmlx/lib/", /* a bundle in an application of macOS */
    /* resources of a package that bundle --swift has made */
    "CowMLX_CowMLXBundle.resources/lib/",
    "CowMLX_CowMLXBundle.bundle/lib/",
    "CowMLX_CowMLXBundle.bundle/Contents/Resources/lib/",
    "../Resources/CowMLX_CowMLXBundle.bundle/Contents/Resources/lib/",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cow_mlx_calls found;
static _Atomic(const cow_mlx_calls*) current = &cowmlx_unloaded;
static char* named; /* by cow_mlx_use_library() */

static _Thread_local struct {
  char message[PATH_MAX + 512];
  const char* reason;
  char file[PATH_MAX];
} failure;

static cow_mlx_status fail(cow_mlx_status status, const char* reason, const char* file,
                           const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure.message, sizeof failure.message, format, arguments);
  va_end(arguments);
  failure.reason = reason;
  snprintf(failure.file, sizeof failure.file, "%s", file ? file : "");
  return status;
}

/* Find all calls in an open library, or in all of the process. */
static cow_mlx_status resolve(void* library, const char* file) {
  uint32_t (*abi_version)(void);
  *(void**)&abi_version = dlsym(library, "cow_mlx_abi_version");
  if (!abi_version)
    return fail(COW_MLX_EUNSUPPORTED, "library_mismatch", file,
                "Library: %s is not libcowmlx: it has no cow_mlx_abi_version", file);
  if (abi_version() != COW_MLX_ABI_VERSION)
    return fail(COW_MLX_EUNSUPPORTED, "library_mismatch", file,
                "Library: %s has ABI version %u, must have %d", file, abi_version(),
                COW_MLX_ABI_VERSION);
  for (const struct cowmlx_symbol* each = cowmlx_symbols; each->name; each++) {
    void* address = dlsym(library, each->name);
    if (!address)
      return fail(COW_MLX_EUNSUPPORTED, "library_mismatch", file,
                  "Library: %s is older than this package: it has no %s", file, each->name);
    memcpy((char*)&found + each->offset, &address, sizeof address);
  }
  atomic_store_explicit(&current, &found, memory_order_release);
  return COW_MLX_OK;
}

static cow_mlx_status open_file(const char* file) {
  bool is_path = strchr(file, '/') != NULL;
  if (is_path && access(file, F_OK) != 0)
    return fail(COW_MLX_ENOENT, "file_not_found", file,
                "Library: there is no file %s; it must be %s of a bundle or an installation", file,
                SONAME);
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library) return resolve(library, file);
  const char* why = dlerror();
  if (is_path)
    return fail(COW_MLX_EFORMAT, "malformed_file", file, "Library: %s cannot be opened: %s", file,
                why ? why : "?");
  return fail(COW_MLX_ENOENT, "file_not_found", file,
              "Library: there is no %s near the program or where the system looks (%s); name "
              "its file by Library.use(path) or in COWMLX_LIBRARY",
              file, why ? why : "?");
}

static cow_mlx_status open_in(const char* folder, const char* place) {
  char file[PATH_MAX];
  int length = snprintf(file, sizeof file, "%s%s%s", folder, place, SONAME);
  if (length < 0 || (size_t)length >= sizeof file)
    return fail(COW_MLX_ENOENT, "file_not_found", folder, "Library: the path of %s is too long",
                folder);
  return open_file(file);
}

/* The program's folder with a / at its end, or false. */
static bool program_folder(char* folder, size_t capacity) {
#ifdef __APPLE__
  uint32_t size = (uint32_t)capacity;
  if (_NSGetExecutablePath(folder, &size) != 0) return false;
#else
  ssize_t length = readlink("/proc/self/exe", folder, capacity - 1);
  if (length <= 0) return false;
  folder[length] = 0;
#endif
  char* slash = strrchr(folder, '/');
  if (!slash) return false;
  slash[1] = 0;
  return true;
}

static cow_mlx_status find(void) {
  if (named) return open_file(named);
  const char* set = getenv("COWMLX_LIBRARY");
  if (set && *set) return open_file(set);
  const char* set_folder = getenv("COWMLX_LIB_DIR");
  if (set_folder && *set_folder) return open_in(set_folder, "/");
  if (dlsym(RTLD_DEFAULT, "cow_mlx_abi_version")) return resolve(RTLD_DEFAULT, "the process");
  char folder[PATH_MAX];
  if (program_folder(folder, sizeof folder)) {
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
      cow_mlx_status status = open_in(folder, places[i]);
      if (status != COW_MLX_ENOENT) return status;
    }
  }
  return open_file(SONAME);
}

const cow_mlx_calls* cow_mlx_loaded(void) {
  return atomic_load_explicit(&current, memory_order_acquire);
}

static bool is_loaded(void) { return cow_mlx_loaded() == &found; }

cow_mlx_status cowmlx_load(void) {
  if (is_loaded()) return COW_MLX_OK;
  pthread_mutex_lock(&lock);
  cow_mlx_status status = is_loaded() ? COW_MLX_OK : find();
  pthread_mutex_unlock(&lock);
  return status;
}

cow_mlx_status cow_mlx_use_library(const char* path) {
  cow_mlx_status status = COW_MLX_OK;
  pthread_mutex_lock(&lock);
  if (is_loaded()) {
    status = COW_MLX_ESTATE;
  } else {
    char* copy = path ? strdup(path) : NULL;
    if (path && !copy) {
      status = COW_MLX_ENOMEM;
    } else {
      free(named);
      named = copy;
    }
  }
  pthread_mutex_unlock(&lock);
  return status;
}

const char* cow_mlx_library_path(void) {
  Dl_info info;
  if (cowmlx_load() != COW_MLX_OK) return "";
  if (!dladdr((void*)found.version, &info) || !info.dli_fname) return "";
  return info.dli_fname;
}

const char* cowmlx_load_message(void) { return failure.message; }

/* Add a text to JSON that may be longer than its buffer. */
static void add(char* buffer, size_t capacity, size_t* length, const char* text, bool quoted) {
  for (const char* each = text; *each; each++) {
    char escaped[8] = {*each, 0};
    if (quoted && (*each == '"' || *each == '\\' || (unsigned char)*each < 0x20))
      snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)(unsigned char)*each);
    for (const char* byte = escaped; *byte; byte++, (*length)++)
      if (*length < capacity) buffer[*length] = *byte;
  }
}

cow_mlx_status cowmlx_load_details(char* buffer, size_t capacity, size_t* length) {
  if (!length) return COW_MLX_EINVAL;
  *length = 0;
  add(buffer, capacity, length, "{", false);
  if (failure.reason) {
    add(buffer, capacity, length, "\"operation\": \"Library\", \"reason\": \"", false);
    add(buffer, capacity, length, failure.reason, false);
    add(buffer, capacity, length, "\", \"details\": {\"file\": \"", false);
    add(buffer, capacity, length, failure.file, true);
    add(buffer, capacity, length, "\"}", false);
  }
  add(buffer, capacity, length, "}", false);
  if (*length > capacity) return COW_MLX_EBUFFER;
  if (*length < capacity) buffer[*length] = 0;
  return COW_MLX_OK;
}

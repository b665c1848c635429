#ifndef __APPLE__
#define _GNU_SOURCE /* dladdr, dl_iterate_phdr */
#endif

#include "boot/locate.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
#else
#include <link.h>
#endif

/* setup.py defines these: the version of the building Python, and the prefix of its
 * environment, seen from the source tree; "" for a library that is installed. */
#if !defined(COWMLX_BUILD_PREFIX) || !defined(COWMLX_PYTHON_MINOR)
#error "build libcowmlx with setup.py"
#endif

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define MINOR TEXT(COWMLX_PYTHON_MINOR)

#ifdef __APPLE__
static const char* const library_names[] = {"libpython3." MINOR ".dylib", "Python"};
#else
static const char* const library_names[] = {"libpython3." MINOR ".so.1.0",
                                            "libpython3." MINOR ".so"};
#endif

/* Where a libpython lies, seen from a folder of its prefix: that of the python
 * executable, or lib. */
static const char* const library_folders[] = {
    "/../lib",
    "/../lib64",
#ifdef COWMLX_MULTIARCH
    ("/../lib/" COWMLX_MULTIARCH),
#endif
    "/..", /* framework builds of macOS */
#ifdef __APPLE__
    /* Homebrew: python lies in a bin beside Frameworks. */
    ("/../Frameworks/Python.framework/Versions/3." MINOR),
#endif
};

#define LENGTH_OF(array) (sizeof(array) / sizeof(array)[0])

/* Join path parts; false if the result is too long. */
static bool join(char out[COW_PATH_SIZE], const char* a, const char* b, const char* c) {
  const char* parts[] = {a, b, c};
  size_t used = 0;
  for (size_t i = 0; i < 3; i++) {
    size_t length = strlen(parts[i]);
    if (length >= COW_PATH_SIZE - used) return false;
    memmove(out + used, parts[i], length);
    used += length;
  }
  out[used] = '\0';
  return true;
}

static bool exists(const char* path) { return access(path, R_OK) == 0; }

/* The folder of `path` with `levels` last components taken off, in place. */
static bool ascend(char* path, int levels) {
  while (levels-- > 0) {
    char* slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = '\0';
  }
  return true;
}

/* The folder of this library, links resolved. */
static bool library_folder(char out[COW_PATH_SIZE]) {
  Dl_info info;
  char* resolved;
  if (!dladdr((const void*)(uintptr_t)cow_locate_python, &info) || !info.dli_fname ||
      !(resolved = realpath(info.dli_fname, NULL))) {
    return false;
  }
  bool fits = join(out, resolved, "", "");
  free(resolved);
  return fits && ascend(out, 1);
}

/* The value of "home" in a pyvenv.cfg: the folder of the base executable. */
static bool base_executables(const char* config, char out[COW_PATH_SIZE]) {
  FILE* file = fopen(config, "r");
  if (!file) return false;
  char line[COW_PATH_SIZE];
  bool found = false;
  while (!found && fgets(line, sizeof line, file)) {
    char* value = strchr(line, '=');
    if (!value || strncmp(line, "home", 4) != 0) continue;
    value += 1 + strspn(value + 1, " \t");
    value[strcspn(value, "\r\n")] = '\0';
    found = join(out, value, "", "");
  }
  fclose(file);
  return found;
}

static bool find_library(const char* beside, char out[COW_PATH_SIZE]) {
  for (size_t folder = 0; folder < LENGTH_OF(library_folders); folder++) {
    for (size_t name = 0; name < LENGTH_OF(library_names); name++) {
      char path[COW_PATH_SIZE];
      if (!join(path, beside, library_folders[folder], "/")) return false;
      if (!join(out, path, library_names[name], "")) return false;
      char* resolved = realpath(out, NULL);
      if (!resolved) continue;
      bool fits = join(out, resolved, "", "");
      free(resolved);
      return fits;
    }
  }
  return false;
}

/* `path` without slashes at its end, and independent of the working folder. */
static bool normalise(const char* path, char out[COW_PATH_SIZE]) {
  char* resolved = path[0] == '/' ? NULL : realpath(path, NULL);
  bool fits = join(out, resolved ? resolved : path, "", "");
  free(resolved);
  if (!fits) return false;
  for (size_t end = strlen(out); end > 1 && out[end - 1] == '/';) out[--end] = '\0';
  return true;
}

bool cow_locate_same(const char* home, const char* other) {
  char* first = realpath(home, NULL);
  char* second = realpath(other, NULL);
  bool same = first && second && strcmp(first, second) == 0;
  free(first);
  free(second);
  return same;
}

/* Examine one prefix. NULL if it can be booted, else what it lacks. */
static const char* examine(const char* home, cow_python* out) {
  char path[COW_PATH_SIZE];
  char beside[COW_PATH_SIZE];
  if (!normalise(home, out->home)) return "the path is too long";
  home = out->home;
  if (access(home, F_OK) != 0) return "there is no such folder";
  if (!join(path, home, "/pyvenv.cfg", "")) return "the path is too long";
  out->executable[0] = '\0';
  if (exists(path)) {
    if (!base_executables(path, beside)) return "its pyvenv.cfg names no home";
    if (!join(out->executable, home, "/bin/python3." MINOR, "") || !exists(out->executable)) {
      return "it has no bin/python3." MINOR;
    }
  } else {
    if (!join(beside, home, "/lib", "")) return "the path is too long"; /* a bundle has no bin */
    /* A bundle has bytecode alone. */
    if (!(join(path, home, "/lib/python3." MINOR "/os.py", "") && exists(path)) &&
        !(join(path, home, "/lib/python3." MINOR "/os.pyc", "") && exists(path))) {
      return "it has no lib/python3." MINOR;
    }
  }
  if (!find_library(beside, out->library)) return "it has no shared libpython3." MINOR;
  return NULL;
}

/* The virtual environment that holds the library's folder: the nearest one above it. */
static bool enclosing_environment(const char* folder, char out[COW_PATH_SIZE]) {
  char config[COW_PATH_SIZE];
  if (!join(out, folder, "", "")) return false;
  while (ascend(out, 1) && out[0]) {
    if (join(config, out, "/pyvenv.cfg", "") && exists(config)) return true;
  }
  out[0] = '\0';
  return false;
}

/* The installation into whose packages pip has put the library. Debian keeps those
 * of /usr in /usr/local. */
static bool enclosing_installation(const char* folder, char out[COW_PATH_SIZE]) {
  char modules[COW_PATH_SIZE];
  if (!join(out, folder, "", "") || !ascend(out, 2)) return false;
  const char* packages = strrchr(out, '/');
  bool installed = packages && (strcmp(packages, "/site-packages") == 0 ||
                                strcmp(packages, "/dist-packages") == 0);
  while (installed && ascend(out, 1) && out[0]) {
    if (join(modules, out, "/lib/python3." MINOR "/os.py", "") && exists(modules)) return true;
  }
  out[0] = '\0';
  return false;
}

/* The environment that the library was built with, if it lies in its source tree.
 * An installed one never looks there: it would run whatever the tree has become. */
static bool building_environment(const char* folder, char out[COW_PATH_SIZE]) {
  static const char* const sources[] = {"/cowmlx/bridge/bridge.pyx", "/csrc/boot/locate.c"};
  const char* prefix = COWMLX_BUILD_PREFIX;
  char tree[COW_PATH_SIZE];
  bool found = prefix[0] && join(tree, folder, "", "") && ascend(tree, 2);
  for (size_t i = 0; found && i < LENGTH_OF(sources); i++) {
    found = join(out, tree, sources[i], "") && exists(out);
  }
  if (found) {
    found = prefix[0] == '/' ? join(out, prefix, "", "") : join(out, tree, "/", prefix);
  }
  if (!found) out[0] = '\0';
  return found;
}

/* The Python of a bundle: in `python` beside the library's folder or in it. */
static bool bundled(const char* folder, char out[COW_PATH_SIZE]) {
  char modules[COW_PATH_SIZE];
  return join(out, folder, "/python", "") && join(modules, out, "/lib", "") && exists(modules);
}

/* Find the Python of the place where the library lies. */
static cow_mlx_status locate_around(cow_python* out) {
  char folder[COW_PATH_SIZE];
  char above[COW_PATH_SIZE];
  char home[COW_PATH_SIZE] = "";
  /* The first that is there decides: a broken installation never runs another's Python. */
  bool found = library_folder(folder);
  if (found) {
    found = bundled(folder, home) ||
            (join(above, folder, "", "") && ascend(above, 1) && bundled(above, home)) ||
            building_environment(folder, home) || enclosing_environment(folder, home) ||
            enclosing_installation(folder, home);
  } else {
    folder[0] = '\0';
  }
  if (!found) {
    return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                     DETAILS(TEXT_DETAIL("file", folder)),
                     "no Python 3." MINOR
                     " found around the library in %.512s; leave it in its package or bundle, or "
                     "set COWMLX_PYTHON_HOME to an installation or virtual environment with a "
                     "shared libpython, mlx and mlx-lm",
                     folder);
  }
  const char* lack = examine(home, out);
  if (!lack) return COW_MLX_OK;
  return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                   DETAILS(TEXT_DETAIL("file", home)),
                   "no Python 3." MINOR
                   " found: the library in %.512s is of %.512s, but %s; set COWMLX_PYTHON_HOME to "
                   "an installation or virtual environment with a shared libpython, mlx and mlx-lm",
                   folder, home, lack);
}

cow_mlx_status cow_locate_python(const char* home, cow_python* out) {
  const char* source = "runtime_params.python_home";
  if (!home) {
    home = getenv("COWMLX_PYTHON_HOME");
    source = "COWMLX_PYTHON_HOME";
    if (home && !home[0]) home = NULL; /* as if it were not set */
  }
  if (!home) return locate_around(out);
  const char* lack = examine(home, out);
  if (!lack) return COW_MLX_OK;
  return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                   DETAILS(TEXT_DETAIL("argument", source), TEXT_DETAIL("file", home)),
                   "%s is %.512s, but %s; name a Python 3." MINOR
                   " installation or virtual environment with a shared libpython",
                   source, home, lack);
}

cow_mlx_status cow_locate_package(const char* home, char out[COW_PATH_SIZE]) {
  char path[COW_PATH_SIZE];
  /* The library lies in cowmlx/lib/. */
  if (library_folder(out) && ascend(out, 1) && join(path, out, "/__init__.py", "") &&
      exists(path) && ascend(out, 1)) {
    return COW_MLX_OK;
  }
  /* A bundle. Most Pythons look there by themselves; Debian's has another name for it. */
  if (home[0] && join(out, home, "/lib/python3." MINOR "/site-packages", "") &&
      join(path, out, "/cowmlx/__init__.pyc", "") && exists(path)) {
    return COW_MLX_OK;
  }
  out[0] = '\0'; /* Python finds the package by itself */
  return COW_MLX_ENOENT;
}

/* The minor version in the name of a libpython 3, or -1. */
static int minor_of(const char* path) {
  int minor;
  const char* name = strrchr(path, '/');
  name = name ? name + 1 : path;
  if (sscanf(name, "libpython3.%d.", &minor) == 1) return minor;
#ifdef __APPLE__
  /* Not .../3.x/Resources/Python.app/Contents/MacOS/Python, the program. */
  const char* version = strstr(path, "/Python.framework/Versions/3.");
  int end = 0;
  if (version && sscanf(version, "/Python.framework/Versions/3.%d/Python%n", &minor, &end) == 1 &&
      end > 0 && version[end] == '\0') {
    return minor;
  }
#endif
  return -1;
}

#ifdef __APPLE__

bool cow_locate_mapped_python(char path[COW_PATH_SIZE], int* minor) {
  for (uint32_t i = 0; i < _dyld_image_count(); i++) {
    const char* name = _dyld_get_image_name(i);
    if (name && (*minor = minor_of(name)) >= 0) return join(path, name, "", "");
  }
  return false;
}

#else

typedef struct mapped {
  char* path;
  int minor;
} mapped;

static int examine_object(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  mapped* found = data;
  int minor = info->dlpi_name ? minor_of(info->dlpi_name) : -1;
  if (minor < 0 || !join(found->path, info->dlpi_name, "", "")) return 0;
  found->minor = minor;
  return 1;
}

bool cow_locate_mapped_python(char path[COW_PATH_SIZE], int* minor) {
  mapped found = {path, -1};
  if (!dl_iterate_phdr(examine_object, &found)) return false;
  *minor = found.minor;
  return true;
}

#endif

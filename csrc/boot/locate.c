#ifndef __APPLE__
#define _GNU_SOURCE /* dladdr, dl_iterate_phdr */
#endif

#include "boot/locate.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
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

/* setup.py defines these: the version of the building Python, and the prefix of its environment,
 * relative to the source tree; "" for an installed library. */
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

/* The folders of a libpython, relative to the folder of the python executable, or to lib. */
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

#define NO_PYTHON "no Python 3." MINOR " found"
#define REMEDY                                                                                 \
  "set COWMLX_PYTHON_HOME to an installation or virtual environment with a shared libpython, " \
  "mlx and mlx-lm"

/* Write a path, which must not overlap the arguments; false if it is too long. */
__attribute__((format(printf, 2, 3))) static bool write_path(char out[COW_PATH_SIZE],
                                                             const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(out, COW_PATH_SIZE, format, arguments);
  va_end(arguments);
  return length >= 0 && length < COW_PATH_SIZE;
}

/* Whether a folder has a readable file of this name, which begins with a slash. */
static bool has(const char* folder, const char* name) {
  char path[COW_PATH_SIZE];
  return write_path(path, "%s%s", folder, name) && access(path, R_OK) == 0;
}

/* Remove the last `levels` components of a path. */
static bool ascend(char* path, int levels) {
  while (levels-- > 0) {
    char* slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = '\0';
  }
  return true;
}

/* Write a path with its links resolved; false if there is no such file. */
static bool resolve(char out[COW_PATH_SIZE], const char* path) {
  char* resolved = realpath(path, NULL);
  bool fits = resolved && write_path(out, "%s", resolved);
  free(resolved);
  return fits;
}

/* The folder of this library, links resolved. */
static bool library_folder(char out[COW_PATH_SIZE]) {
  Dl_info info;
  return dladdr((const void*)(uintptr_t)cow_locate_python, &info) && info.dli_fname &&
         resolve(out, info.dli_fname) && ascend(out, 1);
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
    found = write_path(out, "%s", value);
  }
  fclose(file);
  return found;
}

static bool find_library(const char* beside, char out[COW_PATH_SIZE]) {
  for (size_t folder = 0; folder < LENGTH_OF(library_folders); folder++) {
    for (size_t name = 0; name < LENGTH_OF(library_names); name++) {
      char path[COW_PATH_SIZE];
      if (!write_path(path, "%s%s/%s", beside, library_folders[folder], library_names[name])) {
        return false;
      }
      if (resolve(out, path)) return true;
    }
  }
  return false;
}

/* `path` without slashes at its end, and independent of the working folder. */
static bool normalize(const char* path, char out[COW_PATH_SIZE]) {
  bool is_resolved = path[0] != '/' && resolve(out, path);
  if (!is_resolved && !write_path(out, "%s", path)) return false;
  for (size_t end = strlen(out); end > 1 && out[end - 1] == '/';) out[--end] = '\0';
  return true;
}

bool cow_locate_same(const char* home, const char* other) {
  char first[COW_PATH_SIZE];
  char second[COW_PATH_SIZE];
  return resolve(first, home) && resolve(second, other) && strcmp(first, second) == 0;
}

/* Examine one prefix. NULL if it can be booted, else what it lacks. */
static const char* examine(const char* home, cow_python* out) {
  char beside[COW_PATH_SIZE];
  char config[COW_PATH_SIZE];
  if (!normalize(home, out->home)) return "the path is too long";
  home = out->home;
  if (access(home, F_OK) != 0) return "there is no such folder";
  out->executable[0] = '\0';
  if (has(home, "/pyvenv.cfg")) {
    if (!write_path(config, "%s/pyvenv.cfg", home) || !base_executables(config, beside)) {
      return "its pyvenv.cfg names no home";
    }
    if (!has(home, "/bin/python3." MINOR) ||
        !write_path(out->executable, "%s/bin/python3." MINOR, home)) {
      return "it has no bin/python3." MINOR;
    }
  } else {
    if (!write_path(beside, "%s/lib", home))
      return "the path is too long"; /* a bundle has no bin */
    /* A bundle has bytecode alone. */
    if (!has(home, "/lib/python3." MINOR "/os.py") && !has(home, "/lib/python3." MINOR "/os.pyc")) {
      return "it has no lib/python3." MINOR;
    }
  }
  if (!find_library(beside, out->library)) return "it has no shared libpython3." MINOR;
  return NULL;
}

/* The virtual environment that holds the library's folder: the nearest one above it. */
static bool enclosing_environment(const char* folder, char out[COW_PATH_SIZE]) {
  if (!write_path(out, "%s", folder)) return false;
  while (ascend(out, 1) && out[0]) {
    if (has(out, "/pyvenv.cfg")) return true;
  }
  return false;
}

/* The installation into whose packages pip has put the library. Debian keeps those of /usr in
 * /usr/local, Homebrew those of a framework in the lib beside Frameworks. */
static bool enclosing_installation(const char* folder, char out[COW_PATH_SIZE]) {
  if (!write_path(out, "%s", folder) || !ascend(out, 2)) return false;
  const char* packages = strrchr(out, '/');
  bool installed = packages && (strcmp(packages, "/site-packages") == 0 ||
                                strcmp(packages, "/dist-packages") == 0);
  while (installed && ascend(out, 1) && out[0]) {
    if (has(out, "/lib/python3." MINOR "/os.py")) return true;
#ifdef __APPLE__
    char framework[COW_PATH_SIZE];
    if (write_path(framework, "%s/Frameworks/Python.framework/Versions/3." MINOR, out) &&
        has(framework, "/lib/python3." MINOR "/os.py")) {
      return write_path(out, "%s", framework);
    }
#endif
  }
  return false;
}

/* The environment that the library was built with, if it lies in its source tree. An installed
 * library never looks there: it would run whatever the tree has become. */
static bool building_environment(const char* folder, char out[COW_PATH_SIZE]) {
  const char* prefix = COWMLX_BUILD_PREFIX;
  char tree[COW_PATH_SIZE];
  if (!prefix[0] || !write_path(tree, "%s", folder) || !ascend(tree, 2)) return false;
  if (!has(tree, "/cowmlx/bridge/bridge.pyx") || !has(tree, "/csrc/boot/locate.c")) return false;
  return prefix[0] == '/' ? write_path(out, "%s", prefix) : write_path(out, "%s/%s", tree, prefix);
}

/* The Python of a bundle: in `python` beside the library's folder or in it. */
static bool bundled(const char* folder, char out[COW_PATH_SIZE]) {
  return write_path(out, "%s/python", folder) && has(out, "/lib");
}

/* Find the Python around the library. The first candidate decides: a broken installation never runs
 * another's Python. */
static cow_mlx_status locate_around(cow_python* out) {
  char folder[COW_PATH_SIZE] = "";
  char above[COW_PATH_SIZE];
  char home[COW_PATH_SIZE];
  bool found = library_folder(folder) &&
               (bundled(folder, home) ||
                (write_path(above, "%s", folder) && ascend(above, 1) && bundled(above, home)) ||
                building_environment(folder, home) || enclosing_environment(folder, home) ||
                enclosing_installation(folder, home));
  if (!found) {
    return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                     DETAILS(TEXT_DETAIL("file", folder)),
                     NO_PYTHON
                     " around the library in %.512s; leave it in its package or bundle, "
                     "or " REMEDY,
                     folder);
  }
  const char* lack = examine(home, out);
  if (!lack) return COW_MLX_OK;
  return cow_error(COW_MLX_ENOENT, "runtime_start", COW_REASON_python_not_found,
                   DETAILS(TEXT_DETAIL("file", home)),
                   NO_PYTHON ": the library in %.512s is of %.512s, but %s; " REMEDY, folder, home,
                   lack);
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

bool cow_locate_package(const char* home, char out[COW_PATH_SIZE]) {
  /* The library lies in cowmlx/lib/. */
  if (library_folder(out) && ascend(out, 1) && has(out, "/__init__.py") && ascend(out, 1)) {
    return true;
  }
  /* A bundle. Most Pythons look there by themselves; Debian's has another name for it. */
  return home[0] && write_path(out, "%s/lib/python3." MINOR "/site-packages", home) &&
         has(out, "/cowmlx/__init__.pyc");
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
    if (name && (*minor = minor_of(name)) >= 0) return write_path(path, "%s", name);
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
  if (minor < 0 || !write_path(found->path, "%s", info->dlpi_name)) return 0;
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

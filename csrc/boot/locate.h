/* Finds this library, the cowmlx package and a Python to boot. Knows the layout of Python
 * installations, but calls no Python. */
#ifndef COW_LOCATE_H
#define COW_LOCATE_H

#include "bridge.h"

#define COW_PATH_SIZE 4096

typedef struct cow_python {
  char home[COW_PATH_SIZE];       /* prefix of an installation or virtual environment */
  char executable[COW_PATH_SIZE]; /* python of a virtual environment, or "" */
  char library[COW_PATH_SIZE];    /* full path of its libpython */
} cow_python;

/* Find the Python to boot: in `home` alone if it is not NULL, else in $COWMLX_PYTHON_HOME alone if
 * set and not empty, else in the first of these: `python` beside the library, the environment that
 * built it in its source tree, the virtual environment or the installation that holds it. */
cow_mlx_status cow_locate_python(const char* home, cow_python* out);

/* Whether two paths are those of one folder. */
bool cow_locate_same(const char* home, const char* other);

/* The folder that holds the cowmlx package of this library; `home` is the prefix that was booted,
 * "" if Python was joined. False if there is none: Python finds the package by itself. */
bool cow_locate_package(const char* home, char out[COW_PATH_SIZE]);

/* A libpython that the process has mapped, of any version: its full path and minor version. False
 * if there is none. */
bool cow_locate_mapped_python(char path[COW_PATH_SIZE], int* minor);

#endif

/* The library, which is opened at run time: a node needs no libcowmlx until it starts a runtime. */
#ifndef COW_NIF_LIBRARY_H
#define COW_NIF_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "cow_mlx.h"
#include "tables/functions.h"

/* The functions of cow_mlx.h by their names without cow_mlx_. */
typedef struct cow_library {
#define COW_NIF_MEMBER(name) __typeof__(&cow_mlx_##name) name;
  COW_NIF_FUNCTIONS(COW_NIF_MEMBER)
#undef COW_NIF_MEMBER
} cow_library;

extern cow_library api;

/* Open the library at a path, or by a name that the system finds. Only the first call that
 * succeeds has an effect. Otherwise false, and problem is a text. */
bool cow_library_open(const char* path, char* problem, size_t room);

bool cow_library_is_open(void);

/* Keep the code of this NIF in memory for good: its threads run it. */
void cow_library_pin(void);

#endif

/* Structs of C as maps: tables that are generated from the header, and what reads by them. */
#ifndef COW_NIF_LAYOUTS_H
#define COW_NIF_LAYOUTS_H

#include "frame.h"

typedef enum cow_member_type {
  COW_BOOL,
  COW_INT32,
  COW_UINT32,
  COW_INT64,
  COW_UINT64,
  COW_SIZE,
  COW_FLOAT,
  COW_DOUBLE,
  COW_STRING,   /* a text that ends with NUL */
  COW_STRINGS,  /* texts, and their number */
  COW_ELEMENTS, /* numbers, and their number */
  COW_ARRAYS,   /* handles of arrays, and their number */
  COW_HANDLE,   /* a handle of a model */
  COW_CALLBACK  /* true or false: whether the binding's own is set */
} cow_member_type;

typedef struct cow_member {
  const char* name;
  cow_member_type type;
  size_t offset;
  size_t count;   /* offset of the member with the number, or 0 */
  size_t element; /* bytes of an element */
} cow_member;

typedef struct cow_layout {
  size_t size;
  const cow_member* members;
  size_t count;
} cow_layout;

#include "tables/layout_names.h"

/* Read a map into params, which hold their defaults. A key that is missing or nil keeps the
 * default. False: the call is refused. */
bool cow_take_params(cow_frame* frame, int index, const cow_layout* layout, void* params);

/* Whether a map has true for a callback. */
bool cow_wants(cow_frame* frame, int index, const char* name);

/* A map of a struct that a call has filled. */
ERL_NIF_TERM cow_struct_term(ErlNifEnv* env, const cow_layout* layout, const void* from);

#endif

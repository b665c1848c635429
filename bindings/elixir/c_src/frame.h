/* The arguments of one call as terms, and its result. Arguments are read one after the other; the
 * first that does not fit is remembered, and the call is not made. */
#ifndef COW_NIF_FRAME_H
#define COW_NIF_FRAME_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stdint.h>

#include "cow_mlx.h"
#include "objects.h"

typedef struct cow_block cow_block;

typedef struct cow_frame {
  ErlNifEnv* env; /* of the arguments and of the result */
  int count;
  const ERL_NIF_TERM* arguments;
  int refused;          /* 1 + the index of an argument that does not fit; 0: none */
  const char* member;   /* of params, if it is one of them */
  const char* accepted; /* what would fit */
  cow_block* memory;    /* freed behind the call */
} cow_frame;

/* A buffer for a result, which grows. */
typedef struct cow_buffer {
  void* data;
  size_t capacity; /* elements */
  size_t element;  /* bytes */
} cow_buffer;

typedef struct cow_texts {
  const cow_mlx_text* data;
  size_t count;
} cow_texts;

typedef struct cow_names {
  const char** data;
  size_t count;
} cow_names;

typedef struct cow_handles {
  cow_mlx_array* data;
  size_t count;
} cow_handles;

typedef struct cow_values {
  cow_mlx_value* data;
  size_t count;
} cow_values;

typedef struct cow_elements {
  const void* data;
  size_t count;
} cow_elements;

/* Free what the frame has allocated. */
void cow_frame_close(cow_frame* frame);

/* Memory that lives as long as the frame, zeroed; NULL: there is none, and the call is refused. */
void* cow_frame_memory(cow_frame* frame, size_t count, size_t size);

/* Refuse an argument. */
void cow_refuse(cow_frame* frame, int index, const char* accepted);

/* Read arguments. */
int64_t cow_take_int(cow_frame* frame, int index, int64_t low, int64_t high);
uint64_t cow_take_uint(cow_frame* frame, int index, uint64_t high);
double cow_take_number(cow_frame* frame, int index);
bool cow_take_bool(cow_frame* frame, int index);
cow_object* cow_take_object(cow_frame* frame, int index, cow_kind kind);
int64_t cow_take_handle(cow_frame* frame, int index, cow_kind kind, bool nullable);
const char* cow_take_string(cow_frame* frame, int index, bool nullable);
cow_mlx_text cow_take_text(cow_frame* frame, int index);
cow_elements cow_take_elements(cow_frame* frame, int index, size_t element);
cow_texts cow_take_texts(cow_frame* frame, int index);
cow_names cow_take_names(cow_frame* frame, int index);
cow_handles cow_take_handles(cow_frame* frame, int index);
cow_values cow_take_values(cow_frame* frame, int index);

/* The same of terms that are not arguments; false if one does not fit. */
bool cow_read_int(ErlNifEnv* env, ERL_NIF_TERM term, int64_t low, int64_t high, int64_t* out);
bool cow_read_bool(ErlNifEnv* env, ERL_NIF_TERM term, bool* out);
bool cow_read_number(ErlNifEnv* env, ERL_NIF_TERM term, double* out);
const char* cow_read_string(cow_frame* frame, ERL_NIF_TERM term);
bool cow_read_names(cow_frame* frame, ERL_NIF_TERM term, cow_names* out);
bool cow_read_handles(cow_frame* frame, ERL_NIF_TERM term, cow_handles* out);
bool cow_read_tensor(cow_frame* frame, ERL_NIF_TERM term, cow_mlx_tensor* out);
bool cow_is_atom(ErlNifEnv* env, ERL_NIF_TERM term, const char* name);

/* Room for a result of at least so many elements; false without memory. */
bool cow_buffer_grow(cow_frame* frame, cow_buffer* buffer, size_t elements);

/* Make results. */
ERL_NIF_TERM cow_atom(ErlNifEnv* env, const char* name);
ERL_NIF_TERM cow_number(ErlNifEnv* env, double number); /* nan, infinity, neg_infinity are atoms */
ERL_NIF_TERM cow_bytes(ErlNifEnv* env, const void* data, size_t bytes);
ERL_NIF_TERM cow_array_terms(ErlNifEnv* env, const cow_mlx_array* handles, size_t count);
ERL_NIF_TERM cow_value_terms(ErlNifEnv* env, cow_values values);
ERL_NIF_TERM cow_refusal(cow_frame* frame);
ERL_NIF_TERM cow_failure(ErlNifEnv* env, cow_mlx_status status);
ERL_NIF_TERM cow_canceled(ErlNifEnv* env, cow_mlx_status status, const char* noun);
ERL_NIF_TERM cow_problem(ErlNifEnv* env, const char* reason, const char* message);

/* ok, {ok, Result} or {done, Result}; result is 0 where there is none. */
ERL_NIF_TERM cow_result(ErlNifEnv* env, cow_mlx_status status, ERL_NIF_TERM result);

#endif

/* Reads terms. Nothing here keeps a term: binaries live as long as the frame's environment. */
#include <string.h>

#include "frame.h"

static ERL_NIF_TERM argument(cow_frame* frame, int index) {
  return index < frame->count ? frame->arguments[index] : cow_atom(frame->env, "nil");
}

static bool is_nil(cow_frame* frame, ERL_NIF_TERM term) {
  return cow_is_atom(frame->env, term, "nil");
}

bool cow_read_int(ErlNifEnv* env, ERL_NIF_TERM term, int64_t low, int64_t high, int64_t* out) {
  ErlNifSInt64 number;
  if (!enif_get_int64(env, term, &number) || number < low || number > high) return false;
  *out = number;
  return true;
}

bool cow_read_bool(ErlNifEnv* env, ERL_NIF_TERM term, bool* out) {
  *out = cow_is_atom(env, term, "true");
  return *out || cow_is_atom(env, term, "false");
}

bool cow_read_number(ErlNifEnv* env, ERL_NIF_TERM term, double* out) {
  ErlNifSInt64 whole;
  if (enif_get_double(env, term, out)) return true;
  if (!enif_get_int64(env, term, &whole)) return false;
  *out = (double)whole;
  return true;
}

/* A text that ends with NUL, and has none before; NULL otherwise. */
const char* cow_read_string(cow_frame* frame, ERL_NIF_TERM term) {
  ErlNifBinary binary;
  if (!enif_inspect_binary(frame->env, term, &binary)) return NULL;
  if (memchr(binary.data, 0, binary.size)) return NULL;
  char* copy = cow_frame_memory(frame, binary.size + 1, 1);
  return copy ? memcpy(copy, binary.data, binary.size) : NULL;
}

bool cow_read_names(cow_frame* frame, ERL_NIF_TERM term, cow_names* out) {
  unsigned length;
  if (!enif_get_list_length(frame->env, term, &length)) return false;
  *out = (cow_names){cow_frame_memory(frame, length, sizeof(char*)), length};
  if (!out->data) return false;
  ERL_NIF_TERM head, rest = term;
  for (unsigned i = 0; enif_get_list_cell(frame->env, rest, &head, &rest); i++) {
    if (!(out->data[i] = cow_read_string(frame, head))) return false;
  }
  return true;
}

/* A list of arrays; nil is 0. */
bool cow_read_handles(cow_frame* frame, ERL_NIF_TERM term, cow_handles* out) {
  unsigned length;
  if (!enif_get_list_length(frame->env, term, &length)) return false;
  *out = (cow_handles){cow_frame_memory(frame, length, sizeof(cow_mlx_array)), length};
  if (!out->data) return false;
  ERL_NIF_TERM head, rest = term;
  for (unsigned i = 0; enif_get_list_cell(frame->env, rest, &head, &rest); i++) {
    if (is_nil(frame, head)) continue;
    cow_object* object = cow_object_of(frame->env, head);
    if (!object || object->kind != COW_KIND_ARRAY) return false;
    out->data[i] = atomic_load(&object->handle);
    if (!out->data[i]) out->data[i] = -1; /* freed: no handle, and not left out */
  }
  return true;
}

/* {Dtype, [Size], Binary}: memory of the host, row-major. */
bool cow_read_tensor(cow_frame* frame, ERL_NIF_TERM term, cow_mlx_tensor* out) {
  int arity;
  unsigned rank;
  int64_t dtype;
  const ERL_NIF_TERM* parts;
  ErlNifBinary binary;
  if (!enif_get_tuple(frame->env, term, &arity, &parts) || arity != 3 ||
      !cow_read_int(frame->env, parts[0], INT32_MIN, INT32_MAX, &dtype) ||
      !enif_get_list_length(frame->env, parts[1], &rank) || rank > COW_MLX_MAX_RANK ||
      !enif_inspect_binary(frame->env, parts[2], &binary)) {
    return false;
  }
  int64_t* shape = cow_frame_memory(frame, rank, sizeof *shape);
  if (!shape) return false;
  ERL_NIF_TERM head, rest = parts[1];
  for (unsigned i = 0; enif_get_list_cell(frame->env, rest, &head, &rest); i++) {
    if (!cow_read_int(frame->env, head, INT64_MIN, INT64_MAX, &shape[i])) return false;
  }
  *out = (cow_mlx_tensor){.struct_size = sizeof *out,
                          .data = binary.data,
                          .bytes = binary.size,
                          .dtype = (int32_t)dtype,
                          .rank = (int32_t)rank,
                          .shape = shape};
  return true;
}

int64_t cow_take_int(cow_frame* frame, int index, int64_t low, int64_t high) {
  int64_t number = 0;
  if (!cow_read_int(frame->env, argument(frame, index), low, high, &number)) {
    cow_refuse(frame, index, "an integer in the range of its type");
  }
  return number;
}

uint64_t cow_take_uint(cow_frame* frame, int index, uint64_t high) {
  ErlNifUInt64 number = 0;
  if (!enif_get_uint64(frame->env, argument(frame, index), &number) || number > high) {
    cow_refuse(frame, index, "an integer, 0 or more, in the range of its type");
  }
  return number;
}

double cow_take_number(cow_frame* frame, int index) {
  double number = 0;
  if (!cow_read_number(frame->env, argument(frame, index), &number)) {
    cow_refuse(frame, index, "a number");
  }
  return number;
}

bool cow_take_bool(cow_frame* frame, int index) {
  bool value = false;
  if (!cow_read_bool(frame->env, argument(frame, index), &value)) {
    cow_refuse(frame, index, "true or false");
  }
  return value;
}

static const char* const OBJECTS[COW_KINDS] = {
    "a CowMLX.Model",   "a CowMLX.Context",  "a CowMLX.Adapter", "a CowMLX.Checkpoint",
    "a CowMLX.Program", "a CowMLX.Training", "a CowMLX.Media",   "a CowMLX.Array"};

cow_object* cow_take_object(cow_frame* frame, int index, cow_kind kind) {
  cow_object* object = cow_object_of(frame->env, argument(frame, index));
  if (object && object->kind == kind) return object;
  cow_refuse(frame, index, OBJECTS[kind]);
  return NULL;
}

int64_t cow_take_handle(cow_frame* frame, int index, cow_kind kind, bool nullable) {
  if (nullable && is_nil(frame, argument(frame, index))) return 0;
  cow_object* object = cow_take_object(frame, index, kind);
  int64_t handle = object ? atomic_load(&object->handle) : 0;
  return handle || !nullable ? handle : -1; /* freed is not left out */
}

const char* cow_take_string(cow_frame* frame, int index, bool nullable) {
  if (nullable && is_nil(frame, argument(frame, index))) return NULL;
  const char* text = cow_read_string(frame, argument(frame, index));
  if (!text) cow_refuse(frame, index, "a text without NUL");
  return text;
}

cow_mlx_text cow_take_text(cow_frame* frame, int index) {
  ErlNifBinary binary = {0};
  if (!enif_inspect_binary(frame->env, argument(frame, index), &binary)) {
    cow_refuse(frame, index, "a text");
  }
  return (cow_mlx_text){(const char*)binary.data, binary.size};
}

cow_elements cow_take_elements(cow_frame* frame, int index, size_t element) {
  ErlNifBinary binary = {0};
  if (!enif_inspect_binary(frame->env, argument(frame, index), &binary) ||
      binary.size % element != 0) {
    cow_refuse(frame, index, "a list of numbers of its type");
    return (cow_elements){NULL, 0};
  }
  /* A binary may begin anywhere; elements are read where they fit. */
  if ((uintptr_t)binary.data % element == 0) {
    return (cow_elements){binary.data, binary.size / element};
  }
  void* copy = cow_frame_memory(frame, binary.size, 1);
  if (!copy) return (cow_elements){NULL, 0};
  return (cow_elements){memcpy(copy, binary.data, binary.size), binary.size / element};
}

cow_texts cow_take_texts(cow_frame* frame, int index) {
  unsigned length = 0;
  ERL_NIF_TERM head, rest = argument(frame, index);
  cow_mlx_text* texts = NULL;
  if (enif_get_list_length(frame->env, rest, &length)) {
    texts = cow_frame_memory(frame, length, sizeof *texts);
  }
  for (unsigned i = 0; texts && enif_get_list_cell(frame->env, rest, &head, &rest); i++) {
    ErlNifBinary binary;
    if (!enif_inspect_binary(frame->env, head, &binary))
      texts = NULL;
    else
      texts[i] = (cow_mlx_text){(const char*)binary.data, binary.size};
  }
  if (!texts) cow_refuse(frame, index, "a list of texts");
  return (cow_texts){texts, length};
}

cow_names cow_take_names(cow_frame* frame, int index) {
  cow_names names = {0};
  if (!cow_read_names(frame, argument(frame, index), &names)) {
    cow_refuse(frame, index, "a list of texts without NUL");
  }
  return names;
}

cow_handles cow_take_handles(cow_frame* frame, int index) {
  cow_handles handles = {0};
  if (!cow_read_handles(frame, argument(frame, index), &handles)) {
    cow_refuse(frame, index, "a list of arrays");
  }
  return handles;
}

static bool read_value(cow_frame* frame, ERL_NIF_TERM term, cow_mlx_value* out) {
  cow_object* object = cow_object_of(frame->env, term);
  if (object && object->kind == COW_KIND_ARRAY) {
    int64_t handle = atomic_load(&object->handle);
    out->array = handle ? handle : -1;
    return true;
  }
  cow_mlx_tensor* host = cow_frame_memory(frame, 1, sizeof *host);
  out->host = host;
  return host && cow_read_tensor(frame, term, host);
}

cow_values cow_take_values(cow_frame* frame, int index) {
  unsigned length = 0;
  ERL_NIF_TERM head, rest = argument(frame, index);
  cow_mlx_value* values = NULL;
  if (enif_get_list_length(frame->env, rest, &length)) {
    values = cow_frame_memory(frame, length, sizeof *values);
  }
  for (unsigned i = 0; values && enif_get_list_cell(frame->env, rest, &head, &rest); i++) {
    if (!read_value(frame, head, &values[i])) values = NULL;
  }
  if (!values) cow_refuse(frame, index, "a list of arrays and tensors");
  return (cow_values){values, length};
}

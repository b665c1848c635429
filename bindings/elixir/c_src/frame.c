#include "frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "library.h"

struct cow_block {
  cow_block* next;
  max_align_t data[];
};

void cow_frame_close(cow_frame* frame) {
  while (frame->memory) {
    cow_block* block = frame->memory;
    frame->memory = block->next;
    enif_free(block);
  }
}

void* cow_frame_memory(cow_frame* frame, size_t count, size_t size) {
  size_t bytes = 0;
  cow_block* block = NULL;
  if (!__builtin_mul_overflow(count ? count : 1, size, &bytes) && bytes < SIZE_MAX / 2) {
    block = enif_alloc(sizeof *block + bytes);
  }
  if (!block) {
    cow_refuse(frame, 0, "less memory");
    return NULL;
  }
  block->next = frame->memory;
  frame->memory = block;
  return memset(block->data, 0, bytes);
}

void cow_refuse(cow_frame* frame, int index, const char* accepted) {
  if (frame->refused) return;
  frame->refused = 1 + index;
  frame->accepted = accepted;
}

ERL_NIF_TERM cow_atom(ErlNifEnv* env, const char* name) { return enif_make_atom(env, name); }

bool cow_is_atom(ErlNifEnv* env, ERL_NIF_TERM term, const char* name) {
  return enif_is_identical(term, enif_make_atom(env, name));
}

bool cow_buffer_grow(cow_frame* frame, cow_buffer* buffer, size_t elements) {
  if (elements <= buffer->capacity && buffer->data) return true;
  buffer->data = cow_frame_memory(frame, elements, buffer->element);
  buffer->capacity = buffer->data ? elements : 0;
  return buffer->data != NULL;
}

ERL_NIF_TERM cow_number(ErlNifEnv* env, double number) {
  if (isnan(number)) return cow_atom(env, "nan");
  if (isinf(number)) return cow_atom(env, number > 0 ? "infinity" : "neg_infinity");
  return enif_make_double(env, number);
}

ERL_NIF_TERM cow_bytes(ErlNifEnv* env, const void* data, size_t bytes) {
  ERL_NIF_TERM term;
  unsigned char* place = enif_make_new_binary(env, bytes, &term);
  if (place && bytes) memcpy(place, data, bytes);
  return term;
}

ERL_NIF_TERM cow_array_terms(ErlNifEnv* env, const cow_mlx_array* handles, size_t count) {
  ERL_NIF_TERM list = enif_make_list(env, 0);
  while (count-- > 0) {
    ERL_NIF_TERM term = cow_object_term(env, COW_KIND_ARRAY, handles[count]);
    list = enif_make_list_cell(env, term ? term : cow_atom(env, "nil"), list);
  }
  return list;
}

ERL_NIF_TERM cow_value_terms(ErlNifEnv* env, cow_values values) {
  ERL_NIF_TERM list = enif_make_list(env, 0);
  while (values.count-- > 0) {
    ERL_NIF_TERM term = cow_object_term(env, COW_KIND_ARRAY, values.data[values.count].array);
    list = enif_make_list_cell(env, term ? term : cow_atom(env, "nil"), list);
  }
  return list;
}

ERL_NIF_TERM cow_result(ErlNifEnv* env, cow_mlx_status status, ERL_NIF_TERM result) {
  if (status < 0) return cow_failure(env, status);
  if (!result) return cow_atom(env, status == COW_MLX_DONE ? "done" : "ok");
  return enif_make_tuple2(env, cow_atom(env, status == COW_MLX_DONE ? "done" : "ok"), result);
}

/* {error, Status, Message, Details}: the details are JSON. */
ERL_NIF_TERM cow_failure(ErlNifEnv* env, cow_mlx_status status) {
  const char* said = api.error_message();
  ERL_NIF_TERM message = cow_bytes(env, said, strlen(said));
  char room[1024];
  char* details = room;
  size_t length = 0;
  cow_mlx_status read = api.error_details(room, sizeof room, &length);
  if (read == COW_MLX_EBUFFER && (details = enif_alloc(length + 1))) {
    read = api.error_details(details, length + 1, &length);
  }
  ERL_NIF_TERM json = cow_bytes(env, read == COW_MLX_OK ? details : "{}", read ? 2 : length);
  if (details != room) enif_free(details);
  return enif_make_tuple4(env, cow_atom(env, "error"), enif_make_int(env, status), message, json);
}

/* Of a cancel, which leaves the thread's message alone, also where it fails. */
ERL_NIF_TERM cow_canceled(ErlNifEnv* env, cow_mlx_status status, const char* noun) {
  if (status >= 0) return cow_atom(env, "ok");
  char message[64], details[128];
  int said = snprintf(message, sizeof message, "%s_cancel: the %s is closed", noun, noun);
  int told = snprintf(details, sizeof details,
                      "{\"operation\":\"%s_cancel\",\"reason\":\"unknown_handle\",\"details\":"
                      "{\"kind\":\"%s\"}}",
                      noun, noun);
  return enif_make_tuple4(env, cow_atom(env, "error"), enif_make_int(env, COW_MLX_EHANDLE),
                          cow_bytes(env, message, (size_t)said),
                          cow_bytes(env, details, (size_t)told));
}

ERL_NIF_TERM cow_problem(ErlNifEnv* env, const char* reason, const char* message) {
  return enif_make_tuple3(env, cow_atom(env, "problem"), cow_atom(env, reason),
                          cow_bytes(env, message, strlen(message)));
}

/* {refused, Index, Member, Accepted} */
ERL_NIF_TERM cow_refusal(cow_frame* frame) {
  ErlNifEnv* env = frame->env;
  const char* accepted = frame->accepted ? frame->accepted : "another value";
  return enif_make_tuple4(env, cow_atom(env, "refused"), enif_make_int(env, frame->refused - 1),
                          cow_atom(env, frame->member ? frame->member : "nil"),
                          cow_bytes(env, accepted, strlen(accepted)));
}

#include "layouts.h"

#include <string.h>

#define MEMBER(struct_, name, type, counted, element) \
  {#name, type, offsetof(struct_, name), counted, element}
#include "tables/layouts.inc"
#undef MEMBER

static const char* accepted_by(cow_member_type type) {
  switch (type) {
    case COW_BOOL:
    case COW_CALLBACK:
      return "true or false";
    case COW_FLOAT:
    case COW_DOUBLE:
      return "a number";
    case COW_STRING:
      return "a text without NUL";
    case COW_STRINGS:
      return "a list of texts without NUL";
    case COW_ELEMENTS:
      return "a list of numbers of its type";
    case COW_ARRAYS:
      return "a list of arrays";
    case COW_HANDLE:
      return "a CowMLX.Model";
    default:
      return "an integer in the range of its type";
  }
}

static bool read_integer(ErlNifEnv* env, ERL_NIF_TERM term, cow_member_type type, void* place) {
  ErlNifSInt64 whole;
  ErlNifUInt64 natural;
  switch (type) {
    case COW_INT32:
      if (!enif_get_int64(env, term, &whole) || whole < INT32_MIN || whole > INT32_MAX)
        return false;
      *(int32_t*)place = (int32_t)whole;
      return true;
    case COW_UINT32:
      if (!enif_get_uint64(env, term, &natural) || natural > UINT32_MAX) return false;
      *(uint32_t*)place = (uint32_t)natural;
      return true;
    case COW_INT64:
      if (!enif_get_int64(env, term, &whole)) return false;
      *(int64_t*)place = whole;
      return true;
    default: /* COW_UINT64, COW_SIZE */
      if (!enif_get_uint64(env, term, &natural)) return false;
      *(uint64_t*)place = natural;
      return true;
  }
}

static bool read_elements(cow_frame* frame, ERL_NIF_TERM term, const cow_member* member,
                          unsigned char* params) {
  ErlNifBinary binary;
  if (!enif_inspect_binary(frame->env, term, &binary) || binary.size % member->element != 0) {
    return false;
  }
  void* copy = cow_frame_memory(frame, binary.size, 1);
  if (!copy) return false;
  *(void**)(params + member->offset) = memcpy(copy, binary.data, binary.size);
  *(size_t*)(params + member->count) = binary.size / member->element;
  return true;
}

static bool read_object(cow_frame* frame, ERL_NIF_TERM term, int32_t* place) {
  cow_object* object = cow_object_of(frame->env, term);
  if (!object || object->kind != COW_KIND_MODEL) return false;
  int64_t handle = atomic_load(&object->handle);
  *place = handle ? (int32_t)handle : -1;
  return true;
}

static bool read_member(cow_frame* frame, ERL_NIF_TERM term, const cow_member* member,
                        unsigned char* params) {
  void* place = params + member->offset;
  double number;
  bool truth;
  cow_names names;
  cow_handles handles;
  switch (member->type) {
    case COW_BOOL:
      if (!cow_read_bool(frame->env, term, &truth)) return false;
      *(bool*)place = truth;
      return true;
    case COW_CALLBACK: /* its call sets it */
      return cow_read_bool(frame->env, term, &truth);
    case COW_FLOAT:
      if (!cow_read_number(frame->env, term, &number)) return false;
      *(float*)place = (float)number;
      return true;
    case COW_DOUBLE:
      return cow_read_number(frame->env, term, place);
    case COW_STRING:
      return (*(const char**)place = cow_read_string(frame, term)) != NULL;
    case COW_STRINGS:
      if (!cow_read_names(frame, term, &names)) return false;
      *(const char***)place = names.data;
      *(size_t*)(params + member->count) = names.count;
      return true;
    case COW_ELEMENTS:
      return read_elements(frame, term, member, params);
    case COW_ARRAYS:
      if (!cow_read_handles(frame, term, &handles)) return false;
      *(cow_mlx_array**)place = handles.data;
      *(size_t*)(params + member->count) = handles.count;
      return true;
    case COW_HANDLE:
      return read_object(frame, term, place);
    default:
      return read_integer(frame->env, term, member->type, place);
  }
}

/* The value of a member in a map; false if there is none. */
static bool has_member(ErlNifEnv* env, ERL_NIF_TERM map, const cow_member* member,
                       ERL_NIF_TERM* out) {
  return enif_get_map_value(env, map, cow_atom(env, member->name), out) &&
         !cow_is_atom(env, *out, "nil");
}

/* Whether a map has a member before this one that shares its number of elements. */
static bool is_counted(ErlNifEnv* env, ERL_NIF_TERM map, const cow_layout* layout,
                       const cow_member* member) {
  ERL_NIF_TERM term;
  for (const cow_member* other = layout->members; member->count && other < member; other++) {
    if (other->count == member->count && has_member(env, map, other, &term)) return true;
  }
  return false;
}

static void refuse_member(cow_frame* frame, int index, const cow_member* member,
                          const char* accepted) {
  cow_refuse(frame, index, accepted);
  frame->member = member->name;
}

bool cow_take_params(cow_frame* frame, int index, const cow_layout* layout, void* params) {
  if (frame->refused) return false;
  ERL_NIF_TERM map = frame->arguments[index], term;
  if (!enif_is_map(frame->env, map)) {
    cow_refuse(frame, index, "a keyword list of options");
    return false;
  }
  for (size_t i = 0; i < layout->count; i++) {
    const cow_member* member = &layout->members[i];
    if (!has_member(frame->env, map, member, &term)) continue;
    const size_t* count = (size_t*)((unsigned char*)params + member->count);
    const size_t before = member->count ? *count : 0;
    if (!read_member(frame, term, member, params)) {
      refuse_member(frame, index, member, accepted_by(member->type));
      return false;
    }
    if (is_counted(frame->env, map, layout, member) && *count != before) {
      refuse_member(frame, index, member, "as long as the list that goes with it");
      return false;
    }
  }
  return true;
}

bool cow_wants(cow_frame* frame, int index, const char* name) {
  ERL_NIF_TERM term;
  return enif_get_map_value(frame->env, frame->arguments[index], cow_atom(frame->env, name),
                            &term) &&
         cow_is_atom(frame->env, term, "true");
}

static ERL_NIF_TERM member_term(ErlNifEnv* env, cow_member_type type, const void* place) {
  const char* text;
  switch (type) {
    case COW_BOOL:
      return cow_atom(env, *(const bool*)place ? "true" : "false");
    case COW_INT32:
    case COW_HANDLE:
      return enif_make_int(env, *(const int32_t*)place);
    case COW_UINT32:
      return enif_make_uint(env, *(const uint32_t*)place);
    case COW_INT64:
      return enif_make_int64(env, *(const int64_t*)place);
    case COW_UINT64:
    case COW_SIZE:
      return enif_make_uint64(env, *(const uint64_t*)place);
    case COW_FLOAT:
      return cow_number(env, *(const float*)place);
    case COW_DOUBLE:
      return cow_number(env, *(const double*)place);
    case COW_STRING:
      text = *(const char* const*)place;
      return text ? cow_bytes(env, text, strlen(text)) : cow_atom(env, "nil");
    default:
      return cow_atom(env, "nil");
  }
}

ERL_NIF_TERM cow_struct_term(ErlNifEnv* env, const cow_layout* layout, const void* from) {
  ERL_NIF_TERM map = enif_make_new_map(env);
  for (size_t i = 0; i < layout->count; i++) {
    const cow_member* member = &layout->members[i];
    const void* place = (const unsigned char*)from + member->offset;
    enif_make_map_put(env, map, cow_atom(env, member->name), member_term(env, member->type, place),
                      &map);
  }
  return map;
}

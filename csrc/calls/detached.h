/* A request that nobody waits for, with copies of all that its call was given. */
#ifndef COW_DETACHED_H
#define COW_DETACHED_H

#include "base/error.h"

typedef struct cow_detached cow_detached;

/* A piece of memory that lives as long as the request; what is in it follows. */
typedef struct cow_copy {
  struct cow_copy* next;
} cow_copy;

struct cow_detached {
  cow_request request;
  cow_failure failure; /* of the request */
  cow_copy* copies;
  bool lacks_memory; /* one could not be made */
  union {
    cow_context_begin_args begin;
    cow_context_chat_args chat;
    cow_model_load_args load;
  } args;
  union {
    cow_mlx_generation_params generation;
    cow_mlx_model_params model;
  } params;
  cow_mlx_stats stats;  /* where results go that nobody asks for */
  cow_mlx_model loaded; /* likewise: request.model */
};

/* NULL without memory. */
cow_detached* cow_detached_new(cow_op op);
void cow_detached_free(cow_detached* it);

/* What stands for the host's function where events lie until they are taken. */
bool cow_detached_on_event(const cow_mlx_event* event, void* user_data);

/* Copies of what the host gave; NULL where that is NULL, and where memory is short. */
void* cow_detached_copy(cow_detached* to, const void* from, size_t size);
const char* cow_detached_string(cow_detached* to, const char* from);

/* The items of a list in params, which are text or bytes. More than the bridge takes are not
 * looked at: it refuses their number. */
const char* const* cow_detached_strings(cow_detached* to, const char* const* from, size_t count);
void* cow_detached_values(cow_detached* to, const void* from, size_t count, size_t size);

/* Generated: copy what params point to. */
void cow_detached_generation_params(cow_detached* to, cow_mlx_generation_params* params);
void cow_detached_model_params(cow_detached* to, cow_mlx_model_params* params);

/* Begin a round of the outlet of context or model, and send the request; or free it. */
cow_mlx_status cow_detached_send(cow_detached* it, const char* operation);

#endif

/* Calls whose forms the binding decides: they start a runtime, begin what returns at once, move
 * data, or report while they run. */
#ifndef COW_NIF_HAND_CALLS_H
#define COW_NIF_HAND_CALLS_H

#include "calls.h"

extern const cow_call cow_hand_calls[];
extern const size_t cow_hand_count;

/* runtime.c */
ERL_NIF_TERM cow_make_runtime_start(cow_frame* frame);
ERL_NIF_TERM cow_make_free(cow_frame* frame);

/* Let log messages of the calls that follow be sent as the process of a NIF; NULL: no longer. */
void cow_report_as(ErlNifEnv* env);

/* arrays.c */
ERL_NIF_TERM cow_make_array_create(cow_frame* frame);
ERL_NIF_TERM cow_make_array_type(cow_frame* frame);
ERL_NIF_TERM cow_make_array_binary(cow_frame* frame);
ERL_NIF_TERM cow_make_program_bind(cow_frame* frame);
bool cow_arrays_open(ErlNifEnv* env);

/* media.c */
ERL_NIF_TERM cow_make_media_from_pixels(cow_frame* frame);
ERL_NIF_TERM cow_make_media_from_file(cow_frame* frame);

/* followers.c */
ERL_NIF_TERM cow_make_context_watch(cow_frame* frame);
ERL_NIF_TERM cow_make_context_begin_async(cow_frame* frame);
ERL_NIF_TERM cow_make_context_chat_async(cow_frame* frame);
ERL_NIF_TERM cow_make_context_take(cow_frame* frame);
ERL_NIF_TERM cow_make_model_load_async(cow_frame* frame);

/* fits.c */
ERL_NIF_TERM cow_make_training_fit(cow_frame* frame);

#endif

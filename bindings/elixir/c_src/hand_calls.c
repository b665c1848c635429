#include "hand_calls.h"

const cow_call cow_hand_calls[] = {
    {"runtime_start", 2, COW_WAITS, cow_make_runtime_start},
    {"free", 1, COW_WAITS, cow_make_free},
    {"array_create", 1, COW_WAITS, cow_make_array_create},
    {"small_array_create", 1, COW_DIRECT, cow_make_array_create},
    {"array_type", 1, COW_DIRECT, cow_make_array_type},
    {"array_binary", 1, COW_WAITS, cow_make_array_binary},
    {"media_from_pixels", 4, COW_WAITS, cow_make_media_from_pixels},
    {"media_from_file", 1, COW_WAITS, cow_make_media_from_file},
    {"program_bind", 3, COW_WAITS, cow_make_program_bind},
    {"context_watch", 1, COW_WAITS, cow_make_context_watch},
    {"context_begin_async", 3, COW_DIRECT, cow_make_context_begin_async},
    {"context_chat_async", 4, COW_DIRECT, cow_make_context_chat_async},
    {"context_take", 2, COW_ALONE, cow_make_context_take},
    {"model_load_async", 2, COW_DIRECT, cow_make_model_load_async},
    {"training_fit", 3, COW_ALONE, cow_make_training_fit},
};

const size_t cow_hand_count = sizeof cow_hand_calls / sizeof *cow_hand_calls;

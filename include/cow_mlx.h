/*
 * libcowmlx: language models on mlx, for any program that can dlopen.
 * Copyright (c) 2026 the libcowmlx authors. MIT licence.
 *
 * INTRODUCTION
 *
 * A host starts the runtime, loads a model folder, opens a context on it and
 * asks for text:
 *
 *     cow_mlx_runtime_start(NULL);
 *     cow_mlx_model_load("models/calf", NULL, &model);
 *     cow_mlx_context_create(model, NULL, &context);
 *     cow_mlx_model_chat_prompt(model, messages, COW_MLX_NUL, NULL, tokens, 512, &count);
 *     cow_mlx_context_generate(context, tokens, count, NULL, on_text, NULL, NULL);
 *     cow_mlx_runtime_stop();
 *
 * One dispatch thread owns a Python interpreter, mlx and mlx-lm. The host never uses these directly
 * and may call from any thread.
 *
 * CONVENTIONS
 *
 *  1. Every call that can fail returns a cow_mlx_status: 0 is success, a
 *     negative value an error, COW_MLX_DONE means "no more output". Results go
 *     through out-pointers, which are written only on COW_MLX_OK and
 *     COW_MLX_DONE; the size of a buffer that was too small is the one exception.
 *  2. cow_mlx_error_message() explains the last failed call of this thread to
 *     people, and cow_mlx_error_details() to programs.
 *  3. Handles are positive int32 values; 0 is never a handle. A freed, stale or
 *     foreign handle is COW_MLX_EHANDLE. While few are open, a value is reused only
 *     after 268 million handles of its kind. 65,535 of a kind can be open at once. They
 *     may be passed between threads. Only handles have to be freed. Handles of
 *     arrays are int64 values below 2^53 that are never reused, up to 16,777,215
 *     at once.
 *  4. Parameters are passed in structs that start with struct_size. Their _init
 *     function takes that size and fills in the defaults. NULL means all
 *     defaults. Structs only grow at their end, so a host that was compiled
 *     earlier keeps working.
 *  5. Text is a pointer and a length in bytes: UTF-8, NUL bytes allowed.
 *     A length of COW_MLX_NUL means that the text ends at its first NUL byte.
 *     Paths are UTF-8 too, and end at their NUL byte. JSON may nest 256 levels deep.
 *  6. Results of variable size go to (buffer, capacity, *length). If capacity is
 *     too small, the call is COW_MLX_EBUFFER: *length receives the size needed,
 *     and nothing is consumed, so call again. A NULL buffer with capacity 0
 *     asks for the size and returns COW_MLX_OK, except for cow_mlx_context_next(),
 *     where it is a buffer of 0 bytes. Text is NUL-terminated if there is room for
 *     the terminator; *length never counts it.
 *  7. Callbacks run on the thread that made the call, while it waits. Callbacks of
 *     a call that returns at once (..._async) run on the thread that polls or takes. They
 *     may block and may call the library. Returning false cancels the call. A
 *     callback must return: leaving it by longjmp(), by pthread_exit() or by
 *     an exception that passes through the library is undefined.
 *  8. Every function may be called from any thread once the runtime has started.
 *     A context takes one call at a time: a second call while the first still
 *     runs is COW_MLX_ESTATE. Only cow_mlx_context_cancel(), _free(), _info(),
 *     _tokens(), _stats() and _wake_fd() are allowed meanwhile.
 *  9. Options that a model, its cache or this build does not support are refused
 *     with COW_MLX_EUNSUPPORTED and the reason. No option is ignored.
 *
 * Any call may return these statuses, which are not repeated below:
 * COW_MLX_EINVAL (an argument is NULL, out of range or malformed),
 * COW_MLX_EHANDLE, COW_MLX_ESTATE (the runtime is not running),
 * COW_MLX_ECANCELED (the runtime was stopped meanwhile), COW_MLX_EFORK (called
 * in a forked child), COW_MLX_ENOMEM (too little memory, no more threads or handles),
 * COW_MLX_EIO (too many open files, or the system failed a read or write) and
 * COW_MLX_EINTERNAL (a bug of the library; the message says where). After ENOMEM
 * and EIO the same call can be made again. A fault outside of a single call ends
 * every waiting call with COW_MLX_EINTERNAL and frees every handle, as a stop
 * does, and logs a warning. The runtime still runs, so models can be loaded again.
 *
 * A child that is forked while the runtime runs can make no calls. It may end with
 * exit(), whatever the parent was doing: handlers that atexit() registered after
 * the first start run, stdio is flushed, and the process ends with the status
 * given. On Linux it ends there: exit handlers and static destructors from before
 * the first start do not run, since libraries below need locks that other threads
 * held. For the same reason such a child frees none of the mlx objects of a Python
 * host.
 *
 * pthread_cancel() waits for the library: a thread cannot be cancelled during a
 * call and its callbacks; it ends at the next cancellation point after the call.
 * A callback must not change that state. A signal handler may only call
 * cow_mlx_context_cancel(), cow_mlx_program_cancel() and cow_mlx_training_cancel().
 *
 * Unless its entry says otherwise, a function is thread-safe, blocks until its
 * result is ready, and exists since version 1.0.
 *
 * This header includes the others, one per noun:
 *
 *   cow_mlx/base.h        Shared by all headers: statuses, handles, versions and errors.
 *   cow_mlx/runtime.h     Starting and stopping the runtime.
 *   cow_mlx/model.h       Loading models, tokenizing, rendering conversations.
 *   cow_mlx/context.h     Contexts: creating, copying, trimming, keeping and saving them.
 *   cow_mlx/adapter.h     LoRA and DoRA adapters.
 *   cow_mlx/generation.h  Processing prompts and generating tokens.
 *   cow_mlx/chat.h        Answering conversations.
 *   cow_mlx/embedding.h   Embeddings: vectors for texts.
 *   cow_mlx/ranking.h     Ranking documents by a query.
 *   cow_mlx/scoring.h     Log probabilities, logits and hidden states of given tokens.
 *   cow_mlx/media.h       Images for models that see.
 *   cow_mlx/array.h       Arrays of numbers, to and from the host's memory.
 *   cow_mlx/program.h     Programs: computations on arrays, checked once and run many times.
 *   cow_mlx/training.h    Training programs and language models.
 */
#ifndef COW_MLX_H
#define COW_MLX_H

/* ------------------------------------------------------------- Constants */

/** The version of this header; cow_mlx_version() returns the library's. */
#define COW_MLX_VERSION "1.0.0"

/** Changes when compatibility breaks, together with the library's soname. */
#define COW_MLX_ABI_VERSION 1

#include "cow_mlx/base.h"
#include "cow_mlx/runtime.h"
#include "cow_mlx/model.h"
#include "cow_mlx/context.h"
#include "cow_mlx/adapter.h"
#include "cow_mlx/generation.h"
#include "cow_mlx/chat.h"
#include "cow_mlx/embedding.h"
#include "cow_mlx/ranking.h"
#include "cow_mlx/scoring.h"
#include "cow_mlx/media.h"
#include "cow_mlx/array.h"
#include "cow_mlx/program.h"
#include "cow_mlx/training.h"

#endif /* COW_MLX_H */

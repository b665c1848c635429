/* Contexts: opening, copying, trimming, keeping and saving them.
 * Part of cow_mlx.h, which is what hosts include. */
#ifndef COW_MLX_CONTEXT_H
#define COW_MLX_CONTEXT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- Contexts */

/** What happens when a context holds as many tokens as it may. */
enum {
  COW_MLX_OVERFLOW_STOP = 0, /**< a longer prompt is COW_MLX_ECONTEXT, a generation ends */
  COW_MLX_OVERFLOW_ROLL = 1  /**< those behind the first keep_tokens are dropped, a quarter of
                                  them at a time, and the rest is processed again: what
                                  follows is what a fresh context on that rest would give */
};

typedef struct cow_mlx_context_params {
  size_t struct_size;
  size_t max_tokens;     /**< tokens the context may hold; 0: the model's context length */
  int32_t kv_bits;       /**< 0: keys and values in the model's type; 4 or 8: quantised, where
                              model_info says that the cache can "quantise"; only contexts
                              with the same bits and group size share a batch */
  int32_t kv_group_size; /**< values that share a scale: 32, 64 or 128; 0: 64, or 32 where a
                              head is not a multiple of 64 wide */
  bool solo;             /**< never share a batch with other contexts */
  int32_t priority;      /**< below 0: steps only while no other context wants to */
  int32_t overflow;      /**< one of COW_MLX_OVERFLOW_; default STOP */
  size_t keep_tokens;    /**< with ROLL: tokens at the front that are never dropped */
  bool share_prefix;     /**< start from, and leave, processed prompts in the cache that the
                              model's contexts share; default true */
} cow_mlx_context_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_context_params_init(cow_mlx_context_params* params, size_t size);

/**
 * Open a context: an empty sequence with a cache of its own. While it has work it
 * has an mlx stream too, and with it a thread; what begins work is COW_MLX_ENOMEM,
 * and nothing is lost, where none can be started.
 *
 * @param out  receives the handle
 * @retval COW_MLX_EINVAL        max_tokens is more than the model's context length, or
 *                               another value is out of range
 * @retval COW_MLX_EUNSUPPORTED  the model's cache cannot be quantised so
 */
COW_MLX_API cow_mlx_status cow_mlx_context_create(cow_mlx_model model,
                                                  const cow_mlx_context_params* params,
                                                  cow_mlx_context* out);

/**
 * Free a context. A call that another thread has running on it returns
 * COW_MLX_ECANCELED.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_free(cow_mlx_context context);

/**
 * Open a context that holds what another one holds: tokens, state, parameters and adapter.
 *
 * The arrays are shared until either context writes to them. A generation under way is not
 * forked: the new context holds the prompt and the tokens that the host was given.
 *
 * @param out  receives the handle
 * @retval COW_MLX_ESTATE  another call is running on the context; or a piece has been computed
 *                         that the host has not taken (one that did not fit its buffer, or
 *                         that context_poll or a wake_fd asked for), and the cache cannot drop
 *                         tokens in place
 */
COW_MLX_API cow_mlx_status cow_mlx_context_fork(cow_mlx_context context, cow_mlx_context* out);

/** Forget every token and end the generation; parameters and adapter stay. */
COW_MLX_API cow_mlx_status cow_mlx_context_reset(cow_mlx_context context);

/**
 * The tokens that the cache holds, prompt and generated ones.
 *
 * A generated token enters the cache when it is processed to predict its
 * successor, so the last token of an ended generation may be missing.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_tokens(cow_mlx_context context, int32_t* tokens,
                                                  size_t capacity, size_t* count);

/**
 * Drop the last tokens of a context. A generation under way ends.
 *
 * A cache that cannot drop them (cow_mlx_model_info(), "cache") processes the
 * others again. The next tokens are those of a fresh context on what is left.
 *
 * @param count    more than there are stands for all
 * @param trimmed  receives how many were dropped
 * @retval COW_MLX_ESTATE     another call is running on the context
 * @retval COW_MLX_ECANCELED  cancelled while the others were processed again
 */
COW_MLX_API cow_mlx_status cow_mlx_context_trim_end(cow_mlx_context context, size_t count,
                                                    size_t* trimmed);

/**
 * Drop the first tokens of a context, and let the others move to the front.
 *
 * They are processed again, so that their positions and all that they attended
 * to are right. Otherwise as cow_mlx_context_trim_end().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_trim_front(cow_mlx_context context, size_t count,
                                                      size_t* trimmed);

/**
 * Keep what a context holds, to come back to it: exact for every kind of cache.
 *
 * The arrays are shared until the context writes to them.
 *
 * @param out  receives the handle; it is freed with its context at the latest
 * @retval COW_MLX_ESTATE  as cow_mlx_context_fork()
 */
COW_MLX_API cow_mlx_status cow_mlx_context_checkpoint(cow_mlx_context context,
                                                      cow_mlx_checkpoint* out);

/**
 * Make a context hold what it held at a checkpoint, as often as you like. A generation under
 * way ends.
 *
 * @retval COW_MLX_EINVAL  the checkpoint is another context's
 * @retval COW_MLX_ESTATE  another call is running on the context, or its adapter has changed
 *                         since
 */
COW_MLX_API cow_mlx_status cow_mlx_context_rewind(cow_mlx_context context,
                                                  cow_mlx_checkpoint checkpoint);

/** Free a checkpoint. */
COW_MLX_API cow_mlx_status cow_mlx_checkpoint_free(cow_mlx_checkpoint checkpoint);

/**
 * Write what a context holds to a file (safetensors), so that a later process need not process
 * the tokens again. Other contexts go on meanwhile.
 *
 * The file appears whole or not at all: a failure or a crash leaves the old one. Of a context of a
 * model on several machines it has the tokens alone, and another such model of the same folder
 * processes them again.
 *
 * @retval COW_MLX_ENOENT     the folder does not exist
 * @retval COW_MLX_EIO        the file cannot be written
 * @retval COW_MLX_ESTATE     as cow_mlx_context_fork()
 * @retval COW_MLX_ECANCELED  cancelled; nothing was written
 */
COW_MLX_API cow_mlx_status cow_mlx_context_save(cow_mlx_context context, const char* path);

/**
 * Make a context hold what another, perhaps of an earlier process, has saved. A generation under
 * way ends. A call that fails changes nothing, but where tokens are processed again: then the
 * context holds those that were.
 *
 * @retval COW_MLX_ENOENT     no such file
 * @retval COW_MLX_EFORMAT    damaged, of another version, or saved with another model, tokenizer,
 *                            adapter, or kv_bits
 * @retval COW_MLX_ECONTEXT   it holds more tokens than this context may
 * @retval COW_MLX_ESTATE     another call is running on the context
 * @retval COW_MLX_ECANCELED  cancelled
 */
COW_MLX_API cow_mlx_status cow_mlx_context_load(cow_mlx_context context, const char* path);

/**
 * Tell about a context, as a JSON object: the effective parameters ("max_tokens", "kv_bits",
 * "kv_group_size", "solo", "priority", "overflow", "keep_tokens", "share_prefix"), "adapter" (the
 * handle it was set with, even if that has been freed since, or null), "tokens" (held now), "bytes"
 * of the cache, "generating", "alone" (why it is never decoded in a batch with other contexts, or
 * null), and of the last begin "prompt" (its tokens), "reused" (those that were not processed
 * again), "shared" (those of them that another context had processed), "recomputed" (held before,
 * and processed again), "dropped" (tokens that rolled out of the window), "first_difference" (index
 * of the first token that was not as this context held it, or null), "rebuilt" (why nothing could
 * be reused, or null) and "batched" (tokens whose step was taken together with other contexts).
 *
 * "error" is for hosts that hear of a call's end on another thread than the one that made it,
 * where cow_mlx_error_message() does not know of it: of the last call on this context that failed
 * {"status": "ECANCELED", "message": "context_begin: ...", "reason": "canceled", "details": {}}, as
 * cow_mlx_error_details() has them, from before it returns until a begin,
 * generate or chat starts; otherwise null. Not told are COW_MLX_EBUFFER, COW_MLX_ETIMEDOUT of a
 * poll, failures of the calls that only look on, and what is refused before it reaches the
 * context (NULL pointers, impossible sizes).
 */
COW_MLX_API cow_mlx_status cow_mlx_context_info(cow_mlx_context context, char* buffer,
                                                size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_CONTEXT_H */

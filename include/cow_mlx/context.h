/* Contexts: creating, copying, trimming, keeping and saving them.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_CONTEXT_H
#define COW_MLX_CONTEXT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- Contexts */

/** The behaviour of a context that holds as many tokens as it may. */
enum {
  COW_MLX_OVERFLOW_STOP = 0, /**< a longer prompt is COW_MLX_ECONTEXT, a generation ends */
  COW_MLX_OVERFLOW_ROLL = 1  /**< tokens after the first keep_tokens are dropped, a quarter at a
                                  time, and the rest is processed again: the next tokens are
                                  those of a fresh context with the rest */
};

typedef struct cow_mlx_context_params {
  size_t struct_size;
  size_t max_tokens;     /**< tokens the context may hold; 0: the model's context length */
  int32_t kv_bits;       /**< 0: keys and values in the model's type. 4 or 8: quantized, except in
                              layers with a sliding window, if model_info says that the cache can
                              "quantise". Only contexts with equal kv_bits and kv_group_size share
                              a batch */
  int32_t kv_group_size; /**< values that share a scale: 32, 64 or 128; 0: 64, or 32 where a
                              head is not a multiple of 64 wide */
  bool solo;             /**< never share a batch with other contexts */
  int32_t priority;      /**< below 0: steps only while no other context has work */
  int32_t overflow;      /**< one of COW_MLX_OVERFLOW_; default STOP */
  size_t keep_tokens;    /**< with ROLL: tokens at the front that are never dropped */
  /** reuse processed prompts of the model's other contexts, and share those of this one */
  bool share_prefix COW_MLX_DEFAULT(true);
  /** tokens between two states that are kept inside a prompt for later prompts, where the cache
   *  cannot drop tokens in place. States at the borders of messages are kept, too, of prompts from
   *  cow_mlx_context_chat() and cow_mlx_model_chat_prompt(). 32 or more; 0: only these. Needs
   *  share_prefix */
  size_t checkpoint_interval COW_MLX_DEFAULT(1024);
} cow_mlx_context_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_context_params_init(cow_mlx_context_params* COW_MLX_NULLABLE params,
                                             size_t size);

/**
 * Create a context: an empty sequence with a cache. While a context has work it also has an mlx
 * stream, and with it a thread. If no thread can be started, the call that needs it is
 * COW_MLX_ENOMEM, and nothing is lost.
 *
 * @param out  receives the handle
 * @retval COW_MLX_EINVAL        max_tokens is more than the model's context length, or
 *                               another value is out of range
 * @retval COW_MLX_EUNSUPPORTED  the model's cache cannot be quantized this way
 */
COW_MLX_API cow_mlx_status
cow_mlx_context_create(cow_mlx_model model, const cow_mlx_context_params* COW_MLX_NULLABLE params,
                       cow_mlx_context* out);

/**
 * Free a context. A call that runs on it in another thread returns COW_MLX_ECANCELED.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_free(cow_mlx_context context);

/**
 * Create a copy of a context: tokens, state, parameters and adapter.
 *
 * Both share arrays until either writes to them. A running generation is not forked: the new
 * context holds the prompt and the tokens that the host has received.
 *
 * @param out  receives the handle
 * @retval COW_MLX_ESTATE  another call is running on the context; or there is a computed piece
 *                         that the host has not taken (it did not fit its buffer, context_poll or
 *                         a wake_fd requested it, or a cancel came before it), and the cache
 *                         cannot drop tokens in place: cow_mlx_context_next() takes it
 */
COW_MLX_API cow_mlx_status cow_mlx_context_fork(cow_mlx_context context, cow_mlx_context* out);

/** Clear all tokens and end the generation; parameters and adapter stay. */
COW_MLX_API cow_mlx_status cow_mlx_context_reset(cow_mlx_context context);

/**
 * Get the tokens that the cache holds, prompt and generated ones.
 *
 * A generated token enters the cache when it is processed to predict the next one, so the last
 * token of an ended generation may be missing. Rows of embeddings are -1, positions
 * of images the ids of cow_mlx_model_chat_prompt().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_tokens(cow_mlx_context context, int32_t* tokens,
                                                  size_t capacity, size_t* count);

/**
 * Drop the last tokens of a context. A running generation ends.
 *
 * A cache that cannot drop tokens (cow_mlx_model_info(), "cache") processes the remaining tokens
 * again. The next tokens are those of a fresh context with the remaining tokens.
 *
 * @param count    tokens to drop; more than there are means all
 * @param trimmed  receives the number of dropped tokens
 * @retval COW_MLX_ESTATE     another call is running on the context
 * @retval COW_MLX_ECANCELED  cancelled while tokens were processed again
 */
COW_MLX_API cow_mlx_status cow_mlx_context_trim_end(cow_mlx_context context, size_t count,
                                                    size_t* trimmed);

/**
 * Drop the first tokens of a context, and move the others to the front.
 *
 * They are processed again, so their positions and attention are exact. Otherwise as
 * cow_mlx_context_trim_end().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_trim_front(cow_mlx_context context, size_t count,
                                                      size_t* trimmed);

/**
 * Record the state of a context for cow_mlx_context_rewind(): exact for every kind of cache.
 *
 * Checkpoint and context share arrays until the context writes to them.
 *
 * @param out  receives the handle; freeing the context also frees it
 * @retval COW_MLX_ESTATE  as cow_mlx_context_fork()
 */
COW_MLX_API cow_mlx_status cow_mlx_context_checkpoint(cow_mlx_context context,
                                                      cow_mlx_checkpoint* out);

/**
 * Restore the state of a checkpoint, any number of times. A running generation ends.
 *
 * @retval COW_MLX_EINVAL  the checkpoint belongs to another context
 * @retval COW_MLX_ESTATE  another call is running on the context, or its adapter has changed
 *                         since
 */
COW_MLX_API cow_mlx_status cow_mlx_context_rewind(cow_mlx_context context,
                                                  cow_mlx_checkpoint checkpoint);

/** Free a checkpoint. */
COW_MLX_API cow_mlx_status cow_mlx_checkpoint_free(cow_mlx_checkpoint checkpoint);

/**
 * Write a context to a file (safetensors), so that a later process need not process the tokens
 * again. Other contexts continue meanwhile.
 *
 * The file is written completely or not at all: a failure or a crash leaves the old one. For a
 * model on several machines the file has only the tokens, and another such model of the same
 * folder processes them again.
 *
 * @retval COW_MLX_EUNSUPPORTED  the context holds rows of embeddings
 * @retval COW_MLX_ENOENT     the folder does not exist
 * @retval COW_MLX_EIO        the file cannot be written
 * @retval COW_MLX_ENOMEM     also: there is too little memory to process the tokens again, whose
 *                            state was dropped
 * @retval COW_MLX_ESTATE     as cow_mlx_context_fork()
 * @retval COW_MLX_ECANCELED  cancelled; nothing was written
 */
COW_MLX_API cow_mlx_status cow_mlx_context_save(cow_mlx_context context, const char* path);

/**
 * Load a saved context, also one from an earlier process. A running generation ends. A call that
 * fails changes nothing, with one exception: if it fails while it processes tokens again, the
 * context holds the tokens processed so far.
 *
 * @retval COW_MLX_ENOENT     no such file
 * @retval COW_MLX_EFORMAT    damaged, of another version, or saved with another model, tokenizer,
 *                            adapter, or kv_bits
 * @retval COW_MLX_ECONTEXT   it has more tokens than this context may hold
 * @retval COW_MLX_ENOMEM     also: there is too little memory for it
 * @retval COW_MLX_ESTATE     another call is running on the context
 * @retval COW_MLX_ECANCELED  cancelled
 */
COW_MLX_API cow_mlx_status cow_mlx_context_load(cow_mlx_context context, const char* path);

/**
 * Save a context to memory: what cow_mlx_context_save() writes to a file, byte by byte.
 *
 * @param out  receives the handle of an array of bytes (uint8), which cow_mlx_array_view() and
 *             cow_mlx_array_read() give to the host
 * @retval COW_MLX_EUNSUPPORTED  it has 2 GiB or more: write it to a file; or as
 *                               cow_mlx_context_save()
 * @retval COW_MLX_ENOMEM     also: runtime_params.memory_limit leaves too little
 * @retval COW_MLX_ESTATE     as cow_mlx_context_fork()
 * @retval COW_MLX_ECANCELED  cancelled; there is no array
 */
COW_MLX_API cow_mlx_status cow_mlx_context_save_array(cow_mlx_context context, cow_mlx_array* out);

/**
 * Load a context from memory that holds what a file of cow_mlx_context_save() does. Otherwise as
 * cow_mlx_context_load().
 *
 * @param array  of one axis of bytes (uint8), such as cow_mlx_array_create() makes of the host's
 *               memory; nothing keeps or changes it. An array has less than 2 GiB
 * @retval COW_MLX_EINVAL     the array has another dtype or shape
 * @retval COW_MLX_EFORMAT    as cow_mlx_context_load()
 * @retval COW_MLX_ECONTEXT   as cow_mlx_context_load()
 * @retval COW_MLX_ESTATE     another call is running on the context, or a run is still computing
 * the array
 * @retval COW_MLX_ECANCELED  cancelled
 */
COW_MLX_API cow_mlx_status cow_mlx_context_load_array(cow_mlx_context context, cow_mlx_array array);

/**
 * Describe a context as a JSON object:
 *
 * - the effective parameters "max_tokens", "kv_bits", "kv_group_size", "solo", "priority",
 *   "overflow", "keep_tokens", "share_prefix", "checkpoint_interval".
 * - "adapter": the handle that was set, even if it has been freed since, or null.
 * - "tokens" (held now), "bytes" of the cache, "generating".
 * - "estimate": bytes beside the weights that the last generation takes at its peak, with all of
 *   max_tokens; null if nothing has begun or it is unknown.
 * - "alone": why it is never decoded in a batch with other contexts, or null.
 * - for the last begin: "prompt" (its tokens), "reused" (not processed again), "shared" (reused
 *   from the prompts that the model's contexts share), "recomputed" (held before, and processed
 *   again), "dropped" (rolled out of the window), "first_difference" (index of the first token that
 *   differs from the context's, or null), "rebuilt" (why nothing could be reused, or null: an
 *   idle context's keys and values may have been given back when memory was short) and
 *   "batched" (tokens decoded in a batch with other contexts).
 *
 * "error" is for hosts that get a call's status on another thread, where cow_mlx_error_message()
 * does not know it. It describes the last failed call on this context, {"status": "ECANCELED",
 * "message": "context_begin: ...", "reason": "canceled", "details": {}}, as in
 * cow_mlx_error_details(). It is set before that call returns, until a begin, generate or chat
 * starts; otherwise it is null. It leaves out COW_MLX_EBUFFER, COW_MLX_ETIMEDOUT of a poll,
 * failures of read-only calls, and calls that are refused before they reach the context (NULL
 * pointers, impossible sizes).
 */
COW_MLX_API cow_mlx_status cow_mlx_context_info(cow_mlx_context context, char* buffer,
                                                size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_CONTEXT_H */

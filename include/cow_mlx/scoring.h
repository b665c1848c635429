/* Log probabilities, logits and hidden states of given tokens.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_SCORING_H
#define COW_MLX_SCORING_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- Scoring */

/*
 * These calls process tokens behind those that a context holds, with its adapter and its kv_bits,
 * on a copy of its state: the context does not change, and its next begin does not see the tokens.
 * An empty context scores tokens from the start of a text. Tokens are processed in chunks, between
 * which other contexts generate. Only one chunk's logits are in memory at a time: at most 16
 * million numbers. The context is busy meanwhile; cow_mlx_context_cancel() ends the call.
 */

/**
 * Get the log probability of each token given the tokens before it, and of the most probable tokens
 * in its place.
 *
 * The result has a row of 1 + top entries for each token: first the token itself, then the most
 * probable tokens, the most probable first. Values are natural logarithms of the model's softmax.
 * Behind an empty context the first token has none: its value is NaN, as are those of its
 * alternatives, whose ids are -1. Fill both buffers with count * (1 + top) entries.
 *
 * @param tokens      they follow those that the context holds
 * @param count       at least 1
 * @param top         alternatives, 0 to the size of the vocabulary
 * @param candidates  receives token ids; may be NULL if capacity is 0
 * @param logprobs    receives as many values
 * @param capacity    size of both buffers
 * @param length      receives count * (1 + top)
 * @retval COW_MLX_EINVAL        no tokens, one outside the vocabulary, or top out of range
 * @retval COW_MLX_ECONTEXT      count and the tokens held are more than the context may hold
 * @retval COW_MLX_EUNSUPPORTED  the model runs on several machines
 * @retval COW_MLX_ENOMEM        also: there is too little memory for the copy and a chunk's logits
 * @retval COW_MLX_EBUFFER       capacity is too small; *length is the size needed, and nothing was
 *                               processed
 * @retval COW_MLX_ESTATE        as cow_mlx_context_fork(); also: the context holds a part of an
 *                               image, since its prompt was cancelled
 * @retval COW_MLX_ECANCELED     cancelled; nothing was changed
 */
COW_MLX_API cow_mlx_status cow_mlx_context_prompt_logprobs(
    cow_mlx_context context, const int32_t* tokens, size_t count, int32_t top,
    int32_t* COW_MLX_NULLABLE candidates, float* logprobs, size_t capacity, size_t* length);

/**
 * Get the model's logits at chosen positions of given tokens.
 *
 * The result has a row for each position, in the order of the positions: a value for every token of
 * the vocabulary. Logits at position i are those after tokens[i], for the token that would follow
 * it. The memory for all rows counts as that of the call.
 *
 * @param tokens          they follow those that the context holds
 * @param count           at least 1
 * @param positions       indices of tokens, in any order
 * @param position_count  at least 1
 * @param logits          receives position_count rows
 * @param capacity        size of logits in values
 * @param length          receives position_count * the size of the vocabulary
 * @retval COW_MLX_EINVAL  also: a position is not below count
 *
 * Otherwise as cow_mlx_context_prompt_logprobs().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_prompt_logits(cow_mlx_context context,
                                                         const int32_t* tokens, size_t count,
                                                         const int32_t* positions,
                                                         size_t position_count, float* logits,
                                                         size_t capacity, size_t* length);

/**
 * Get the hidden states of given tokens: those of the model's last layer, after its norm, which its
 * head makes logits of. cow_mlx_model_embed() pools them.
 *
 * @param tokens    they follow those that the context holds
 * @param count     at least 1
 * @param states    receives a row of values for each token
 * @param capacity  size of states in values
 * @param length    receives count * the values of a row
 * @retval COW_MLX_EUNSUPPORTED  also: this architecture gives no access to its hidden states
 *
 * Otherwise as cow_mlx_context_prompt_logprobs().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_hidden_states(cow_mlx_context context,
                                                         const int32_t* tokens, size_t count,
                                                         float* states, size_t capacity,
                                                         size_t* length);

/**
 * Compute the perplexity of a text: the exponential of the mean negative log probability of its
 * tokens.
 *
 * The text is tokenized as by cow_mlx_model_tokenize() with COW_MLX_ADD_SPECIAL, and cut into
 * windows of so many tokens. Each window is processed from an empty state; its first token is not
 * scored. The context's tokens are not used and do not change. mlx-lm's perplexity is the same for
 * the same windows, but leaves out a last window that is shorter.
 *
 * @param text        UTF-8; may be NULL if length is 0
 * @param length      bytes of text, or COW_MLX_NUL
 * @param window      tokens, at least 2; 0: as many as the context may hold
 * @param perplexity  receives the perplexity
 * @param deviation   receives its standard error, by the delta method; NaN with one scored token
 * @param scored      receives the number of scored tokens
 * @retval COW_MLX_EINVAL        the text is not UTF-8 or has fewer than 2 tokens; window is out of
 *                               range
 *
 * Otherwise as cow_mlx_context_prompt_logprobs().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_perplexity(cow_mlx_context context,
                                                      const char* COW_MLX_NULLABLE text,
                                                      size_t length, size_t window,
                                                      double* perplexity, double* deviation,
                                                      size_t* scored);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_SCORING_H */

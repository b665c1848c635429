/*
 * The 17 names of CowMLX, the C bridge of the Swift port of mlx, for hosts that
 * were written for it. New hosts use cow_mlx.h, on which these are thin.
 *
 * Handles are the same integers as in cow_mlx.h, so both can be mixed. Every
 * function may be called from any thread. cow_mlx_get_error() explains the last
 * failure of the calling thread.
 */
#ifndef COW_MLX_COMPAT_H
#define COW_MLX_COMPAT_H

#include "cow_mlx.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Why the thread's last call failed, or NULL if it did not. Valid until its next call. */
COW_MLX_API const char* cow_mlx_get_error(void);

/** Start the runtime. @return whether it runs */
COW_MLX_API bool cow_mlx_init(void);

/** Undo one cow_mlx_init(). */
COW_MLX_API void cow_mlx_shutdown(void);

/** Load a model folder. @param progress may be NULL; false cancels. @return a model, or -1 */
COW_MLX_API int32_t cow_mlx_load_model(const char* path,
                                       bool (*progress)(float fraction, void* user_data),
                                       void* user_data);

/** Free a model. */
COW_MLX_API void cow_mlx_free_model(int32_t model);

/** A number that stands for a model in cow_mlx_model_from_id(). @return -1 if there is none */
COW_MLX_API int64_t cow_mlx_model_get_id(int32_t model);

/** The model that a number stands for. @return -1 if it is not loaded any more */
COW_MLX_API int32_t cow_mlx_model_from_id(int64_t id);

/** Open a context of at most max_tokens tokens; 0 or less: the model's. @return it, or -1 */
COW_MLX_API int32_t cow_mlx_create_context(int32_t model, int32_t max_tokens);

/** Free a context. */
COW_MLX_API void cow_mlx_free_context(int32_t context);

/** Forget a context's tokens. @return whether that was possible */
COW_MLX_API bool cow_mlx_reset_context(int32_t context);

/**
 * Turn text into tokens.
 *
 * @param length       bytes of text, or -1 for all of a NUL-terminated one
 * @param tokens       receives up to capacity tokens
 * @param add_special  add the tokens that open (and close) a text
 * @return how many tokens; -(needed) if capacity is too small; -1 on an error
 *         (or for a need of 1: cow_mlx_get_error() then names the capacity)
 */
COW_MLX_API int32_t cow_mlx_tokenize(int32_t model, const char* text, int32_t length,
                                     int32_t* tokens, int32_t capacity, bool add_special);

/** Whether a token ends a generation of the model. */
COW_MLX_API bool cow_mlx_is_eog(int32_t model, int32_t token);

/**
 * Process a prompt and be ready to generate, without a limit but the context's.
 *
 * @param top_p, top_k, min_p    0: off
 * @param repeat_penalty         0 or 1: off; repeat_window 0 or less: 20
 * @return whether generation can start
 */
COW_MLX_API bool cow_mlx_generate_begin(int32_t context, const int32_t* tokens, int32_t count,
                                        float temperature, float top_p, int32_t top_k, float min_p,
                                        float repeat_penalty, int32_t repeat_window, int32_t seed);

/**
 * Generate one token.
 *
 * @return bytes of whole UTF-8 characters written, 0 inside a character;
 *         -(needed) if capacity is too small, and nothing is lost; -1 when the
 *         generation is done, where alone cow_mlx_get_error() is NULL, or on an
 *         error
 */
COW_MLX_API int32_t cow_mlx_generate_next(int32_t context, char* text, int32_t capacity);

/** How many tokens a context holds. @return -1 if there is no such context */
COW_MLX_API int32_t cow_mlx_cache_token_count(int32_t context);

/** Drop the last tokens of a context. @return how many were dropped, or -1 */
COW_MLX_API int32_t cow_mlx_cache_trim_end(int32_t context, int32_t count);

/** Drop the first tokens of a context. @return how many were dropped, or -1 */
COW_MLX_API int32_t cow_mlx_cache_trim_front(int32_t context, int32_t count);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_COMPAT_H */

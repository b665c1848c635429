/* Embeddings: vectors for texts.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_EMBEDDING_H
#define COW_MLX_EMBEDDING_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ Embeddings */

/** The hidden states that become the embedding of a text. */
enum {
  COW_MLX_POOLING_MEAN = 0, /**< the mean of all */
  COW_MLX_POOLING_LAST = 1, /**< the state of the last token */
  COW_MLX_POOLING_CLS = 2   /**< the state of the first token */
};

typedef struct cow_mlx_embed_params {
  size_t struct_size;
  int32_t pooling;                           /**< one of COW_MLX_POOLING_; default MEAN */
  bool normalize COW_MLX_DEFAULT(true);      /**< to length 1 (L2) */
  bool add_special COW_MLX_DEFAULT(true);    /**< add the tokens that open (and close) a text */
  size_t batch_tokens COW_MLX_DEFAULT(2048); /**< tokens processed at a time, padding included */
} cow_mlx_embed_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_embed_params_init(cow_mlx_embed_params* COW_MLX_NULLABLE params,
                                           size_t size);

/**
 * Compute the embeddings of texts: pooled hidden states of the model's last layer, after its
 * norm.
 *
 * Texts are tokenized as by cow_mlx_model_tokenize(), and processed in batches of similar
 * length. Contexts generate meanwhile.
 *
 * @param texts     count texts
 * @param out       receives count rows of *dims values
 * @param capacity  size of out in values
 * @param dims      receives the number of values per text
 * @retval COW_MLX_EINVAL        a text is not UTF-8, or has no tokens (the message gives its
 *                               index), or has a piece that cannot be cut and is too long
 * @retval COW_MLX_ECONTEXT      a text is longer than the model's context length
 * @retval COW_MLX_EUNSUPPORTED  this architecture gives no access to its hidden states
 * @retval COW_MLX_EBUFFER       capacity is less than count times *dims, which is written
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_embed(cow_mlx_model model, const cow_mlx_text* texts,
                                               size_t count,
                                               const cow_mlx_embed_params* COW_MLX_NULLABLE params,
                                               float* out, size_t capacity, size_t* dims);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_EMBEDDING_H */

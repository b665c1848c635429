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
  COW_MLX_POOLING_MEAN = 0,     /**< the mean of all */
  COW_MLX_POOLING_LAST = 1,     /**< the state of the last token */
  COW_MLX_POOLING_CLS = 2,      /**< the state of the first token */
  COW_MLX_POOLING_MAX = 3,      /**< the largest value of all in each place */
  COW_MLX_POOLING_WEIGHTED = 4, /**< the mean of all, the state of token n counted n times */
  COW_MLX_POOLING_MODEL = 5     /**< as the folder's sentence-transformers files say; else MEAN */
};

typedef struct cow_mlx_embed_params {
  size_t struct_size;
  /** one of COW_MLX_POOLING_ */
  int32_t pooling COW_MLX_DEFAULT(COW_MLX_POOLING_MODEL);
  bool normalize COW_MLX_DEFAULT(true);      /**< to length 1 (L2) */
  bool add_special COW_MLX_DEFAULT(true);    /**< add the tokens that open (and close) a text */
  size_t batch_tokens COW_MLX_DEFAULT(2048); /**< tokens processed at a time, padding included */
  const char* prompt;      /**< text in front of every text; NULL (default): as prompt_name says */
  const char* prompt_name; /**< the name of a prompt in the folder, such as "query"; NULL (default):
                                the one that the folder names, if it does */
  size_t max_tokens;    /**< tokens of a text, which is cut at its end; 0 (default): nothing is cut,
                             and a text that is too long is refused */
  size_t truncate_dims; /**< the first values of a vector that are kept, before it is normalized,
                           for models that are trained for it (Matryoshka); 0 (default): the
                           folder's truncate_dim, or all */
  size_t token_vectors; /**< the number of rows per text, one vector per token; rows behind the
                             last token are zeros. A text may have no more tokens. Encoders alone;
                             0 (default): one vector per text */
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
 * Folders of sentence-transformers (modules.json) say what they were trained with: the pooling,
 * dense layers behind it, prompts, max_seq_length, do_lower_case and truncate_dim. The dense layers
 * always apply. cow_mlx_model_info(), "sentences", shows the rest.
 *
 * With params.token_vectors every token has a vector (ColBERT, arXiv 2004.12832): vector t of text
 * i begins at out + i * *dims + t * *dims / token_vectors. Each is normalized, and dense layers of
 * a folder without a pooling apply to each. The first and last tokens are those that add_special
 * adds.
 *
 * @param texts     count texts
 * @param out       receives count rows of *dims values
 * @param capacity  size of out in values
 * @param dims      receives the number of values per text, those of all of its token_vectors
 * @retval COW_MLX_EINVAL        a text is not UTF-8, or has no tokens (the message gives its
 *                               index), or has a piece that cannot be cut and is too long
 * @retval COW_MLX_ECONTEXT      a text is longer than the model's context length or the folder's
 *                               max_seq_length, and max_tokens is 0
 * @retval COW_MLX_EUNSUPPORTED  this architecture gives no access to its hidden states
 * @retval COW_MLX_ENOMEM        also: there is too little memory even for one text at a time
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

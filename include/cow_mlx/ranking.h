/* Ranking documents by a query.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_RANKING_H
#define COW_MLX_RANKING_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- Ranking */

/**
 * The method of ranking is a model that answers yes or no, or the classification head of a folder
 * whose config.json names an architecture "…ForSequenceClassification".
 */
typedef struct cow_mlx_rank_params {
  size_t struct_size;
  const char* prompt; /**< the model's prompt. {query}, {document} and {instruction} stand for the
                           texts; special tokens are parsed in the prompt, not in the texts. NULL
                           (default): that of Qwen3-Reranker where the tokenizer has its
                           special tokens; with a head the tokenizer's form of a pair */
  const char* instruction; /**< how a document should serve the query; NULL (default): "Given a
                                web search query, retrieve relevant passages that answer the
                                query" */
  const char* yes;         /**< the token whose logit speaks for a document; NULL (default): yes */
  const char* no;          /**< the token that speaks against it; NULL (default): no */
  /** to probabilities: the sigmoid of a single score, the softmax of several */
  bool normalize COW_MLX_DEFAULT(true);
  bool truncate;     /**< cut a document that is too long at its end; default false: it is
                          refused */
  size_t max_tokens; /**< of a prompt; 0 (default): the model's context length */
  size_t batch_tokens COW_MLX_DEFAULT(2048); /**< tokens processed at a time, padding included */
} cow_mlx_rank_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_rank_params_init(cow_mlx_rank_params* COW_MLX_NULLABLE params,
                                          size_t size);

/**
 * Score how well documents fit a query, as rerankers do: the higher a score, the better.
 *
 * An encoder with a head (a cross-encoder) reads query and document as a pair, and its head reads
 * the token that it was trained with.
 *
 * A model that answers yes or no gives one score: the logit of params.yes minus that of params.no
 * after the prompt (Qwen3-Reranker, arXiv 2506.05176). A classification head gives a score for each
 * label, from the hidden state of the last token; model_info names the labels. Prompts are
 * processed in batches of similar length. Contexts generate meanwhile.
 *
 * @param query      NUL-terminated
 * @param documents  count texts
 * @param scores     receives count rows of *labels values, in the order of the documents
 * @param capacity   size of scores in values
 * @param labels     receives the values per document: 1, or the labels of a classification head
 * @retval COW_MLX_EINVAL        a text is not UTF-8; a prompt lacks {query} or {document}, or has
 *                               no place for a given instruction; yes or no is not a single token,
 *                               or is given to a model with a head
 * @retval COW_MLX_ECONTEXT      a prompt has too many tokens (the document's index), or, with
 *                               params.truncate, it has too many without its document
 * @retval COW_MLX_EUNSUPPORTED  this architecture gives no access to its hidden states; no prompt
 *                               is given, and none is known for this tokenizer; the model runs on
 *                               several machines
 * @retval COW_MLX_ENOMEM        also: there is too little memory even for one prompt at a time
 * @retval COW_MLX_EBUFFER       capacity is less than count times *labels, which is written
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_rank(cow_mlx_model model, const char* query,
                                              const cow_mlx_text* documents, size_t count,
                                              const cow_mlx_rank_params* COW_MLX_NULLABLE params,
                                              float* scores, size_t capacity, size_t* labels);

/* -------------------------------------------------------- Classification */

/**
 * Find the labels of a text, by a model with a classification head (model_info, "tasks" has
 * "classify"). Gives a JSON object:
 *
 * - "labels": a list of all labels, the most probable first, each an object: "label", its name, and
 *   "probability".
 * - "multiple": whether any number of labels may hold for a text. Otherwise the sum of their
 *   probabilities is 1.
 *
 * A head for tokens ("…ForTokenClassification") gives "entities" instead: a list of the words that
 * belong together (BIO), each an object: "label" without its prefix, "text", "begin" and "end" in
 * bytes of the text, and "probability".
 *
 * To classify a pair of texts, call cow_mlx_model_rank(). Contexts generate meanwhile.
 *
 * @param text    UTF-8; may be NULL if length is 0
 * @param buffer  receives the JSON text
 * @param needed  receives its size in bytes
 * @retval COW_MLX_EINVAL        the text is not UTF-8, or has no tokens
 * @retval COW_MLX_ECONTEXT      the text is longer than the model's context length
 * @retval COW_MLX_EFORMAT       the scores are no finite numbers: the weights hold NaN or infinity,
 *                               or are too large
 * @retval COW_MLX_EUNSUPPORTED  the model has no classification head
 * @retval COW_MLX_ENOMEM        also: there is too little memory for the text
 * @retval COW_MLX_EBUFFER       capacity is too small; *needed is the size needed. Another call
 *                               computes again
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_classify(cow_mlx_model model,
                                                  const char* COW_MLX_NULLABLE text, size_t length,
                                                  char* buffer, size_t capacity, size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_RANKING_H */

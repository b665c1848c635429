/*
 * Put documents in the order in which they answer a query: rerank MODEL QUERY DOCUMENT...
 * The model is one that answers yes or no, such as Qwen3-Reranker, or has a classification head.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static const float* compared; /* of a document by its index */

static int by_score(const void* a, const void* b) {
  const float one = compared[*(const size_t*)a], other = compared[*(const size_t*)b];
  return (one < other) - (one > other);
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "rerank MODEL QUERY DOCUMENT...\n"), 2;
  const char* query = argv[2];
  char** documents = argv + 3;
  const size_t count = (size_t)argc - 3;

  cow_mlx_model model;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[1], NULL, &model));

  cow_mlx_rank_params params;
  cow_mlx_rank_params_init(&params, sizeof params);
  params.truncate = true;
  /* For a model whose prompt is not known, say what it was trained with. */
  params.prompt = getenv("RERANK_PROMPT");
  params.yes = getenv("RERANK_YES");
  params.no = getenv("RERANK_NO");

  cow_mlx_text* texts = calloc(count, sizeof *texts);
  float* scores = calloc(count, sizeof *scores);
  size_t* order = calloc(count, sizeof *order);
  if (!texts || !scores || !order) return 1;
  for (size_t i = 0; i < count; i++) {
    texts[i] = (cow_mlx_text){documents[i], strlen(documents[i])};
    order[i] = i;
  }
  size_t labels; /* a head with several would be a classifier, and no reranker */
  check(cow_mlx_model_rank(model, query, texts, count, &params, scores, count, &labels));
  compared = scores;
  qsort(order, count, sizeof *order, by_score);
  for (size_t i = 0; i < count; i++) printf("%.4f  %s\n", scores[order[i]], documents[order[i]]);

  free(order);
  free(scores);
  free(texts);
  check(cow_mlx_runtime_stop());
  return 0;
}

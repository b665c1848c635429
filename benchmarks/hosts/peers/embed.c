/*
 * llama.cpp as a host that embeds texts when asked: embed MODEL.gguf THREADS TEXTS BATCH
 *
 * TEXTS is a file with a text on each line; BATCH how many tokens are computed together. Texts of
 * similar length are computed together. Prints "ready IDLE" (MB, before the model is
 * loaded) and answers the lines of ../texts.h.
 */
#include <llama.h>
#include <math.h>
#include "../texts.h"

enum { MOST_TOGETHER = 64, MOST_TOKENS = 512 }; /* texts of a batch; tokens of a text */

static struct llama_model* model;
static struct llama_context* context;
static llama_batch batch;
static int32_t together;

typedef struct tokens {
  size_t text;
  int32_t count;
  llama_token ids[MOST_TOKENS];
} tokens;

static void stop(const char* what) {
  fprintf(stderr, "llama.cpp: %s\n", what);
  exit(1);
}

static void on_log(enum ggml_log_level level, const char* text, void* user_data) {
  (void)user_data;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static int shorter(const void* one, const void* other) {
  return ((const tokens*)one)->count - ((const tokens*)other)->count;
}

/* Compute the batch, which has these texts, and store their vectors, of length 1. */
static void compute(const texts* all, const tokens* own, int32_t count) {
  if (llama_encode(context, batch)) stop("llama_encode failed");
  for (int32_t i = 0; i < count; i++) {
    const float* from = llama_get_embeddings_seq(context, i);
    float* to = all->vectors + own[i].text * all->dims;
    double sum = 0;
    for (size_t d = 0; d < all->dims; d++) sum += (double)from[d] * from[d];
    for (size_t d = 0; d < all->dims; d++) to[d] = (float)(from[d] / sqrt(sum));
  }
  batch.n_tokens = 0;
}

static void embed(const texts* all, size_t first, size_t count) {
  static tokens own[MAX_TEXTS];
  const struct llama_vocab* vocabulary = llama_model_get_vocab(model);
  for (size_t i = 0; i < count; i++) {
    own[i].text = first + i;
    own[i].count = llama_tokenize(vocabulary, all->data[first + i], (int32_t)all->length[first + i],
                                  own[i].ids, MOST_TOKENS, true, false);
    if (own[i].count < 1) stop("a text is too long");
  }
  qsort(own, count, sizeof *own, shorter);
  size_t begin = 0;
  for (size_t i = 0; i < count; i++) {
    if (batch.n_tokens + own[i].count > together || i - begin == MOST_TOGETHER) {
      compute(all, own + begin, (int32_t)(i - begin));
      begin = i;
    }
    for (int32_t t = 0; t < own[i].count; t++) {
      int32_t at = batch.n_tokens++;
      batch.token[at] = own[i].ids[t];
      batch.pos[at] = t;
      batch.n_seq_id[at] = 1;
      batch.seq_id[at][0] = (llama_seq_id)(i - begin);
      batch.logits[at] = true;
    }
  }
  compute(all, own + begin, (int32_t)(count - begin));
}

int main(int argc, char** argv) {
  static texts all;
  if (argc != 5) return 2;
  together = atoi(argv[4]);
  llama_log_set(on_log, NULL);
  llama_backend_init();
  long idle = peak();
  model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) stop("cannot load the model");
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = (uint32_t)together;
  params.n_seq_max = MOST_TOGETHER;
  params.n_threads = params.n_threads_batch = atoi(argv[2]);
  params.embeddings = true;
  context = llama_init_from_model(model, params);
  if (!context) stop("cannot open a context");
  batch = llama_batch_init(together, 0, 1);
  read_texts(argv[3], &all);
  all.dims = (size_t)llama_model_n_embd(model);
  all.vectors = malloc(all.count * all.dims * sizeof(float));
  if (!all.vectors) return 2;
  ready_above(idle);
  answer_texts(&all, embed);
  free(all.vectors);
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  llama_backend_free();
  return 0;
}

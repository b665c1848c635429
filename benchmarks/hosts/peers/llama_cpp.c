/*
 * llama.cpp as a host that generates when asked: llama_cpp MODEL.gguf THREADS SEQUENCES CONTEXT
 *
 * CONTEXT is how many tokens each of the SEQUENCES may hold. Prints "ready START LOAD"
 * (milliseconds), then answers lines of two forms, always from an empty cache and greedily:
 * generate.c's "next COUNT TOKEN..." with "FIRST REST CPU TOKEN...", and crowd.c's
 * "together COUNT SEQUENCES TOKEN..." with "RATE FIRST SLOWEST FASTEST STEADY". All else is
 * llama.cpp's own choice: size of a batch, attention, type of the keys and values, repacking.
 */
#include <llama.h>
#include "../protocol.h"

static void stop(const char* what) {
  fprintf(stderr, "llama.cpp: %s\n", what);
  exit(1);
}

static void on_log(enum ggml_log_level level, const char* text, void* user_data) {
  (void)user_data;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

/* What is computed at once: places for a context's whole batch. */
static void add(llama_batch* batch, llama_token token, llama_pos position, llama_seq_id sequence,
                bool wanted) {
  int32_t i = batch->n_tokens++;
  batch->token[i] = token;
  batch->pos[i] = position;
  batch->n_seq_id[i] = 1;
  batch->seq_id[i][0] = sequence;
  batch->logits[i] = wanted;
}

static void compute(struct llama_context* context, llama_batch batch) {
  if (llama_decode(context, batch)) stop("llama_decode failed");
}

/* The most probable token behind the batch's token i. */
static llama_token best(struct llama_context* context, int32_t i) {
  const struct llama_vocab* vocabulary = llama_model_get_vocab(llama_get_model(context));
  const float* logits = llama_get_logits_ith(context, i);
  llama_token count = llama_vocab_n_tokens(vocabulary);
  llama_token chosen = 0;
  for (llama_token token = 1; token < count; token++) {
    if (logits[token] > logits[chosen]) chosen = token;
  }
  return chosen;
}

static void next(struct llama_context* context, llama_batch batch, const task* asked) {
  static int32_t tokens[MAX_TOKENS];
  llama_memory_clear(llama_get_memory(context), false);
  double spent = processor_time();
  double begun = now();
  batch.n_tokens = 0;
  for (size_t i = 0; i < asked->count; i++) {
    add(&batch, asked->prompt[i], (llama_pos)i, 0, i + 1 == asked->count);
  }
  compute(context, batch);
  tokens[0] = best(context, batch.n_tokens - 1);
  double first = now();
  for (size_t i = 1; i < asked->max_tokens; i++) {
    batch.n_tokens = 0;
    add(&batch, tokens[i - 1], (llama_pos)(asked->count + i - 1), 0, true);
    compute(context, batch);
    tokens[i] = best(context, 0);
  }
  printf("%.9f %.9f %.9f", first - begun, now() - first, processor_time() - spent);
  for (size_t i = 0; i < asked->max_tokens; i++) printf(" %d", tokens[i]);
  printf("\n");
}

static void together(struct llama_context* context, llama_batch batch, const task* asked) {
  static llama_token tokens[MAX_TOKENS];
  static int32_t ends[MAX_TOKENS];
  size_t rows = (size_t)asked->prompt[0];
  const int32_t* given = asked->prompt + 1;
  size_t length = asked->count - 1;
  llama_memory_clear(llama_get_memory(context), false);
  double begun = now();
  batch.n_tokens = 0;
  for (size_t row = 0; row < rows; row++) {
    for (size_t i = 0; i < length; i++) {
      add(&batch, given[(i + 7 * row) % length], (llama_pos)i, (llama_seq_id)row, i + 1 == length);
    }
    ends[row] = batch.n_tokens - 1;
  }
  compute(context, batch);
  for (size_t row = 0; row < rows; row++) tokens[row] = best(context, ends[row]);
  double first = now();
  for (size_t i = 1; i < asked->max_tokens; i++) {
    batch.n_tokens = 0;
    for (size_t row = 0; row < rows; row++) {
      add(&batch, tokens[row], (llama_pos)(length + i - 1), (llama_seq_id)row, true);
    }
    compute(context, batch);
    for (size_t row = 0; row < rows; row++) tokens[row] = best(context, (int32_t)row);
  }
  double time = now() - first;
  double each = (double)(asked->max_tokens - 1) / time;
  printf("%.6f %.6f %.6f %.6f %.6f\n", (double)(rows * asked->max_tokens) / time, first - begun,
         each, each, (double)rows * each);
}

int main(int argc, char** argv) {
  static task asked;
  if (argc != 5) return 2;
  int threads = atoi(argv[2]);
  uint32_t sequences = (uint32_t)atoi(argv[3]);
  uint32_t length = (uint32_t)atoi(argv[4]);
  double begun = now();
  llama_log_set(on_log, NULL);
  llama_backend_init();
  double started = now();
  struct llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) stop("cannot load the model");
  double loaded = now();
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = sequences * length;
  if (params.n_batch < params.n_ctx) params.n_batch = params.n_ctx;
  params.n_seq_max = sequences;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  struct llama_context* context = llama_init_from_model(model, params);
  if (!context) stop("cannot open a context");
  size_t most = llama_n_batch(context);
  llama_batch batch = llama_batch_init((int32_t)most, 0, 1);
  printf("ready %.3f %.3f\n", 1e3 * (started - begun), 1e3 * (loaded - started));
  fflush(stdout);
  while (read_task(&asked)) {
    bool many = strcmp(asked.kind, "together") == 0;
    size_t rows = many ? (size_t)asked.prompt[0] : 1;
    size_t given = many ? asked.count - 1 : asked.count;
    if (given < 1 || rows < 1 || rows > sequences || rows * given > most) return 2;
    if (given + asked.max_tokens > length || asked.max_tokens < 1U + many) return 2;
    (many ? together : next)(context, batch, &asked);
    fflush(stdout);
  }
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  llama_backend_free();
  return 0;
}

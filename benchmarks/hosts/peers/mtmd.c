/*
 * llama.cpp's mtmd as a host that is shown images: mtmd MODEL.gguf TOWER.gguf THREADS LENGTH
 *
 * Prints "ready", then answers lines "image COUNT SEED WIDTH HEIGHT BEFORE TOKEN..." as image.c.
 */
#include <llama.h>
#include <mtmd.h>
#include <mtmd-helper.h>
#include "../picture.h"

static void stop(const char* what) {
  fprintf(stderr, "mtmd: %s\n", what);
  exit(1);
}

static void on_log(enum ggml_log_level level, const char* text, void* user_data) {
  (void)user_data;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static void compute(struct llama_context* context, const int32_t* tokens, size_t count) {
  if (count && llama_decode(context, llama_batch_get_one((llama_token*)tokens, (int32_t)count)))
    stop("llama_decode failed");
}

static llama_token best(struct llama_context* context) {
  const struct llama_vocab* vocabulary = llama_model_get_vocab(llama_get_model(context));
  const float* logits = llama_get_logits_ith(context, -1);
  llama_token chosen = 0;
  for (llama_token token = 1; token < llama_vocab_n_tokens(vocabulary); token++) {
    if (logits[token] > logits[chosen]) chosen = token;
  }
  return chosen;
}

static void show_image(mtmd_context* eyes, struct llama_context* context, const task* asked) {
  mtmd_bitmap* bitmap = NULL;
  unsigned char* pixels = drawn(asked);
  bitmap = mtmd_bitmap_init((uint32_t)asked->prompt[WIDTH], (uint32_t)asked->prompt[HEIGHT], pixels);
  mtmd_input_chunks* chunks = mtmd_input_chunks_init();
  mtmd_input_text text = {.text = mtmd_get_marker(eyes), .parse_special = true};
  text.text_len = strlen(text.text);
  const mtmd_bitmap* bitmaps[] = {bitmap};
  if (mtmd_tokenize(eyes, chunks, &text, bitmaps, 1)) stop("mtmd_tokenize failed");
  for (size_t i = 0; i < mtmd_input_chunks_size(chunks); i++) {
    const mtmd_input_chunk* chunk = mtmd_input_chunks_get(chunks, i);
    if (mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_IMAGE) continue;
    llama_pos at = llama_memory_seq_pos_max(llama_get_memory(context), 0) + 1;
    int32_t most = (int32_t)llama_n_batch(context);
    if (mtmd_helper_eval_chunk_single(eyes, context, chunk, at, 0, most, false, &at))
      stop("an image cannot be processed");
  }
  mtmd_input_chunks_free(chunks);
  mtmd_bitmap_free(bitmap);
  free(pixels);
}

static void answer(mtmd_context* eyes, struct llama_context* context, const task* asked) {
  static int32_t tokens[MAX_TOKENS];
  const int32_t* given = asked->prompt + FIRST_TOKEN;
  size_t before = (size_t)asked->prompt[BEFORE], count = asked->count - FIRST_TOKEN;
  llama_memory_clear(llama_get_memory(context), false);
  double spent = processor_time();
  double begun = now();
  compute(context, given, before);
  show_image(eyes, context, asked);
  compute(context, given + before, count - before);
  tokens[0] = best(context);
  double first = now();
  for (size_t i = 1; i < asked->max_tokens; i++) {
    compute(context, tokens + i - 1, 1);
    tokens[i] = best(context);
  }
  printf("%.9f %.9f %.9f", first - begun, now() - first, processor_time() - spent);
  for (size_t i = 0; i < asked->max_tokens; i++) printf(" %d", tokens[i]);
  printf("\n");
}

int main(int argc, char** argv) {
  static task asked;
  if (argc != 5) return 2;
  llama_log_set(on_log, NULL);
  mtmd_helper_log_set(on_log, NULL);
  llama_backend_init();
  struct llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) stop("cannot load the model");
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = (uint32_t)atoi(argv[4]);
  params.n_threads = params.n_threads_batch = atoi(argv[3]);
  struct llama_context* context = llama_init_from_model(model, params);
  struct mtmd_context_params sight = mtmd_context_params_default();
  sight.use_gpu = false;
  sight.print_timings = false;
  sight.n_threads = atoi(argv[3]);
  mtmd_context* eyes = mtmd_init_from_file(argv[2], model, sight);
  if (!context || !eyes) stop("cannot open a context");
  ready();
  while (read_task(&asked)) {
    if (asked.count <= FIRST_TOKEN) return 2;
    answer(eyes, context, &asked);
    fflush(stdout);
  }
  mtmd_free(eyes);
  llama_free(context);
  llama_model_free(model);
  return 0;
}

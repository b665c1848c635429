/*
 * A host that generates when asked: generate MODEL [DRAFT]
 *
 * Prints "ready START LOAD" (milliseconds of runtime_start and of model_load), then
 * answers each line "KIND COUNT TOKEN..." with "FIRST REST CPU TOKEN...": seconds
 * to the first token, from there to the last, of processor time, and the tokens. KIND is "next" for
 * the loop of begin and next, or "callback" for generate, which gives no tokens. Both start from
 * an empty cache; other kinds of "next" are "warm", on the context's cache, "shared", on a new
 * context that may share processed prompts, "lookup" and "draft", which use drafts, "schema" and
 * "regex", whose output matches a grammar that never ends.
 */
#include "host.h"

static const char* ENDLESS_SCHEMA =
    "{\"type\": \"array\", \"minItems\": 100000, \"items\": {\"type\": \"object\", \"properties\": "
    "{\"name\": {\"type\": \"string\", \"maxLength\": 20}, \"age\": {\"type\": \"integer\", "
    "\"minimum\": 0, \"maximum\": 99}, \"kind\": {\"enum\": [\"cat\", \"dog\", \"cow\"]}}, "
    "\"required\": [\"name\", \"age\", \"kind\"], \"additionalProperties\": false}}";

static bool on_text(const char* text, size_t length, void* user_data) {
  (void)text;
  *(size_t*)user_data += length;
  return true;
}

/* A token may come without text, so the first one's time is the library's. */
static void generate(cow_mlx_context context, const task* asked,
                     const cow_mlx_generation_params* params, generated* out) {
  size_t bytes = 0;
  out->count = 0;
  cow_mlx_stats stats = {.struct_size = sizeof stats};
  double begun = now();
  check(cow_mlx_context_generate(context, asked->prompt, asked->count, params, on_text, &bytes,
                                 &stats));
  out->first = stats.first_token_seconds;
  out->rest = now() - begun - out->first;
}

static bool is(const task* asked, const char* kind) { return strcmp(asked->kind, kind) == 0; }

static void answer(cow_mlx_model model, cow_mlx_model draft, cow_mlx_context own,
                   const task* asked) {
  static generated out;
  cow_mlx_generation_params params = greedy(asked->max_tokens);
  if (is(asked, "lookup") || is(asked, "draft")) params.draft_tokens = 4;
  if (is(asked, "draft")) params.draft = draft;
  if (is(asked, "schema")) {
    params.grammar = ENDLESS_SCHEMA;
    params.grammar_kind = COW_MLX_GRAMMAR_JSON_SCHEMA;
  } else if (is(asked, "regex")) {
    params.grammar = "(?s:.*)";
    params.grammar_kind = COW_MLX_GRAMMAR_REGEX;
  }
  cow_mlx_context context = is(asked, "shared") ? open_context(model, true) : own;
  if (!is(asked, "warm")) check(cow_mlx_context_reset(context));
  double spent = processor_time();
  if (is(asked, "callback")) {
    generate(context, asked, &params, &out);
  } else {
    generate_tokens(context, asked->prompt, asked->count, &params, now(), &out);
  }
  spent = processor_time() - spent;
  if (context != own) check(cow_mlx_context_free(context));
  print_generated(&out, spent);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  static task asked;
  cow_mlx_model draft = 0;
  double begun = now();
  check(cow_mlx_runtime_start(NULL));
  double started = now();
  cow_mlx_model model = start(argv[1]);
  double loaded = now();
  if (argc == 3) check(cow_mlx_model_load(argv[2], NULL, &draft));
  cow_mlx_context context = open_context(model, false);
  printf("ready %.3f %.3f\n", 1e3 * (started - begun), 1e3 * (loaded - started));
  fflush(stdout);
  while (read_task(&asked)) answer(model, draft, context, &asked);
  return 0;
}

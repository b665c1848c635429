/*
 * Let a model fill in a form, as JSON: json_output [MODEL]
 * A grammar leaves it no other way: whatever it says has these keys and these types.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>

static const char* FORM =
    "{"
    "  \"type\": \"object\","
    "  \"properties\": {"
    "    \"name\": {\"enum\": [\"cow\", \"fox\", \"owl\"]},"
    "    \"colour\": {\"type\": \"string\", \"pattern\": \"^[a-z]{3,9}$\"},"
    "    \"sound\": {\"type\": \"string\", \"maxLength\": 12},"
    "    \"legs\": {\"type\": \"integer\", \"minimum\": 2, \"maximum\": 4},"
    "    \"tame\": {\"type\": \"boolean\"}"
    "  },"
    "  \"required\": [\"name\", \"colour\", \"sound\", \"legs\", \"tame\"],"
    "  \"additionalProperties\": false"
    "}";

static const char* QUESTIONS[] = {
    "[{\"role\": \"user\", \"content\": \"Describe a cow.\"}]",
    "[{\"role\": \"user\", \"content\": \"Describe an owl.\"}]",
};

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static bool print_text(const cow_mlx_event* event, void* user_data) {
  (void)user_data;
  if (event->kind == COW_MLX_EVENT_TEXT) fwrite(event->text, 1, event->length, stdout);
  return true;
}

int main(int argc, char** argv) {
  cow_mlx_model model;
  cow_mlx_context context;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argc > 1 ? argv[1] : "models/calf", NULL, &model));
  check(cow_mlx_context_create(model, NULL, &context));

  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.grammar = FORM;
  params.grammar_kind = COW_MLX_GRAMMAR_JSON_SCHEMA;
  for (size_t i = 0; i < sizeof QUESTIONS / sizeof *QUESTIONS; i++) {
    check(cow_mlx_context_chat(context, QUESTIONS[i], COW_MLX_NUL, &params, NULL, print_text, NULL,
                               NULL));
    printf("\n");
  }
  check(cow_mlx_runtime_stop());
  return 0;
}

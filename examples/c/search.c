/*
 * Search the lines of a file by meaning: search MODEL FILE QUERY...
 * The model is one for embeddings, such as all-MiniLM-L6-v2. Where its folder has prompts named
 * "query" and "document", they are used. Prints the best lines for each query.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 3 };

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* Read a file whole, with a NUL behind it. */
static char* contents(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) return perror(path), exit(1), NULL;
  char* text = NULL;
  size_t length = 0, got;
  do {
    text = realloc(text, length + (1 << 16) + 1);
    if (!text) abort();
    got = fread(text + length, 1, 1 << 16, file);
    length += got;
  } while (got);
  fclose(file);
  text[length] = '\0';
  return text;
}

/* Return a vector of *dims values for each text. */
static float* embed(cow_mlx_model model, const cow_mlx_text* texts, size_t count,
                    const char* prompt_name, size_t* dims) {
  cow_mlx_embed_params params;
  cow_mlx_embed_params_init(&params, sizeof params);
  params.prompt_name = prompt_name;
  /* A capacity of 0 asks for the size; nothing is computed. A model without this prompt has none.
   */
  cow_mlx_status status = cow_mlx_model_embed(model, texts, count, &params, NULL, 0, dims);
  if (status == COW_MLX_EINVAL) {
    params.prompt_name = NULL;
    status = cow_mlx_model_embed(model, texts, count, &params, NULL, 0, dims);
  }
  if (status != COW_MLX_EBUFFER) check(status);
  float* vectors = malloc(count * *dims * sizeof *vectors);
  if (!vectors) abort();
  check(cow_mlx_model_embed(model, texts, count, &params, vectors, count * *dims, dims));
  return vectors;
}

/* Print the lines whose vectors are nearest to the wanted one. */
static void show_best(const float* wanted, const float* vectors, size_t dims,
                      const cow_mlx_text* lines, size_t count) {
  float* similar = calloc(count, sizeof *similar);
  if (!similar) abort();
  for (size_t line = 0; line < count; line++)
    for (size_t d = 0; d < dims; d++) similar[line] += wanted[d] * vectors[line * dims + d];
  for (size_t shown = 0; shown < SHOWN && shown < count; shown++) {
    size_t best = 0;
    for (size_t line = 1; line < count; line++)
      if (similar[line] > similar[best]) best = line;
    printf("  %.4f  %s\n", similar[best], lines[best].data);
    similar[best] = -2; /* a cosine is at least -1 */
  }
  free(similar);
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "search MODEL FILE QUERY...\n"), 2;
  cow_mlx_model model;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[1], NULL, &model));

  char* text = contents(argv[2]);
  cow_mlx_text* lines = NULL;
  size_t count = 0, dims;
  for (char* line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
    lines = realloc(lines, (count + 1) * sizeof *lines);
    if (!lines) abort();
    lines[count++] = (cow_mlx_text){line, strlen(line)};
  }
  if (!count) return fprintf(stderr, "%s has no lines\n", argv[2]), 1;
  float* vectors = embed(model, lines, count, "document", &dims);

  for (int i = 3; i < argc; i++) {
    const cow_mlx_text query = {argv[i], strlen(argv[i])};
    float* wanted = embed(model, &query, 1, "query", &dims);
    printf("%s\n", argv[i]);
    show_best(wanted, vectors, dims, lines, count);
    free(wanted);
  }
  free(vectors);
  free(lines);
  free(text);
  check(cow_mlx_runtime_stop());
  return 0;
}

/*
 * A context that generates beside programs: beside MODEL FOLDER
 *
 * Prints "ready", then answers each line "KIND COUNT N TOKEN..." with "RATE MEDIAN LONGEST DONE
 * TURN": while another thread does the work KIND again and again, a context decodes COUNT tokens
 * behind the others; tokens/s, the median and the longest gap in seconds between two of them, how
 * often the work was done in a second, and the longest turn in seconds that program_info reports.
 * KIND is "nothing", "create" (FOLDER/create.json is made a program), "upload" (N float32 become an
 * array, which FOLDER/upload.json takes), or runs FOLDER/KIND.json on N float32 of the host's.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "host.h"

static atomic_bool ending;

typedef struct work {
  const task* asked;
  char* json;
  size_t length;
  float* numbers;
  int64_t count;
  size_t done;
  double turn;
} work;

static char* read_file(const char* folder, const char* kind, size_t* length) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.json", folder, kind);
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(1);
  *length = (size_t)ftell(file);
  char* text = malloc(*length + 1);
  rewind(file);
  if (!text || fread(text, 1, *length, file) != *length) exit(1);
  fclose(file);
  return text;
}

static cow_mlx_program made(const work* self) {
  cow_mlx_program program;
  check(cow_mlx_program_create(self->json, self->length, NULL, &program));
  return program;
}

static double longest_turn(cow_mlx_program program) {
  static char text[1 << 22];
  size_t length;
  check(cow_mlx_program_info(program, NULL, text, sizeof text - 1, &length));
  text[length] = 0;
  const char* found = strstr(text, "\"longest_turn\": ");
  return found ? strtod(found + strlen("\"longest_turn\": "), NULL) : 0;
}

static void run_once(const work* self, cow_mlx_program program, bool uploads) {
  cow_mlx_tensor tensor = {.struct_size = sizeof tensor,
                           .data = self->numbers,
                           .bytes = (size_t)self->count * sizeof(float),
                           .dtype = COW_MLX_FLOAT32,
                           .rank = 1,
                           .shape = &self->count};
  cow_mlx_value input = {.host = &tensor}, output = {0};
  if (uploads) {
    input.host = NULL;
    check(cow_mlx_array_create(&tensor, &input.array));
  }
  check(cow_mlx_program_run(program, &input, 1, &output, 1, NULL));
  check(cow_mlx_array_free(output.array));
  if (uploads) check(cow_mlx_array_free(input.array));
}

static void* carry_out(void* data) {
  work* self = data;
  if (strcmp(self->asked->kind, "create") == 0) {
    for (; !atomic_load(&ending); self->done++) check(cow_mlx_program_free(made(self)));
    return NULL;
  }
  bool uploads = strcmp(self->asked->kind, "upload") == 0;
  cow_mlx_program program = made(self);
  for (; !atomic_load(&ending); self->done++) run_once(self, program, uploads);
  self->turn = longest_turn(program);
  check(cow_mlx_program_free(program));
  return NULL;
}

/* Returns tokens/s. */
static double generate(cow_mlx_context context, const task* asked, double* median,
                       double* longest) {
  static double times[MAX_TOKENS], gaps[MAX_TOKENS];
  cow_mlx_generation_params params = greedy(asked->max_tokens);
  check(cow_mlx_context_reset(context));
  size_t tokens = decode(context, asked->prompt + 1, asked->count - 1, &params, times);
  size_t count = sorted_gaps(times, tokens, gaps);
  *median = gaps[count / 2];
  *longest = gaps[count - 1];
  return (double)count / (times[count] - times[0]);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  static task asked;
  cow_mlx_context context = open_context(start(argv[1]), false);
  ready();
  while (read_task(&asked)) {
    if (asked.count < 2) return 2;
    work beside = {.asked = &asked, .count = asked.prompt[0]};
    bool is_alone = strcmp(asked.kind, "nothing") == 0;
    pthread_t thread;
    atomic_store(&ending, false);
    double begun = now();
    if (!is_alone) {
      beside.json = read_file(argv[2], asked.kind, &beside.length);
      beside.numbers = calloc((size_t)beside.count, sizeof(float));
      if (!beside.numbers || pthread_create(&thread, NULL, carry_out, &beside)) return 1;
    }
    double median, longest, rate = generate(context, &asked, &median, &longest);
    atomic_store(&ending, true);
    double took = now() - begun;
    if (!is_alone) pthread_join(thread, NULL);
    printf("%.3f %.9f %.9f %.3f %.9f\n", rate, median, longest, (double)beside.done / took,
           beside.turn);
    fflush(stdout);
    free(beside.json);
    free(beside.numbers);
  }
  return 0;
}

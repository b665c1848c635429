/* Runs of small networks: inference FOLDER, where inference.py has written programs and arrays.
 *
 * Answers each line "NETWORK ROWS RUNS" as inference.py does: seconds of the median run, of the
 * best and of the processor, and the sum of the results. */
#include "host.h"

enum { MAX_VALUES = 64, MAX_RUNS = 4096, MAX_PATH = 1024, MAX_NAME = 32, MAX_TEXT = 1 << 20 };

/* A network for a number of rows; the input and the result are the host's memory. */
typedef struct network {
  char name[MAX_NAME];
  int rows;
  cow_mlx_program program;
  cow_mlx_value inputs[MAX_VALUES], output;
  size_t count, numbers; /* of inputs; of the result */
  int64_t shapes[2][COW_MLX_MAX_RANK];
  cow_mlx_tensor x, y;
  struct network* next;
} network;

/* Host memory of an array's size. */
static cow_mlx_tensor room_for(cow_mlx_array array, int64_t* shape) {
  cow_mlx_tensor made = {.struct_size = sizeof made, .shape = shape};
  size_t rank;
  check(cow_mlx_array_type(array, &made.dtype, shape, COW_MLX_MAX_RANK, &rank));
  made.rank = (int32_t)rank;
  made.bytes = sizeof(float);
  for (size_t d = 0; d < rank; d++) made.bytes *= (size_t)shape[d];
  made.data = calloc(made.bytes, 1);
  if (!made.data) exit(3);
  return made;
}

static void open_program(const char* folder, network* own) {
  static char text[MAX_TEXT];
  char path[MAX_PATH];
  snprintf(path, sizeof path, "%s/%s.json", folder, own->name);
  FILE* file = fopen(path, "r");
  if (!file) exit(4);
  const size_t length = fread(text, 1, sizeof text, file);
  fclose(file);
  check(cow_mlx_program_create(text, length, NULL, &own->program));
}

static network* opened(const char* folder, const char* name, int rows) {
  network* own = calloc(1, sizeof *own);
  if (!own) exit(3);
  snprintf(own->name, sizeof own->name, "%s", name);
  own->rows = rows;
  open_program(folder, own);
  char path[MAX_PATH], array[MAX_NAME];
  const char* names[] = {array};
  snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
  snprintf(array, sizeof array, "x%d", rows);
  cow_mlx_array x;
  check(cow_mlx_arrays_load(path, names, 1, &x));
  own->x = room_for(x, own->shapes[0]);
  check(cow_mlx_array_read(x, &own->x));
  own->inputs[own->count++].host = &own->x;
  for (; own->count < MAX_VALUES; own->count++) {
    snprintf(array, sizeof array, "p%zu", own->count - 1);
    cow_mlx_status status = cow_mlx_arrays_load(path, names, 1, &own->inputs[own->count].array);
    if (status == COW_MLX_EINVAL) break; /* that was the last parameter */
    check(status);
  }
  check(cow_mlx_program_run(own->program, own->inputs, own->count, &own->output, 1, NULL));
  own->y = room_for(own->output.array, own->shapes[1]);
  own->numbers = own->y.bytes / sizeof(float);
  check(cow_mlx_array_free(own->output.array));
  own->output = (cow_mlx_value){.host = &own->y};
  return own;
}

static void measure(network* own, size_t runs) {
  static double times[MAX_RUNS];
  const double spent = processor_time();
  for (size_t i = 0; i < runs; i++) {
    const double begun = now();
    check(cow_mlx_program_run(own->program, own->inputs, own->count, &own->output, 1, NULL));
    times[i] = now() - begun;
  }
  const double each = (processor_time() - spent) / (double)runs;
  qsort(times, runs, sizeof *times, compare);
  double sum = 0;
  for (size_t i = 0; i < own->numbers; i++) {
    const float value = ((const float*)own->y.data)[i];
    sum += value < 0 ? -value : value;
  }
  printf("%.9f %.9f %.9f %.9g\n", times[runs / 2], times[0], each, sum);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  params.device = "cpu";
  params.threads = 2;
  check(cow_mlx_runtime_start(&params));
  ready();
  char name[MAX_NAME];
  int rows;
  size_t runs;
  network* all = NULL;
  while (scanf("%31s %d %zu", name, &rows, &runs) == 3 && runs > 0 && runs <= MAX_RUNS) {
    network* own = all;
    while (own && (strcmp(own->name, name) || own->rows != rows)) own = own->next;
    if (!own) {
      own = opened(argv[1], name, rows);
      own->next = all;
      all = own;
    }
    measure(own, runs);
  }
  check(cow_mlx_runtime_stop());
  return 0;
}

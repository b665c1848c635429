/*
 * Trains a program on 24 rows of 5 numbers in 3 classes, saving after each step, and may kill
 * itself at any place: killed FOLDER PROGRAM OPTIMIZER STEPS WHEN DELAY
 *
 * It continues from FOLDER, and prints "from" and that step; then the step of each
 * checkpoint. SIGKILL comes DELAY microseconds after its WHENth step, 0 being its start; never if
 * WHEN is negative, and then it saves at the end alone.
 */
#define _XOPEN_SOURCE 700 /* setitimer */
#include <cow_mlx.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROWS = 24, WIDE = 5, CLASSES = 3, UNSEEN = 9 };

static struct itimerval alarm_at;
static long steps_until_alarm;

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static void killed(int number) {
  (void)number;
  kill(getpid(), SIGKILL);
}

static bool told(const cow_mlx_training_event* event, void* user_data) {
  (void)user_data;
  if (event->kind == COW_MLX_TRAINING_STEP && --steps_until_alarm == 0) {
    setitimer(ITIMER_REAL, &alarm_at, NULL);
  } else if (event->kind == COW_MLX_TRAINING_CHECKPOINT) {
    printf("%zu\n", event->step);
    fflush(stdout);
  }
  return true;
}

static cow_mlx_array array(void* data, size_t bytes, int32_t dtype, int64_t rows, int32_t rank) {
  const int64_t shape[] = {rows, WIDE};
  cow_mlx_tensor tensor = {.struct_size = sizeof tensor,
                           .data = data,
                           .bytes = bytes,
                           .dtype = dtype,
                           .rank = rank,
                           .shape = shape};
  cow_mlx_array made = 0;
  check(cow_mlx_array_create(&tensor, &made));
  return made;
}

static void make_rows(unsigned seed, int64_t rows, cow_mlx_array out[2]) {
  static float x[ROWS][WIDE];
  static int32_t y[ROWS];
  for (int64_t i = 0; i < rows; i++) {
    for (int j = 0; j < WIDE; j++) {
      seed = seed * 1103515245u + 12345u;
      x[i][j] = (float)(seed >> 16 & 0x7fff) / 16384 - 1;
    }
    y[i] = (int32_t)(i % CLASSES);
    x[i][y[i]] += 1;
  }
  out[0] = array(x, (size_t)rows * sizeof *x, COW_MLX_FLOAT32, rows, 2);
  out[1] = array(y, (size_t)rows * sizeof *y, COW_MLX_INT32, rows, 1);
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const char* folder = argv[1];
  steps_until_alarm = atol(argv[5]);
  bool never = steps_until_alarm < 0;
  alarm_at.it_value.tv_usec = atol(argv[6]);
  signal(SIGALRM, killed);
  if (steps_until_alarm == 0) setitimer(ITIMER_REAL, &alarm_at, NULL);

  check(cow_mlx_runtime_start(NULL));
  cow_mlx_program program;
  check(cow_mlx_program_create(argv[2], COW_MLX_NUL, NULL, &program));
  cow_mlx_training_params params;
  cow_mlx_training_params_init(&params, sizeof params);
  params.optimizer = argv[3];
  params.seed = 5;
  params.micro_batch = 4;
  params.clip_norm = 1;
  cow_mlx_training training;
  check(cow_mlx_training_create(program, &params, &training));
  cow_mlx_status status = cow_mlx_training_load(training, folder);
  if (status != COW_MLX_ENOENT) check(status);
  char info[8192];
  size_t length;
  check(cow_mlx_training_info(training, info, sizeof info, &length));
  const char* step = strstr(info, "\"step\": ");
  printf("from %ld\n", step ? atol(step + strlen("\"step\": ")) : -1);
  fflush(stdout);

  cow_mlx_array rows[2], unseen[2];
  make_rows(1, ROWS, rows);
  make_rows(2, UNSEEN, unseen);
  cow_mlx_fit_params fit;
  cow_mlx_fit_params_init(&fit, sizeof fit);
  fit.steps = (size_t)atoll(argv[4]);
  fit.batch_size = 7;
  fit.inputs = rows;
  fit.inputs_count = 2;
  fit.validation = unseen;
  fit.validation_count = 2;
  fit.evaluate_every = 3;
  fit.patience = 1u << 30;
  fit.folder = never ? NULL : folder;
  fit.save_every = never ? 0 : 1;
  check(cow_mlx_training_fit(training, &fit, told, NULL));
  if (never) check(cow_mlx_training_save(training, folder));
  check(cow_mlx_runtime_stop());
  return 0;
}

/*
 * A small network learns which points lie in a circle: train [FOLDER]
 * With a folder it saves itself there, and continues after an interruption (Ctrl-C).
 */
#include <cow_mlx.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 512, CHECKS = 128 };

/* Two layers, and a third that separates inside (1) from outside (0). */
static const char* PROGRAM =
    "{"
    "  \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"rows\", 2]},"
    "               {\"name\": \"y\", \"dtype\": \"int32\", \"shape\": [\"rows\"]}],"
    "  \"parameters\": ["
    "    {\"name\": \"w1\", \"dtype\": \"float32\", \"shape\": [2, 32], \"init\": \"he_normal\"},"
    "    {\"name\": \"b1\", \"dtype\": \"float32\", \"shape\": [32], \"init\": \"zeros\"},"
    "    {\"name\": \"w2\", \"dtype\": \"float32\", \"shape\": [32, 32], \"init\": \"he_normal\"},"
    "    {\"name\": \"b2\", \"dtype\": \"float32\", \"shape\": [32], \"init\": \"zeros\"},"
    "    {\"name\": \"w3\", \"dtype\": \"float32\", \"shape\": [32, 2], \"init\": \"he_normal\"}],"
    "  \"nodes\": ["
    "    {\"name\": \"a1\", \"op\": \"matmul\", \"inputs\": [\"x\", \"w1\"]},"
    "    {\"name\": \"c1\", \"op\": \"add\", \"inputs\": [\"a1\", \"b1\"]},"
    "    {\"name\": \"h1\", \"op\": \"tanh\", \"inputs\": [\"c1\"]},"
    "    {\"name\": \"a2\", \"op\": \"matmul\", \"inputs\": [\"h1\", \"w2\"]},"
    "    {\"name\": \"c2\", \"op\": \"add\", \"inputs\": [\"a2\", \"b2\"]},"
    "    {\"name\": \"h2\", \"op\": \"tanh\", \"inputs\": [\"c2\"]},"
    "    {\"name\": \"z\", \"op\": \"matmul\", \"inputs\": [\"h2\", \"w3\"]},"
    "    {\"name\": \"loss\", \"op\": \"cross_entropy\", \"inputs\": [\"z\", \"y\"],"
    "     \"attributes\": {\"reduction\": \"mean\"}},"
    "    {\"name\": \"best\", \"op\": \"argmax\", \"inputs\": [\"z\"], \"attributes\": {\"axis\": "
    "-1}},"
    "    {\"name\": \"class\", \"op\": \"astype\", \"inputs\": [\"best\"],"
    "     \"attributes\": {\"dtype\": \"int32\"}},"
    "    {\"name\": \"same\", \"op\": \"equal\", \"inputs\": [\"class\", \"y\"]},"
    "    {\"name\": \"correct\", \"op\": \"sum\", \"inputs\": [\"same\"]}],"
    "  \"outputs\": [\"loss\", \"correct\"]"
    "}";

/* Warm up for 20 steps, then decay. */
static const char* OPTIMIZER =
    "{\"name\": \"adamw\", \"weight_decay\": 0.001, \"bias_correction\": true,"
    " \"learning_rate\": {\"name\": \"warmup\", \"steps\": 20,"
    "   \"then\": {\"name\": \"cosine_decay\", \"init\": 0.02, \"decay_steps\": 600}}}";

static volatile sig_atomic_t training; /* a handle, for the signal handler */

static void interrupted(int number) {
  (void)number;
  cow_mlx_training_cancel((cow_mlx_training)training);
}

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static cow_mlx_array array(void* data, int32_t dtype, int32_t rank, const int64_t* shape,
                           size_t bytes) {
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

/* Points from -1 to 1, and whether each lies in the circle. */
static void make_points(unsigned seed, int64_t count, cow_mlx_array out[2]) {
  static float x[POINTS][2];
  static int32_t y[POINTS];
  for (int64_t i = 0; i < count; i++) {
    for (int j = 0; j < 2; j++) {
      seed = seed * 1103515245u + 12345u;
      x[i][j] = (float)(seed >> 16 & 0x7fff) / 16384 - 1;
    }
    float squared = x[i][0] * x[i][0] + x[i][1] * x[i][1];
    y[i] = squared < 0.6f;
  }
  const int64_t matrix[] = {count, 2}, vector[] = {count};
  out[0] = array(x, COW_MLX_FLOAT32, 2, matrix, (size_t)count * sizeof *x);
  out[1] = array(y, COW_MLX_INT32, 1, vector, (size_t)count * sizeof *y);
}

static bool report(const cow_mlx_training_event* event, void* user_data) {
  (void)user_data;
  if (event->kind == COW_MLX_TRAINING_STEP) {
    printf("step %3zu of %zu  loss %.4f  learning rate %.4f  %.0f s to go\n", event->step,
           event->steps, event->loss, event->learning_rate, event->remaining);
  } else if (event->kind == COW_MLX_TRAINING_EVALUATION) {
    printf("  of unseen points, %.1f %% are classified right\n", 100 * event->accuracy);
  }
  return true;
}

/* Continue the training that the folder has, if it has one. */
static void go_on(cow_mlx_training handle, const char* folder) {
  cow_mlx_status status = cow_mlx_training_load(handle, folder);
  if (status == COW_MLX_ENOENT) return;
  check(status); /* a file that cannot be read stays: it is not trained over */
  printf("it goes on\n");
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : NULL;
  check(cow_mlx_runtime_start(NULL));
  cow_mlx_program program;
  check(cow_mlx_program_create(PROGRAM, COW_MLX_NUL, NULL, &program));
  cow_mlx_training_params params;
  cow_mlx_training_params_init(&params, sizeof params);
  params.optimizer = OPTIMIZER;
  params.seed = 1;
  cow_mlx_training handle;
  check(cow_mlx_training_create(program, &params, &handle));
  check(cow_mlx_program_free(program));
  training = handle;
  signal(SIGINT, interrupted);
  if (folder) go_on(handle, folder);

  cow_mlx_array points[2], unseen[2];
  make_points(1, POINTS, points);
  make_points(2, CHECKS, unseen);
  cow_mlx_fit_params fit;
  cow_mlx_fit_params_init(&fit, sizeof fit);
  fit.steps = 600;
  fit.batch_size = 64;
  fit.inputs = points;
  fit.inputs_count = 2;
  fit.validation = unseen;
  fit.validation_count = 2;
  fit.event_every = 50;
  fit.evaluate_every = 200;
  fit.folder = folder;
  fit.save_every = folder ? 100 : 0;
  cow_mlx_status status = cow_mlx_training_fit(handle, &fit, report, NULL);
  if (status == COW_MLX_ECANCELED && folder) {
    check(cow_mlx_training_save(handle, folder));
    printf("interrupted; start again to go on\n");
  } else {
    check(status);
  }
  for (int i = 0; i < 2; i++) {
    check(cow_mlx_array_free(points[i]));
    check(cow_mlx_array_free(unseen[i]));
  }
  check(cow_mlx_training_free(handle));
  check(cow_mlx_runtime_stop());
  return 0;
}

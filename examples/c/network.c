/*
 * A network of two layers that learns which points have coordinates of one sign: network
 * Its loss is one program, whose gradient the library derives.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 128, HIDDEN = 16, STEPS = 1000, PARAMETERS = 4 };

static const char* PROGRAM =
    "{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"points\", 2]},"
    "            {\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"points\"]}],"
    " \"parameters\": [{\"name\": \"w1\", \"dtype\": \"float32\", \"shape\": [2, 16]},"
    "                {\"name\": \"b1\", \"dtype\": \"float32\", \"shape\": [16]},"
    "                {\"name\": \"w2\", \"dtype\": \"float32\", \"shape\": [16]},"
    "                {\"name\": \"b2\", \"dtype\": \"float32\", \"shape\": []}],"
    " \"constants\": [{\"name\": \"zero\", \"dtype\": \"float32\", \"value\": 0},"
    "               {\"name\": \"half\", \"dtype\": \"float32\", \"value\": 0.5}],"
    " \"nodes\": ["
    "  {\"name\": \"product\", \"op\": \"matmul\", \"inputs\": [\"x\", \"w1\"]},"
    "  {\"name\": \"sum\", \"op\": \"add\", \"inputs\": [\"product\", \"b1\"]},"
    "  {\"name\": \"hidden\", \"op\": \"tanh\", \"inputs\": [\"sum\"]},"
    "  {\"name\": \"weighed\", \"op\": \"matmul\", \"inputs\": [\"hidden\", \"w2\"]},"
    "  {\"name\": \"logit\", \"op\": \"add\", \"inputs\": [\"weighed\", \"b2\"]},"
    "  {\"name\": \"loss\", \"op\": \"binary_cross_entropy\", \"inputs\": [\"logit\", \"y\"]},"
    "  {\"name\": \"said\", \"op\": \"greater\", \"inputs\": [\"logit\", \"zero\"]},"
    "  {\"name\": \"is\", \"op\": \"greater\", \"inputs\": [\"y\", \"half\"]},"
    "  {\"name\": \"same\", \"op\": \"equal\", \"inputs\": [\"said\", \"is\"]},"
    "  {\"name\": \"right\", \"op\": \"sum\", \"inputs\": [\"same\"]}],"
    " \"outputs\": [\"loss\", \"right\"]}";

static const char* GRADIENT =
    "{\"gradient\": {\"of\": \"loss\", \"with_respect_to\": [\"w1\", \"b1\", \"w2\", \"b2\"],"
    " \"value\": true}}";

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* Memory of floats in row-major order. */
static cow_mlx_tensor floats(float* data, size_t bytes, int32_t rank, const int64_t* shape) {
  cow_mlx_tensor tensor = {.struct_size = sizeof tensor,
                           .data = data,
                           .bytes = bytes,
                           .dtype = COW_MLX_FLOAT32,
                           .rank = rank,
                           .shape = shape};
  return tensor;
}

/* Anywhere from -1 to 1. */
static float next(void) {
  static unsigned random = 1;
  random = random * 1103515245u + 12345u;
  return (float)(random >> 16 & 0x7fff) / 16384 - 1;
}

int main(void) {
  static float x[POINTS][2], y[POINTS];
  /* The parameters and the slopes of the loss along them: w1, b1, w2 and b2 in a row. */
  static const int64_t matrix[] = {2, HIDDEN}, vector[] = {HIDDEN}, all[] = {POINTS, 2};
  static const int sizes[PARAMETERS] = {2 * HIDDEN, HIDDEN, HIDDEN, 1},
                   ranks[PARAMETERS] = {2, 1, 1, 0};
  const int64_t* shapes[PARAMETERS] = {matrix, vector, vector, NULL};
  float parameters[4 * HIDDEN + 1] = {0}, slopes[4 * HIDDEN + 1], loss, first = 0;
  int32_t right = 0;
  for (int i = 0; i < POINTS; i++) {
    for (int j = 0; j < 2; j++) x[i][j] = next();
    y[i] = x[i][0] * x[i][1] > 0;
  }
  for (int i = 0; i < 2 * HIDDEN; i++) parameters[i] = next();
  for (int i = 0; i < HIDDEN; i++) parameters[3 * HIDDEN + i] = next() / 2;

  cow_mlx_tensor of_parameters[PARAMETERS], of_slopes[PARAMETERS];
  for (int i = 0, at = 0; i < PARAMETERS; at += sizes[i++]) {
    const size_t bytes = sizes[i] * sizeof *parameters;
    of_parameters[i] = floats(parameters + at, bytes, ranks[i], shapes[i]);
    of_slopes[i] = floats(slopes + at, bytes, ranks[i], shapes[i]);
  }
  const cow_mlx_tensor of_x = floats(&x[0][0], sizeof x, 2, all);
  const cow_mlx_tensor of_y = floats(y, sizeof y, 1, all);
  const cow_mlx_tensor of_loss = floats(&loss, sizeof loss, 0, NULL);
  cow_mlx_tensor of_right = floats(NULL, sizeof right, 0, NULL);
  of_right.data = &right;
  of_right.dtype = COW_MLX_INT32;

  cow_mlx_program program, gradient;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_program_create(PROGRAM, COW_MLX_NUL, NULL, &program));
  check(cow_mlx_program_derive(program, GRADIENT, COW_MLX_NUL, &gradient));
  cow_mlx_value inputs[2 + PARAMETERS] = {{0, &of_x}, {0, &of_y}};
  cow_mlx_value results[1 + PARAMETERS] = {{0, &of_loss}};
  for (int i = 0; i < PARAMETERS; i++) {
    inputs[2 + i].host = &of_parameters[i];
    results[1 + i].host = &of_slopes[i];
  }
  for (int step = 0; step < STEPS; step++) {
    check(cow_mlx_program_run(gradient, inputs, 2 + PARAMETERS, results, 1 + PARAMETERS, NULL));
    if (step == 0) first = loss;
    for (int i = 0; i < 4 * HIDDEN + 1; i++) parameters[i] -= slopes[i];
  }
  cow_mlx_value last[] = {{0, &of_loss}, {0, &of_right}};
  check(cow_mlx_program_run(program, inputs, 2 + PARAMETERS, last, 2, NULL));
  printf("loss %.2f, then %.2f: %d of %d points are classified right\n", first, loss, (int)right,
         POINTS);
  check(cow_mlx_program_free(gradient));
  check(cow_mlx_program_free(program));
  check(cow_mlx_runtime_stop());
  return 0;
}

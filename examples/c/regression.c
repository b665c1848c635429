/*
 * Linear regression by gradient descent, written as one program: regression
 * The loop runs inside of the program, so that all of it takes one round trip.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 64, WEIGHTS = 2 };

/* Half of the mean squared error, and a round of descent. What stays the same goes through. */
static const char* PROGRAM =
    "{"
    "  \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"points\", 2]},"
    "               {\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"points\"]}],"
    "  \"parameters\": [{\"name\": \"w\", \"dtype\": \"float32\", \"shape\": [2]},"
    "                   {\"name\": \"rate\", \"dtype\": \"float32\", \"shape\": []}],"
    "  \"constants\": [{\"name\": \"zero\", \"dtype\": \"int32\", \"value\": 0}],"
    "  \"functions\": ["
    "    {\"name\": \"goes_on\","
    "     \"inputs\": [{\"name\": \"w\", \"dtype\": \"float32\", \"shape\": [2]},"
    "                  {\"name\": \"round\", \"dtype\": \"int32\", \"shape\": []},"
    "                  {\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"points\", 2]},"
    "                  {\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"points\"]},"
    "                  {\"name\": \"rate\", \"dtype\": \"float32\", \"shape\": []}],"
    "     \"constants\": [{\"name\": \"rounds\", \"dtype\": \"int32\", \"value\": 500}],"
    "     \"nodes\": [{\"name\": \"go\", \"op\": \"less\", \"inputs\": [\"round\", \"rounds\"]}],"
    "     \"outputs\": [\"go\"]},"
    "    {\"name\": \"descend\","
    "     \"inputs\": [{\"name\": \"w\", \"dtype\": \"float32\", \"shape\": [2]},"
    "                  {\"name\": \"round\", \"dtype\": \"int32\", \"shape\": []},"
    "                  {\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"points\", 2]},"
    "                  {\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"points\"]},"
    "                  {\"name\": \"rate\", \"dtype\": \"float32\", \"shape\": []}],"
    "     \"constants\": [{\"name\": \"one\", \"dtype\": \"int32\", \"value\": 1}],"
    "     \"nodes\": ["
    "       {\"name\": \"predicted\", \"op\": \"matmul\", \"inputs\": [\"x\", \"w\"]},"
    "       {\"name\": \"error\", \"op\": \"subtract\", \"inputs\": [\"predicted\", \"y\"]},"
    "       {\"name\": \"xt\", \"op\": \"transpose\", \"inputs\": [\"x\"]},"
    "       {\"name\": \"gradient\", \"op\": \"matmul\", \"inputs\": [\"xt\", \"error\"]},"
    "       {\"name\": \"step\", \"op\": \"multiply\", \"inputs\": [\"gradient\", \"rate\"]},"
    "       {\"name\": \"better\", \"op\": \"subtract\", \"inputs\": [\"w\", \"step\"]},"
    "       {\"name\": \"next\", \"op\": \"add\", \"inputs\": [\"round\", \"one\"]}],"
    "     \"outputs\": [\"better\", \"next\", \"x\", \"y\", \"rate\"]}],"
    "  \"nodes\": [{\"outputs\": [\"found\", \"rounds\", \"x1\", \"y1\", \"rate1\"],"
    "             \"op\": \"while\", \"inputs\": [\"w\", \"zero\", \"x\", \"y\", \"rate\"],"
    "             \"attributes\": {\"condition\": \"goes_on\", \"body\": \"descend\","
    "                            \"max_iterations\": 10000}}],"
    "  \"outputs\": [\"found\", \"rounds\"]"
    "}";

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* Memory in row-major order. */
static cow_mlx_tensor tensor(void* data, int32_t dtype, size_t bytes, int32_t rank,
                             const int64_t* shape) {
  cow_mlx_tensor tensor = {.struct_size = sizeof tensor,
                           .data = data,
                           .bytes = bytes,
                           .dtype = dtype,
                           .rank = rank,
                           .shape = shape};
  return tensor;
}

int main(void) {
  /* Points on y = 3 a - 2 b, where a and b are anywhere from -1 to 1. */
  static float x[POINTS][WEIGHTS], y[POINTS];
  unsigned random = 1;
  for (int i = 0; i < POINTS; i++) {
    for (int j = 0; j < WEIGHTS; j++) {
      random = random * 1103515245u + 12345u;
      x[i][j] = (float)(random >> 16 & 0x7fff) / 16384 - 1;
    }
    y[i] = 3 * x[i][0] - 2 * x[i][1];
  }
  float w[WEIGHTS] = {0, 0}, rate = 0.01f;
  int32_t rounds = 0;
  const int64_t matrix[] = {POINTS, WEIGHTS}, vector[] = {POINTS}, weights[] = {WEIGHTS};
  const cow_mlx_tensor of_x = tensor(x, COW_MLX_FLOAT32, sizeof x, 2, matrix);
  const cow_mlx_tensor of_y = tensor(y, COW_MLX_FLOAT32, sizeof y, 1, vector);
  const cow_mlx_tensor of_w = tensor(w, COW_MLX_FLOAT32, sizeof w, 1, weights);
  const cow_mlx_tensor of_rate = tensor(&rate, COW_MLX_FLOAT32, sizeof rate, 0, NULL);
  const cow_mlx_tensor of_rounds = tensor(&rounds, COW_MLX_INT32, sizeof rounds, 0, NULL);

  cow_mlx_program program;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_program_create(PROGRAM, COW_MLX_NUL, NULL, &program));
  const cow_mlx_value inputs[] = {{0, &of_x}, {0, &of_y}, {0, &of_w}, {0, &of_rate}};
  cow_mlx_value outputs[] = {{0, &of_w}, {0, &of_rounds}};
  check(cow_mlx_program_run(program, inputs, 4, outputs, 2, NULL));
  printf("y = %.3f a %+.3f b after %d rounds\n", w[0], w[1], (int)rounds);
  check(cow_mlx_program_free(program));
  check(cow_mlx_runtime_stop());
  return 0;
}

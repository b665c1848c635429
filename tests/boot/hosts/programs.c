/* Arrays and programs from C: every way in and out, runs that are cancelled in a signal handler,
 * and handles that are freed while runs need them. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "host.h"

enum { MANY = 300000, ROUNDS = 8 };

static const char affine[] =
    "{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"n\"]},"
    "  {\"name\": \"w\", \"dtype\": \"float32\", \"shape\": [\"n\"]}],"
    " \"nodes\": [{\"name\": \"y\", \"op\": \"multiply\", \"inputs\": [\"x\", \"w\"]},"
    "  {\"name\": \"s\", \"op\": \"sum\", \"inputs\": [\"y\"]}],"
    " \"outputs\": [\"s\", \"y\"]}";
static const char endless[] =
    "{\"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [\"n\"]}],"
    " \"functions\": ["
    "  {\"name\": \"always\", \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\","
    "    \"shape\": [\"n\"]}],"
    "   \"nodes\": [{\"name\": \"l\", \"op\": \"min\", \"inputs\": [\"x\"]},"
    "    {\"name\": \"p\", \"op\": \"equal\", \"inputs\": [\"l\", \"l\"]}], \"outputs\": [\"p\"]},"
    "  {\"name\": \"step\", \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\","
    "    \"shape\": [\"n\"]}],"
    "   \"nodes\": [{\"name\": \"r\", \"op\": \"abs\", \"inputs\": [\"x\"]}], \"outputs\": "
    "[\"r\"]}],"
    " \"nodes\": [{\"name\": \"y\", \"op\": \"while\", \"inputs\": [\"x\"], \"attributes\":"
    "  {\"condition\": \"always\", \"body\": \"step\", \"max_iterations\": 2147483647}}],"
    " \"outputs\": [\"y\"]}";

static cow_mlx_program made(const char* json) {
  cow_mlx_program program;
  EXPECT_OK(cow_mlx_program_create(json, strlen(json), NULL, &program));
  return program;
}

static cow_mlx_tensor vector(float* data, const int64_t* count) {
  return (cow_mlx_tensor){.struct_size = sizeof(cow_mlx_tensor),
                          .data = data,
                          .bytes = (size_t)*count * sizeof *data,
                          .dtype = COW_MLX_FLOAT32,
                          .rank = 1,
                          .shape = count};
}

/* ----------------------------------------------------------------- Arrays */

static void views(void) {
  const float grid[6] = {0, 1, 2, 3, 4, 5};
  const int64_t shape[] = {3, 2}, turned[] = {-1, 3}, row_major[] = {2, 1};
  cow_mlx_tensor from = {.struct_size = sizeof from,
                         .data = (void*)(uintptr_t)grid,
                         .bytes = sizeof grid,
                         .offset = 2 * sizeof *grid,
                         .dtype = COW_MLX_FLOAT32,
                         .rank = 2,
                         .shape = shape,
                         .strides = turned};
  cow_mlx_array array, copy;
  EXPECT_OK(cow_mlx_array_create(&from, &array));
  float out[6] = {0};
  cow_mlx_tensor to = from;
  to.data = out;
  to.offset = 0;
  to.strides = row_major;
  EXPECT_OK(cow_mlx_array_read(array, &to));
  for (int i = 0; i < 6; i++) EXPECT(out[i] == (float)(2 - i / 2 + 3 * (i % 2)));
  struct DLManagedTensorVersioned* managed;
  EXPECT_OK(cow_mlx_array_to_dlpack(array, &managed));
  EXPECT_OK(cow_mlx_array_from_dlpack(managed, &copy));
  const void* data;
  EXPECT_OK(cow_mlx_array_view(copy, &data, NULL));
  EXPECT(memcmp(data, out, sizeof out) == 0);
  from.offset = sizeof grid; /* nothing is read behind the buffer */
  EXPECT(cow_mlx_array_create(&from, &array) == COW_MLX_EINVAL);
  char details[512];
  size_t length;
  EXPECT_OK(cow_mlx_error_details(details, sizeof details, &length));
  EXPECT(strstr(details, "\"operation\": \"array_create\"") != NULL);
  EXPECT_OK(cow_mlx_array_free(copy));
  EXPECT_OK(cow_mlx_array_free(array));
}

static void operations(void) {
  int64_t count = 4;
  float numbers[] = {1, 2, 3, 4};
  cow_mlx_tensor from = vector(numbers, &count);
  cow_mlx_array in[2], out[2];
  size_t length;
  EXPECT_OK(cow_mlx_array_create(&from, &in[0]));
  in[1] = in[0];
  EXPECT_OK(cow_mlx_array_apply("add", in, 2, NULL, out, 2, &length));
  EXPECT(length == 1);
  EXPECT_OK(cow_mlx_array_apply("sum", out, 1, "{\"axis\": 0}", out + 1, 1, &length));
  EXPECT(cow_mlx_array_apply("no such", in, 1, NULL, in + 1, 1, &length) == COW_MLX_EINVAL);
  EXPECT(cow_mlx_array_apply("sum", in, 1, "{\"axis\": 1e400}", in + 1, 1, &length) ==
         COW_MLX_EINVAL);
  const void* sum;
  EXPECT_OK(cow_mlx_array_view(out[1], &sum, NULL));
  EXPECT(*(const float*)sum == 20);
  for (int i = 0; i < 2; i++) EXPECT_OK(cow_mlx_array_free(out[i]));
  EXPECT_OK(cow_mlx_array_free(in[0]));
}

/* --------------------------------------------------------------- Programs */

/* Host memory and arrays, given up or not, small and large; results likewise; at once or not. */
static void runs(void) {
  static float x[MANY], w[MANY], y[MANY];
  for (int i = 0; i < MANY; i++) x[i] = 1, w[i] = 3;
  cow_mlx_program program = made(affine);
  for (int round = 0; round < ROUNDS; round++) {
    int64_t count = round % 2 ? MANY : 5;
    float sum = 0;
    int64_t one = 1;
    cow_mlx_tensor of_x = vector(x, &count), of_w = vector(w, &count), of_y = vector(y, &count);
    cow_mlx_tensor of_sum = vector(&sum, &one);
    of_sum.rank = 0;
    cow_mlx_value in[2] = {{.host = &of_x}, {.host = &of_w}}, out[2] = {{0}, {0}};
    int32_t given = 1;
    cow_mlx_run_params params;
    cow_mlx_run_params_init(&params, sizeof params);
    params.check_finite = true;
    if (round & 2) {
      in[1].host = NULL;
      EXPECT_OK(cow_mlx_array_create(&of_w, &in[1].array));
      params.donate = &given;
      params.donate_count = 1;
    }
    params.submit = round & 4;
    if (!params.submit) out[0].host = &of_sum, out[1].host = &of_y;
    EXPECT_OK(cow_mlx_program_run(program, in, 2, out, 2, &params));
    if (params.submit) {
      EXPECT_OK(cow_mlx_array_wait(out[0].array, UINT32_MAX));
      EXPECT_OK(cow_mlx_array_read(out[0].array, &of_sum));
      EXPECT_OK(cow_mlx_array_read(out[1].array, &of_y));
      for (int i = 0; i < 2; i++) EXPECT_OK(cow_mlx_array_free(out[i].array));
    }
    EXPECT(sum == (float)(3 * count) && y[0] == 3 && y[count - 1] == 3 && w[0] == 3);
    if (in[1].array) EXPECT(cow_mlx_array_free(in[1].array) == COW_MLX_EHANDLE);
  }
  EXPECT_OK(cow_mlx_program_free(program));
}

static void derived(void) {
  cow_mlx_program program = made(affine), gradient;
  const char spec[] = "{\"gradient\": {\"of\": \"s\", \"with_respect_to\": [\"x\"]}}";
  EXPECT_OK(cow_mlx_program_derive(program, spec, sizeof spec - 1, &gradient));
  EXPECT_OK(cow_mlx_program_free(program));
  int64_t count = 3;
  float x[3] = {1, 2, 3}, w[3] = {4, 5, 6}, of_x[3];
  cow_mlx_tensor first = vector(x, &count), second = vector(w, &count);
  cow_mlx_tensor result = vector(of_x, &count);
  cow_mlx_value in[2] = {{.host = &first}, {.host = &second}}, out = {.host = &result};
  EXPECT_OK(cow_mlx_program_run(gradient, in, 2, &out, 1, NULL));
  EXPECT(memcmp(of_x, w, sizeof w) == 0);
  char info[8192];
  size_t length;
  EXPECT_OK(cow_mlx_program_info(gradient, "{\"n\": 3}", info, sizeof info, &length));
  EXPECT(cow_mlx_program_info(gradient, "{\"n\": -1}", info, sizeof info, &length) ==
         COW_MLX_EINVAL);
  EXPECT(cow_mlx_program_derive(gradient, "[", 1, &program) == COW_MLX_EINVAL);
  EXPECT(cow_mlx_program_create("{\"outputs\": []}", 15, NULL, &program) == COW_MLX_EINVAL);
  EXPECT_OK(cow_mlx_program_free(gradient));
}

/* -------------------------------------------------------- Signals and frees */

static cow_mlx_program running;
static atomic_int wrong;

static void cancel(int number) {
  (void)number;
  errno = ERANGE;
  if (cow_mlx_program_cancel(running) != COW_MLX_OK || errno != ERANGE) atomic_fetch_add(&wrong, 1);
}

static void await_run(void) {
  static char info[1 << 16];
  size_t length;
  do {
    EXPECT_OK(cow_mlx_program_info(running, NULL, info, sizeof info, &length));
  } while (strstr(info, "\"longest_turn\": null"));
}

static pthread_t main_thread;

static void* interrupt_main(void* data) {
  await_run();
  pthread_kill(main_thread, SIGUSR1);
  return data;
}

static cow_mlx_status run_endless(cow_mlx_array array, cow_mlx_value* out, bool submit) {
  cow_mlx_value in = {.array = array};
  cow_mlx_run_params params;
  cow_mlx_run_params_init(&params, sizeof params);
  params.submit = submit;
  return cow_mlx_program_run(running, &in, 1, out, 1, &params);
}

/* The thread that waits for the run gets the signal. */
static void signalled(cow_mlx_array array) {
  struct sigaction action = {.sa_handler = cancel};
  sigaction(SIGUSR1, &action, NULL);
  main_thread = pthread_self();
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t other;
    cow_mlx_value out = {0};
    running = made(endless);
    EXPECT(pthread_create(&other, NULL, interrupt_main, NULL) == 0);
    EXPECT(run_endless(array, &out, false) == COW_MLX_ECANCELED && out.array == 0);
    pthread_join(other, NULL);
    EXPECT_OK(cow_mlx_program_free(running));
  }
  EXPECT(atomic_load(&wrong) == 0);
}

/* A run needs neither its program's handle, nor its inputs', nor a model; what is made of it does
 * not need its own. */
static void freed(const char* path, cow_mlx_array array) {
  session s = open_session(path);
  running = made(endless);
  cow_mlx_program other = running;
  cow_mlx_value first = {0}, second = {0};
  EXPECT_OK(run_endless(array, &first, true));
  EXPECT_OK(run_endless(first.array, &second, true));
  await_run();
  EXPECT_OK(cow_mlx_array_free(array));
  EXPECT_OK(cow_mlx_array_free(first.array));
  EXPECT_OK(cow_mlx_context_free(s.context));
  EXPECT_OK(cow_mlx_model_free(s.model));
  EXPECT(cow_mlx_array_wait(second.array, 1) == COW_MLX_ETIMEDOUT);
  running = made(affine);
  EXPECT_OK(cow_mlx_program_cancel(other));
  EXPECT_OK(cow_mlx_program_free(other));
  EXPECT(cow_mlx_program_free(other) == COW_MLX_EHANDLE);
  EXPECT(cow_mlx_array_wait(second.array, UINT32_MAX) == COW_MLX_ECANCELED);
  EXPECT_OK(cow_mlx_array_free(second.array));
  EXPECT_OK(cow_mlx_program_free(running));
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  for (int start = 0; start < 2; start++) {
    EXPECT_OK(cow_mlx_runtime_start(NULL));
    views();
    operations();
    runs();
    derived();
    float number = -1;
    int64_t one = 1;
    cow_mlx_tensor from = vector(&number, &one);
    cow_mlx_array array;
    EXPECT_OK(cow_mlx_array_create(&from, &array));
    signalled(array);
    freed(argv[1], array);
    /* A stop ends what runs. */
    running = made(endless);
    cow_mlx_value out = {0};
    EXPECT_OK(cow_mlx_array_create(&from, &array));
    EXPECT_OK(run_endless(array, &out, true));
    await_run();
    EXPECT_OK(cow_mlx_runtime_stop());
    EXPECT(cow_mlx_array_free(out.array) == COW_MLX_ESTATE);
  }
  printf("all went well\n");
  return 0;
}

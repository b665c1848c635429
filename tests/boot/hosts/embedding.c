/* Embeds a Python (the libpython argv[2], with the packages in argv[3]) that the runtime joins. A
 * callback of a call that returns at once waits for a thread that needs the interpreter, which this
 * one holds. Threads that copy an array are cancelled. Then Python ends while a call runs on a
 * context: the call ends, too, and no later Python is joined. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "host.h"

enum { PATIENCE = 250, TURNS = 10000, PyGILState_UNLOCKED = 1 };

/* Pipes, whose bytes ask for the interpreter and say that it was there. */
static int asked[2], answered[2];

/* What the host needs of Python. */
static void (*Py_InitializeEx)(int);
static int (*Py_FinalizeEx)(void);
static int (*PyRun_SimpleString)(const char*);
static int (*PyGILState_Ensure)(void);
static void (*PyGILState_Release)(int);
static void* (*PyEval_SaveThread)(void);
static void (*PyEval_RestoreThread)(void*);

#define LOAD(name) EXPECT((*(void**)&(name) = dlsym(python, #name)))

static void start_python(const char* library, const char* packages) {
  char source[1024];
  void* python = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  EXPECT(python);
  LOAD(Py_InitializeEx);
  LOAD(Py_FinalizeEx);
  LOAD(PyRun_SimpleString);
  LOAD(PyGILState_Ensure);
  LOAD(PyGILState_Release);
  LOAD(PyEval_SaveThread);
  LOAD(PyEval_RestoreThread);
  Py_InitializeEx(0);
  snprintf(source, sizeof source, "import sys; sys.path.insert(0, '%s')", packages);
  EXPECT(PyRun_SimpleString(source) == 0);
}

static void say(const int pipe[2]) { EXPECT(write(pipe[1], "", 1) == 1); }

static void hear(const int pipe[2]) {
  char byte;
  EXPECT(read(pipe[0], &byte, 1) == 1);
}

static void* take_interpreter(void* unused) {
  hear(asked);
  PyGILState_Release(PyGILState_Ensure());
  say(answered);
  return unused;
}

static bool ask_once(size_t processed, size_t total, void* data) {
  bool* is_asked = data;
  (void)processed, (void)total;
  if (!*is_asked) {
    say(asked);
    hear(answered);
  }
  *is_asked = true;
  return true;
}

static void poll_with_the_interpreter(const session* s) {
  bool is_asked = false;
  pthread_t thread;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 1;
  params.prompt_progress = ask_once;
  params.user_data = &is_asked;
  EXPECT(pthread_create(&thread, NULL, take_interpreter, NULL) == 0);
  EXPECT_OK(cow_mlx_context_begin_async(s->context, s->tokens, s->count, &params));
  struct pollfd ready = {.events = POLLIN};
  EXPECT_OK(cow_mlx_context_wake_fd(s->context, &ready.fd));
  void* state = PyEval_SaveThread();
  EXPECT(poll(&ready, 1, -1) == 1);
  PyEval_RestoreThread(state);
  EXPECT_OK(cow_mlx_context_poll(s->context, UINT32_MAX));
  EXPECT(is_asked);
  pthread_join(thread, NULL);
}

/* Copies of an array, which let go of the interpreter, and each of which ends. */
static atomic_int begun, ended;

static void let_go(void* unused) {
  (void)unused;
  PyGILState_Release(PyGILState_UNLOCKED);
}

static void* copy_forever(void* unused) {
  static char bytes[1 << 20];
  const int64_t count = sizeof bytes;
  cow_mlx_tensor tensor = {.struct_size = sizeof tensor,
                           .data = bytes,
                           .bytes = sizeof bytes,
                           .dtype = COW_MLX_UINT8,
                           .rank = 1,
                           .shape = &count};
  EXPECT(PyGILState_Ensure() == PyGILState_UNLOCKED);
  pthread_cleanup_push(let_go, NULL);
  for (;;) {
    cow_mlx_array array;
    atomic_fetch_add(&begun, 1);
    EXPECT_OK(cow_mlx_array_create(&tensor, &array));
    EXPECT_OK(cow_mlx_array_read(array, &tensor));
    EXPECT_OK(cow_mlx_array_free(array));
    atomic_fetch_add(&ended, 1);
    pthread_testcancel();
  }
  pthread_cleanup_pop(0);
  return unused;
}

/* The thread waits for the interpreter when it is cancelled. */
static void cancel_a_copy(void) {
  atomic_store(&begun, 0);
  atomic_store(&ended, 0);
  pthread_t thread;
  void* result;
  EXPECT(pthread_create(&thread, NULL, copy_forever, NULL) == 0);
  void* state = PyEval_SaveThread();
  while (atomic_load(&begun) < 2) sched_yield();
  PyEval_RestoreThread(state);
  EXPECT(pthread_cancel(thread) == 0);
  for (int turn = 0; turn < TURNS; turn++) sched_yield();
  state = PyEval_SaveThread();
  EXPECT(pthread_join(thread, &result) == 0);
  PyEval_RestoreThread(state);
  EXPECT(result == PTHREAD_CANCELED);
  EXPECT(atomic_load(&begun) == atomic_load(&ended));
}

static void* generate_until_it_fails(void* data) {
  static cow_mlx_status status;
  const session* s = data;
  while ((status = generate(s, 1 << 20, NULL, NULL)) == COW_MLX_OK) continue;
  return &status;
}

int main(int argc, char** argv) {
  EXPECT(argc == 4);
  alarm(PATIENCE); /* a freeze ends the host */
  EXPECT(pipe(asked) == 0 && pipe(answered) == 0);
  start_python(argv[2], argv[3]);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  session s = open_session(argv[1]);
  poll_with_the_interpreter(&s);
  EXPECT_OK(cow_mlx_context_reset(s.context));
  for (int round = 0; round < 20; round++) cancel_a_copy();

  pthread_t thread;
  void* result;
  EXPECT(pthread_create(&thread, NULL, generate_until_it_fails, &s) == 0);
  await_generation(&s);
  EXPECT(Py_FinalizeEx() == 0);
  EXPECT(pthread_join(thread, &result) == 0);
  printf("%s\n", cow_mlx_status_name(*(cow_mlx_status*)result));
  printf("%s\n", cow_mlx_status_name(cow_mlx_context_reset(s.context)));
  Py_InitializeEx(0); /* the runtime knows nothing of this one */
  printf("%s\n", cow_mlx_status_name(cow_mlx_runtime_stop()));
  printf("%s\n", cow_mlx_status_name(cow_mlx_runtime_start(NULL)));
  return 0;
}

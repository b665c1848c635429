/* The table of arrays and its calls without Python: many threads, an engine that computes, drops
 * and takes over memory meanwhile, tensors that are deleted anywhere, and a stop amid all that.
 * Part of the table's own unit, to look into it, and to refuse it memory. */
#include <stdbool.h>
#include <stdlib.h>

static bool has_memory = true;

static void* own_realloc(void* old, size_t size) { return has_memory ? realloc(old, size) : NULL; }
#define realloc own_realloc
#include "../../csrc/arrays/arrays.c"
#include "../../csrc/calls/dlpack.c"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot/bootstrap.h"

enum { THREADS = 6, ROUNDS = 400, SHARED = 16, SIDE = 8 };

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "line %d: not so: %s: %s\n", __LINE__, #condition, cow_mlx_error_message()); \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

/* ------------------------------------------------------ What is not linked */

static pthread_mutex_t engine = PTHREAD_MUTEX_INITIALIZER; /* it is one thread */
static atomic_int objects;                                 /* that are alive */

/* A value of the engine: its elements, or those of the host in memory that it took over. */
typedef struct value {
  void* memory;
  unsigned char elements[];
} value;

static void* new_object(size_t bytes, unsigned char filling) {
  atomic_fetch_add(&objects, 1);
  value* made = malloc(sizeof *made + bytes + 1);
  made->memory = NULL;
  memset(made->elements, filling, bytes + 1);
  return made;
}

/* Writes to what it has taken over first: nobody else may look there any more. */
static void free_object(void* object) {
  value* last = object;
  if (last->memory) memset(last->memory, 9, 1);
  cow_memory_let_go(last->memory);
  free(last);
  atomic_fetch_sub(&objects, 1);
}

static void drop_objects(void) {
  for (void* object = cow_arrays_next_dropped(); object; object = cow_arrays_next_dropped()) {
    free_object(object);
  }
}

cow_mlx_status cow_runtime_check(const char* operation) { return operation ? COW_MLX_OK : -1; }
cow_mlx_status cow_runtime_status(void) { return COW_MLX_OK; }
void* cow_bootstrap_release_interpreter(void) { return NULL; }
void cow_bootstrap_restore_interpreter(void* state) { (void)state; }
void cow_queue_wake(void) {}
void cow_queue_wake_to_release(void) {}

/* Give an array that is only memory an object, which takes the memory over where it can, and every
 * other time; else it has a copy. */
static value* object_of_memory(cow_array* array, const cow_array_parts* parts) {
  static int turns;
  value* made = new_object(parts->bytes, 7);
  made->memory = turns++ % 2 ? cow_arrays_take_memory(array) : NULL;
  if (made->memory && turns % 3 == 0) {
    cow_arrays_return_memory(array, made->memory);
    made->memory = NULL;
  }
  if (!made->memory) memcpy(made->elements, parts->data, parts->bytes);
  return made;
}

/* Compute, as the engine does, and let go of what is dropped. Memory of the host's becomes the
 * engine's. */
static cow_mlx_status compute(cow_mlx_array handle) {
  pthread_mutex_lock(&engine);
  drop_objects();
  cow_array_parts parts;
  cow_array* array = cow_arrays_take(handle, &parts);
  if (array) {
    if (!parts.object || !parts.data) {
      value* object = parts.data ? object_of_memory(array, &parts) : new_object(parts.bytes, 7);
      const void* data = object->memory ? object->memory : object->elements;
      void* last = cow_arrays_set_object(array, object, data);
      if (last) free_object(last);
    }
    cow_arrays_let_go(array);
  }
  pthread_mutex_unlock(&engine);
  return array ? COW_MLX_OK : cow_error_handle("array_wait", "array", handle);
}

cow_mlx_status cow_runtime_call(cow_request* request, const char* operation) {
  EXPECT(request->op == COW_OP_ARRAY_WAIT && operation);
  return compute(((const cow_array_wait_args*)request->args)->array);
}

/* ---------------------------------------------------------------- Threads */

static cow_mlx_array shared[SHARED];
static const int64_t shape[] = {SIDE, SIDE}, turned[] = {1, SIDE};

static cow_mlx_tensor tensor(unsigned char* data) {
  return (cow_mlx_tensor){.struct_size = sizeof(cow_mlx_tensor),
                          .data = data,
                          .bytes = SIDE * SIDE,
                          .dtype = COW_MLX_UINT8,
                          .rank = 2,
                          .shape = shape,
                          .strides = turned};
}

static cow_mlx_array made(void) {
  unsigned char data[SIDE * SIDE];
  memset(data, 7, sizeof data);
  cow_mlx_tensor from = tensor(data);
  cow_mlx_array array;
  EXPECT(cow_mlx_array_create(&from, &array) == COW_MLX_OK);
  return array;
}

static cow_mlx_array of_engine(void) {
  void* object = new_object(SIDE * SIDE, 7);
  cow_mlx_array array = cow_arrays_add_object(object, NULL, COW_MLX_UINT8, 2, shape);
  EXPECT(array);
  return array;
}

static void look_at(cow_mlx_array array) {
  unsigned char out[SIDE * SIDE] = {0};
  cow_mlx_tensor to = tensor(out);
  int32_t dtype;
  int64_t sides[2];
  size_t rank;
  EXPECT(!cow_mlx_array_type(array, &dtype, sides, 2, &rank) && dtype == COW_MLX_UINT8);
  EXPECT(rank == 2 && sides[0] == SIDE && sides[1] == SIDE);
  EXPECT(!cow_mlx_array_read(array, &to));
  for (int i = 0; i < SIDE * SIDE; i++) EXPECT(out[i] == 7);
}

static void look_in_place(cow_mlx_array array) {
  const void* data;
  cow_mlx_tensor layout = {.struct_size = sizeof layout};
  EXPECT(!cow_mlx_array_view(array, &data, &layout) && layout.strides[0] == SIDE);
  EXPECT(((const unsigned char*)data)[SIDE * SIDE - 1] == 7);
}

static void pass_on(cow_mlx_array array) {
  struct DLManagedTensorVersioned* managed;
  cow_mlx_array copy;
  EXPECT(!cow_mlx_array_to_dlpack(array, &managed));
  EXPECT(!cow_mlx_array_from_dlpack(managed, &copy)); /* deletes it */
  look_at(copy);
  EXPECT(!cow_mlx_array_free(copy));
}

static void* work(void* seed) {
  unsigned state = *(unsigned*)seed;
  for (int round = 0; round < ROUNDS; round++) {
    state = state * 1103515245u + 12345u;
    cow_mlx_array array = shared[(state >> 16) % SHARED];
    switch ((state >> 8) % 4) {
      case 0:
        look_in_place(array);
        break;
      case 1:
        pass_on(array);
        break;
      case 2:
        EXPECT(!compute(array));
        break;
      default:
        look_at(array);
    }
    cow_mlx_array own = round % 2 ? made() : of_engine();
    look_at(own);
    EXPECT(!cow_mlx_array_free(own));
    EXPECT(cow_mlx_array_free(own) == COW_MLX_EHANDLE);
  }
  return NULL;
}

static void run(void* (*function)(void*)) {
  pthread_t threads[THREADS];
  unsigned seeds[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    seeds[i] = i + 1;
    EXPECT(!pthread_create(&threads[i], NULL, function, &seeds[i]));
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* ------------------------------------------------------------------- Stop */

static struct DLManagedTensorVersioned* given[THREADS];
static atomic_bool stopping;

static void* delete_late(void* seed) {
  struct DLManagedTensorVersioned* managed = given[*(unsigned*)seed - 1];
  while (!atomic_load(&stopping)) sched_yield();
  EXPECT(((unsigned char*)managed->tensor.data)[0] == 7);
  managed->deleter(managed);
  return NULL;
}

static void* create_amid_a_stop(void* seed) {
  unsigned char data[SIDE * SIDE] = {0};
  cow_mlx_tensor from = tensor(data);
  (void)seed;
  for (;;) {
    cow_mlx_array array;
    cow_mlx_status status = cow_mlx_array_create(&from, &array);
    if (status == COW_MLX_ESTATE) return NULL;
    EXPECT(status == COW_MLX_OK);
    status = cow_mlx_array_free(array);
    EXPECT(status == COW_MLX_OK || status == COW_MLX_EHANDLE);
  }
}

static void* stop(void* seed) {
  if (*(unsigned*)seed > 1) return create_amid_a_stop(seed);
  sched_yield();
  cow_arrays_stop();
  return NULL;
}

static void stop_with_tensors_away(void) {
  for (int i = 0; i < THREADS; i++) {
    cow_mlx_array array = i % 2 ? made() : of_engine();
    EXPECT(!cow_mlx_array_to_dlpack(array, &given[i]));
  }
  run(stop);
  EXPECT(cow_arrays_count() == 0);
  for (int i = 0; i < SHARED; i++) EXPECT(cow_mlx_array_free(shared[i]) == COW_MLX_EHANDLE);
  atomic_store(&stopping, true);
  run(delete_late);
}

/* ------------------------------------------------------------------ Readers */

/* The engine takes over an array whose handle is closed while a call still reads it. */
static void readers_keep_elements(void) {
  cow_mlx_array handle = made();
  cow_array* reader;
  cow_array_parts parts;
  EXPECT(!cow_arrays_hold("read", handle, &reader));
  cow_array* engines = cow_arrays_take(handle, &parts);
  EXPECT(!cow_mlx_array_free(handle));
  value* object = new_object(SIDE * SIDE, 5);
  EXPECT(!cow_arrays_set_object(engines, object, object->elements));
  EXPECT(cow_array_look(reader).data == parts.data);
  EXPECT(((const unsigned char*)parts.data)[0] == 7);
  cow_arrays_let_go(reader);
  cow_arrays_let_go(engines);

  handle = made(); /* without one, the memory is given up */
  engines = cow_arrays_take(handle, &parts);
  object = new_object(SIDE * SIDE, 5);
  EXPECT(!cow_arrays_set_object(engines, object, object->elements));
  EXPECT(cow_array_look(engines).data == object->elements);
  cow_arrays_let_go(engines);
  EXPECT(!cow_mlx_array_free(handle));
  drop_objects();
}

/* ------------------------------------------------------------------ Forks */

enum { FORKS = 50, CHILD_PATIENCE = 100, BLOCK = 1 << 20 };

static void* keep_and_trim(void* unused) {
  while (!atomic_load(&stopping)) {
    void* blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = cow_memory_new(BLOCK);
    for (int i = 0; i < 8; i++) cow_memory_let_go(blocks[i]);
    cow_memory_trim();
  }
  return unused;
}

/* Whatever other threads do at a fork, the child can let go of memory. */
static void children_let_go(void) {
  pthread_t thread;
  pthread_atfork(cow_arrays_before_fork, cow_arrays_after_fork, cow_arrays_after_fork);
  EXPECT(!pthread_create(&thread, NULL, keep_and_trim, NULL));
  void* memory = cow_memory_new(BLOCK);
  for (int i = 0; i < FORKS; i++) {
    int status;
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      alarm(CHILD_PATIENCE);
      cow_memory_let_go(memory);
      raise(SIGKILL); /* a sanitizer would look for leaks at an exit */
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  atomic_store(&stopping, true);
  pthread_join(thread, NULL);
  atomic_store(&stopping, false);
  cow_memory_let_go(memory);
}

/* Memory that the engine counts is counted once, and not again when it is freed. */
static void engine_counts(void) {
  cow_memory_bound(SIZE_MAX, 0);
  size_t before = cow_memory_in_use();
  void* memory = cow_memory_new(BLOCK);
  EXPECT(memory && cow_memory_in_use() == before + BLOCK);
  cow_memory_count_with_engine(memory);
  EXPECT(cow_memory_in_use() == before + BLOCK);
  cow_memory_bound(SIZE_MAX, 7); /* what it says that it has */
  EXPECT(cow_memory_in_use() == before + 7);
  cow_memory_let_go(memory);
  EXPECT(cow_memory_in_use() == before + 7);
  cow_memory_bound(SIZE_MAX, 0);
}

/* ------------------------------------------------------------------ Slots */

/* A slot that has had all generations is not used again; a handle is never an older one. */
static void slots_end(void) {
  cow_mlx_array first = made();
  table.slots[slot_of(first)].generation = LAST_GENERATION;
  cow_mlx_array last = ((int64_t)LAST_GENERATION << SLOT_BITS) | (first & MAX_SLOTS);
  EXPECT(last < (int64_t)1 << 53);
  EXPECT(cow_mlx_array_free(first) == COW_MLX_EHANDLE && !cow_mlx_array_free(last));
  for (int i = 0; i < 4 * RESTING; i++) {
    cow_mlx_array array = made();
    EXPECT((array & MAX_SLOTS) != (last & MAX_SLOTS));
    EXPECT(!cow_mlx_array_free(array) && cow_mlx_array_free(last) == COW_MLX_EHANDLE);
  }
}

/* Where the table cannot grow, the error says so, and nothing of handles. */
static void no_memory_for_a_slot(void) {
  unsigned char data[SIDE * SIDE] = {0};
  cow_mlx_tensor from = tensor(data);
  cow_mlx_array array = 0, kept[2 * FIRST_SIZE];
  size_t count = 0;
  has_memory = false;
  cow_mlx_status status;
  while ((status = cow_mlx_array_create(&from, &array)) == COW_MLX_OK) {
    EXPECT(count < sizeof kept / sizeof *kept);
    kept[count++] = array;
  }
  EXPECT(status == COW_MLX_ENOMEM && strstr(cow_mlx_error_message(), "too little memory"));
  has_memory = true;
  EXPECT(cow_mlx_array_create(&from, &array) == COW_MLX_OK && !cow_mlx_array_free(array));
  while (count) EXPECT(!cow_mlx_array_free(kept[--count]));
}

int main(void) {
  cow_arrays_start(true);
  no_memory_for_a_slot();
  readers_keep_elements();
  children_let_go();
  for (int i = 0; i < SHARED; i++) shared[i] = i % 2 ? made() : of_engine();
  run(work);
  engine_counts();
  slots_end();
  stop_with_tensors_away();
  drop_objects();
  EXPECT(atomic_load(&objects) == 0);
  free(table.slots);
  return 0;
}

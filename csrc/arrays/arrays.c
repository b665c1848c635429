#include "arrays/arrays.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "queue/queue.h"

/* ------------------------------------------------------------------ The table */

/* A handle is a slot (24 bits) and a generation (29 bits, so that all is below 2^53). Generations
 * start where a handle is larger than any int32; a slot that has had them all is not used again. */
enum {
  SLOT_BITS = 24,
  MAX_SLOTS = (1 << SLOT_BITS) - 1,
  FIRST_GENERATION = 1 << 8,
  LAST_GENERATION = (1 << 29) - 1,
  RESTING = 1024, /* free slots before one of them is used again */
  FIRST_SIZE = 1024,
  NO_SLOT = 0
};

struct cow_array {
  size_t holders; /* the open handle is one */
  cow_array_type type;
  void* memory;     /* of cow_memory_new(), or NULL */
  const void* data; /* where the elements are: in memory, or the object's; NULL: to be computed */
  void* object;     /* the engine's, or NULL */
  bool is_pinned;
  bool is_open;    /* its handle is */
  cow_array* next; /* that is dropped */
};

typedef struct slot {
  cow_array* array;    /* NULL: free */
  uint32_t generation; /* of the open handle, or of the next one */
  uint32_t next;       /* free slot */
} slot;

/* Bytes of elements that take long to give back to the system. */
enum { LARGE = 1 << 20 };

/* The lock is held for a few instructions at a time, and never while anything else is waited for.
 */
static struct {
  pthread_mutex_t lock;
  slot* slots; /* [0] is never used */
  uint32_t size;
  uint32_t used; /* slots that ever had an array */
  uint32_t first_free, last_free, free_count;
  size_t open_count;
  bool is_started;
  bool has_float64;
  cow_array* dropped; /* whose objects the engine has to release */
  atomic_bool has_dropped;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { pthread_mutex_lock(&table.lock); }
static void unlock(void) { pthread_mutex_unlock(&table.lock); }

/* With the lock held, from here. */

static bool grow(void) {
  uint32_t size = table.size ? table.size * 2 : FIRST_SIZE;
  if (size > MAX_SLOTS + 1) return false;
  slot* slots = realloc(table.slots, size * sizeof *slots);
  if (!slots) return false;
  table.slots = slots;
  table.size = size;
  if (!table.used) table.used = 1;
  return true;
}

static uint32_t reused_slot(void) {
  uint32_t at = table.first_free;
  if (!at) return NO_SLOT;
  table.first_free = table.slots[at].next;
  if (!table.first_free) table.last_free = NO_SLOT;
  table.free_count--;
  return at;
}

static uint32_t new_slot(void) {
  if ((!table.size || table.used == table.size) && !grow()) return NO_SLOT;
  uint32_t at = table.used++;
  table.slots[at] = (slot){.generation = FIRST_GENERATION};
  return at;
}

static uint32_t take_slot(void) {
  uint32_t at = table.free_count > RESTING ? reused_slot() : new_slot();
  return at ? at : reused_slot();
}

static void free_slot(uint32_t at) {
  table.slots[at].array = NULL;
  if (table.slots[at].generation++ == LAST_GENERATION) return;
  table.slots[at].next = NO_SLOT;
  if (table.last_free) {
    table.slots[table.last_free].next = at;
  } else {
    table.first_free = at;
  }
  table.last_free = at;
  table.free_count++;
}

static uint32_t slot_of(int64_t handle) {
  uint64_t generation = (uint64_t)handle >> SLOT_BITS;
  uint32_t at = (uint32_t)handle & MAX_SLOTS;
  if (handle <= 0 || at == 0 || at >= table.used || generation > LAST_GENERATION) return NO_SLOT;
  const slot* found = &table.slots[at];
  return found->array && found->generation == generation ? at : NO_SLOT;
}

static int64_t open_array(cow_array* array) {
  uint32_t at = take_slot();
  if (!at) return 0;
  table.slots[at].array = array;
  array->is_open = true;
  table.open_count++;
  return (int64_t)(((uint64_t)table.slots[at].generation << SLOT_BITS) | at);
}

/* The array of a handle with one holder more, or NULL. */
static cow_array* hold(int64_t handle) {
  uint32_t at = slot_of(handle);
  cow_array* array = at ? table.slots[at].array : NULL;
  if (array) array->holders++;
  return array;
}

/* One holder less. Returns an array to be freed, without the lock. */
static cow_array* let_go(cow_array* array) {
  if (--array->holders) return NULL;
  if (!array->object) return array;
  array->next = table.dropped;
  table.dropped = array;
  return NULL;
}

static cow_array* close_slot(uint32_t at) {
  cow_array* array = table.slots[at].array;
  array->is_open = false;
  free_slot(at);
  table.open_count--;
  return let_go(array);
}

/* Without the lock, from here. */

static void free_array(cow_array* array) {
  if (!array) return;
  cow_memory_let_go(array->memory);
  free(array);
}

/* Let go of the lock; tell the engine if it has objects to release: at once if one is large, since
 * giving its memory back would delay the next request. */
static void unlock_and_tell(void) {
  bool is_large = table.dropped && table.dropped->type.bytes >= LARGE;
  bool is_first = table.dropped && !atomic_exchange(&table.has_dropped, true);
  unlock();
  if (is_large)
    cow_queue_wake();
  else if (is_first)
    cow_queue_wake_to_release();
}

/* calloc() of older glibc does not reuse what a thread has just freed. */
static cow_array* new_array(const cow_array_type* type) {
  cow_array* array = malloc(sizeof *array);
  if (array) *array = (cow_array){.holders = 1, .type = *type};
  return array;
}

/* ------------------------------------------------------------------ Arrays */

cow_mlx_status cow_arrays_check(const char* operation, int32_t dtype) {
  lock();
  bool is_started = table.is_started, has_float64 = table.has_float64;
  unlock();
  if (!is_started) return cow_error_not_running(operation);
  if (dtype == COW_MLX_FLOAT64 && !has_float64) {
    return cow_error(COW_MLX_EUNSUPPORTED, operation, COW_REASON_unsupported,
                     DETAILS(TEXT_DETAIL("argument", "dtype"), TEXT_DETAIL("value", "float64")),
                     "a GPU has no float64; use float32, or runtime_params.device \"cpu\"");
  }
  return COW_MLX_OK;
}

/* The failure of an array that could not be opened. */
static cow_mlx_status not_opened(const char* operation, const cow_array_type* type) {
  TRY(cow_arrays_check(operation, type->dtype));
  lock();
  bool is_full = table.used > MAX_SLOTS;
  unlock();
  if (!is_full) {
    return cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_memory, NULL,
                     "there is too little memory for an array's handle");
  }
  return cow_error(COW_MLX_ENOMEM, operation, COW_REASON_no_handles,
                   DETAILS(TEXT_DETAIL("kind", "array"), SIZE_DETAIL("limit", MAX_SLOTS)),
                   "%d arrays are open, of which there can be %d", (int)cow_arrays_count(),
                   (int)MAX_SLOTS);
}

/* Open an array of memory or an object; 0 if it cannot be opened. */
static int64_t add(const cow_array_type* type, void* memory, const void* data, void* object) {
  cow_array* array = new_array(type);
  if (!array) return 0;
  array->memory = memory;
  array->data = data;
  array->object = object;
  lock();
  int64_t handle = table.is_started ? open_array(array) : 0;
  unlock();
  if (!handle) free(array);
  return handle;
}

cow_mlx_status cow_arrays_add_memory(const char* operation, const cow_array_type* type, void* data,
                                     cow_mlx_array* out) {
  int64_t handle = add(type, data, data, NULL);
  if (!handle) return not_opened(operation, type);
  *out = handle;
  return COW_MLX_OK;
}

cow_array* cow_arrays_new(const cow_array_type* type, void* memory, const void* data) {
  cow_array* array = new_array(type);
  if (!array) return NULL;
  array->memory = memory;
  array->data = data;
  return array;
}

cow_mlx_status cow_arrays_open(const char* operation, cow_array* array, cow_mlx_array* out) {
  lock();
  int64_t handle = table.is_started ? open_array(array) : 0;
  if (handle) array->holders++;
  unlock();
  if (!handle) return not_opened(operation, &array->type);
  *out = handle;
  return COW_MLX_OK;
}

cow_mlx_status cow_arrays_hold(const char* operation, cow_mlx_array handle, cow_array** out) {
  lock();
  *out = hold(handle);
  unlock();
  return *out ? COW_MLX_OK : cow_error_handle(operation, "array", handle);
}

void cow_arrays_let_go(cow_array* array) {
  lock();
  cow_array* last = let_go(array);
  unlock_and_tell();
  free_array(last);
}

cow_array_state cow_array_look(cow_array* array) {
  lock();
  cow_array_state state = {&array->type, array->data};
  unlock();
  return state;
}

void* cow_array_share(cow_array* array) {
  lock();
  void* memory = array->memory;
  if (memory) cow_memory_hold(memory);
  unlock();
  return memory;
}

void cow_array_pin(cow_array* array) {
  lock();
  array->is_pinned = true;
  unlock();
}

bool cow_arrays_close(cow_mlx_array handle) {
  lock();
  uint32_t at = slot_of(handle);
  cow_array* last = at ? close_slot(at) : NULL;
  unlock_and_tell();
  free_array(last);
  return at != NO_SLOT;
}

void cow_arrays_before_fork(void) {
  lock();
  cow_memory_before_fork();
}

void cow_arrays_after_fork(void) {
  cow_memory_after_fork();
  unlock();
}

/* ------------------------------------------------------------ For the bridge */

void cow_arrays_start(bool has_float64) {
  lock();
  table.is_started = true;
  table.has_float64 = has_float64;
  unlock();
}

void cow_arrays_stop(void) {
  lock();
  table.is_started = false;
  for (uint32_t at = 1; at < table.used; at++) {
    if (!table.slots[at].array) continue;
    cow_array* last = close_slot(at);
    unlock(); /* others may ask meanwhile */
    free_array(last);
    lock();
  }
  unlock_and_tell();
  cow_memory_trim();
}

size_t cow_arrays_count(void) {
  lock();
  size_t count = table.open_count;
  unlock();
  return count;
}

static cow_array_type type_of(int32_t dtype, int32_t rank, const int64_t* shape) {
  cow_array_type type = {.dtype = dtype, .rank = rank};
  memcpy(type.shape, shape, (size_t)rank * sizeof *shape);
  cow_type_complete(&type);
  return type;
}

int64_t cow_arrays_add_object(void* object, const void* data, int32_t dtype, int32_t rank,
                              const int64_t* shape) {
  cow_array_type type = type_of(dtype, rank, shape);
  return add(&type, NULL, data, object);
}

int64_t cow_arrays_add_host(void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  cow_array_type type = type_of(dtype, rank, shape);
  return add(&type, data, data, NULL);
}

static cow_array_parts parts_of(const cow_array* array) {
  return (cow_array_parts){array->type.dtype, array->type.rank, array->type.shape,
                           array->type.bytes, array->data,      array->object};
}

cow_array* cow_arrays_take(int64_t handle, cow_array_parts* out) {
  lock();
  cow_array* array = hold(handle);
  if (array) *out = parts_of(array);
  unlock();
  return array;
}

cow_array* cow_arrays_hold_object(void* object, const void* data, int32_t dtype, int32_t rank,
                                  const int64_t* shape, cow_array_parts* out) {
  cow_array_type type = type_of(dtype, rank, shape);
  cow_array* array = new_array(&type);
  if (!array) return NULL;
  array->object = object;
  array->data = data;
  *out = parts_of(array);
  return array;
}

void cow_arrays_tell(cow_array* array, cow_array_parts* out) {
  lock();
  *out = parts_of(array);
  unlock();
}

void* cow_arrays_set_object(cow_array* array, void* object, const void* data) {
  void* memory = NULL;
  lock();
  void* before = array->object;
  array->object = object;
  /* Beside the caller and the open handle, another holder may copy from where its elements were. */
  bool is_held = array->holders > (array->is_open ? 2 : 1);
  bool is_known = array->memory && (array->is_pinned || is_held);
  if (data && !is_known) {
    memory = array->memory;
    array->memory = NULL;
    array->data = data;
  }
  unlock();
  cow_memory_let_go(memory);
  return before;
}

void* cow_arrays_take_memory(cow_array* array) {
  lock();
  void* memory = array->memory;
  /* The object could write there, although a tensor of DLPack shares the memory. */
  if (memory && (array->object || cow_memory_is_shared(memory))) memory = NULL;
  if (memory) array->memory = NULL;
  unlock();
  return memory;
}

void cow_arrays_return_memory(cow_array* array, void* memory) {
  lock();
  array->memory = memory;
  unlock();
}

void* cow_arrays_next_dropped(void) {
  if (!atomic_exchange(&table.has_dropped, false)) return NULL;
  lock();
  cow_array* array = table.dropped;
  if (array) table.dropped = array->next;
  atomic_store(&table.has_dropped, table.dropped != NULL);
  unlock();
  if (!array) return NULL;
  void* object = array->object;
  free_array(array);
  return object;
}

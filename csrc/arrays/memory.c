#if !defined(__APPLE__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* posix_memalign, _SC_PHYS_PAGES */
#endif

#include "arrays/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* A system clears pages before it hands them out, which takes longer than a copy: large blocks are
 * kept for reuse, up to a part of the physical memory. */
enum { ALIGNMENT = 64, KEPT_BLOCKS = 32, PART_OF_MEMORY = 16 };
static const size_t LEAST_KEPT = (size_t)1 << 20;

/* Lies before the data; at least COW_MEMORY_FRONT bytes between the two are free. */
typedef struct block {
  atomic_size_t holders;
  size_t capacity;
  size_t bytes; /* asked for; 0: the engine counts them */
  void* begin;  /* to be freed */
} block;

_Static_assert(sizeof(block) + COW_MEMORY_FRONT <= ALIGNMENT, "the front is not the block's");

static struct {
  pthread_mutex_t lock;
  block* blocks[KEPT_BLOCKS]; /* the longest kept first */
  size_t count;
  size_t bytes;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Bytes that are held, those of the engine, and the bound of both. */
static atomic_size_t in_use, others, limit = SIZE_MAX;

static block* block_of(void* data) { return (block*)((char*)data - ALIGNMENT); }

static size_t physical_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) return SIZE_MAX;
  return (size_t)pages > SIZE_MAX / (size_t)size ? SIZE_MAX : (size_t)pages * (size_t)size;
}

/* Blocks are freed without the lock, since that may take long. */
static void lock(void) { pthread_mutex_lock(&kept.lock); }
static void unlock(void) { pthread_mutex_unlock(&kept.lock); }

void cow_memory_before_fork(void) { lock(); }
void cow_memory_after_fork(void) { unlock(); }

/* With the lock held. */
static block* take_out(size_t index) {
  block* found = kept.blocks[index];
  kept.bytes -= found->capacity;
  kept.count--;
  for (; index < kept.count; index++) kept.blocks[index] = kept.blocks[index + 1];
  return found;
}

/* The smallest kept block that fits, unless too much of it would lie idle. */
static block* reused(size_t bytes) {
  lock();
  size_t best = kept.count;
  for (size_t i = 0; i < kept.count; i++) {
    size_t capacity = kept.blocks[i]->capacity;
    bool fits = capacity >= bytes && capacity - bytes <= bytes / 4;
    if (fits && (best == kept.count || capacity < kept.blocks[best]->capacity)) best = i;
  }
  block* found = best < kept.count ? take_out(best) : NULL;
  unlock();
  return found;
}

/* Free the block that is kept for longest, if blocks are too many or too large for one more of so
 * many bytes; `most` is the bound of all. Takes the lock, and returns false with it held. */
static bool free_oldest(size_t bytes, size_t most) {
  lock();
  if (kept.count < KEPT_BLOCKS && (!kept.count || kept.bytes <= most - bytes)) return false;
  block* oldest = take_out(0);
  unlock();
  free(oldest->begin);
  return true;
}

/* Keep a block, and free older ones that are too many then. */
static void keep(block* one) {
  size_t most = physical_memory() / PART_OF_MEMORY;
  if (one->capacity > most) {
    free(one->begin);
    return;
  }
  while (free_oldest(one->capacity, most)) continue;
  kept.blocks[kept.count++] = one;
  kept.bytes += one->capacity;
  unlock();
}

void cow_memory_trim(void) {
  block* oldest;
  do {
    lock();
    oldest = kept.count ? take_out(0) : NULL;
    unlock();
    if (oldest) free(oldest->begin);
  } while (oldest);
}

/* Large blocks begin and end at a page, so that a GPU can read them in place. */
static block* new_block(size_t bytes) {
  long page = bytes >= LEAST_KEPT ? sysconf(_SC_PAGESIZE) : 0;
  size_t front = page > ALIGNMENT ? (size_t)page : ALIGNMENT;
  size_t capacity = page > ALIGNMENT ? (bytes + front - 1) / front * front : bytes;
  void* begin;
  if (posix_memalign(&begin, front, front + capacity)) return NULL;
  block* made = block_of((char*)begin + front);
  made->capacity = capacity;
  made->begin = begin;
  return made;
}

void cow_memory_bound(size_t bytes, size_t of_engine) {
  atomic_store(&limit, bytes);
  atomic_store(&others, of_engine);
}

size_t cow_memory_limit(void) { return atomic_load(&limit); }

size_t cow_memory_in_use(void) { return atomic_load(&in_use) + atomic_load(&others); }

/* Count bytes as held; false if they are too many. */
static bool reserve(size_t bytes) {
  size_t before = atomic_load(&in_use);
  do {
    size_t all = before + atomic_load(&others), most = atomic_load(&limit);
    if (all > most || bytes > most - all) return false;
  } while (!atomic_compare_exchange_weak(&in_use, &before, before + bytes));
  return true;
}

void* cow_memory_new(size_t bytes) {
  /* A system that grants more than it has ends the process later. */
  if (bytes > SIZE_MAX / 2 || bytes >= physical_memory() || !reserve(bytes)) return NULL;
  block* found = bytes >= LEAST_KEPT ? reused(bytes) : NULL;
  if (!found) found = new_block(bytes);
  if (!found) {
    cow_memory_trim();
    found = new_block(bytes);
  }
  if (!found) {
    atomic_fetch_sub(&in_use, bytes);
    return NULL;
  }
  found->bytes = bytes;
  atomic_init(&found->holders, 1);
  return (char*)found + ALIGNMENT;
}

void cow_memory_hold(void* data) {
  atomic_fetch_add_explicit(&block_of(data)->holders, 1, memory_order_relaxed);
}

bool cow_memory_is_shared(const void* data) {
  return atomic_load(&block_of((void*)(uintptr_t)data)->holders) > 1;
}

size_t cow_memory_capacity(const void* data) { return block_of((void*)(uintptr_t)data)->capacity; }

void cow_memory_count_with_engine(void* data) {
  block* one = block_of(data);
  atomic_fetch_add(&others, one->bytes);
  atomic_fetch_sub(&in_use, one->bytes);
  one->bytes = 0;
}

void cow_memory_let_go(void* data) {
  if (!data || atomic_fetch_sub(&block_of(data)->holders, 1) != 1) return;
  block* last = block_of(data);
  atomic_fetch_sub(&in_use, last->bytes);
  if (last->capacity < LEAST_KEPT) {
    free(last->begin);
  } else {
    keep(last);
  }
}

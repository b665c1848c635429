/* Refuses memory and threads at random, in the place of the system's functions (LD_PRELOAD).
 * refuse_arm() begins. Host threads say that they are (refuse_spare()): of them only the library is
 * refused, since the host's code is not what is tested. Never refused are libraries in Rust and
 * OpenBLAS, which end the process then. Of C++, only large requests are: destructors of mlx's
 * graphs and of nanobind's objects make small ones, and end the process where these fail. The
 * library looks for 32 MiB before each call instead. A library in Rust also ends what it does, and
 * prints, where Python gets no memory for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

enum { MAX_RANGES = 2048, MAX_BURST = 4, MAX_FRAMES = 16 };
enum kind { OTHER, OWN, PYTHON, RUST, SPARED };

typedef struct range {
  uintptr_t begin, end;
  enum kind kind;
} range;

static range ranges[MAX_RANGES];
static int range_count;
static atomic_bool armed;
static atomic_uint_fast64_t seed, threads_seen;
static atomic_long refusals;
static uint64_t one_in_small, one_in_large, one_in_threads;
static size_t large_from;
static _Thread_local uint64_t state;
static _Thread_local int burst;
static _Thread_local int spared;

/* Libraries that end the process where they get no memory. */
static const char* const IN_RUST[] = {"tokenizers", "llguidance"};
static const char* const ENDING[] = {"openblas", "libcowmlx_blas", "libcowmlx_lapack",
                                     "ld-linux", "libc.so",        "libgfortran"};

static enum kind kind_of(const char* name) {
  for (size_t i = 0; i < sizeof IN_RUST / sizeof *IN_RUST; i++)
    if (strstr(name, IN_RUST[i])) return RUST;
  for (size_t i = 0; i < sizeof ENDING / sizeof *ENDING; i++)
    if (strstr(name, ENDING[i])) return SPARED;
  if (strstr(name, "libcowmlx.so")) return OWN;
  return !*name || strstr(name, "libpython") || strstr(name, "_bridge") ? PYTHON : OTHER;
}

static int note_library(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size, (void)data;
  for (int i = 0; i < info->dlpi_phnum && range_count < MAX_RANGES; i++) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
    uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    ranges[range_count++] = (range){begin, begin + part->p_memsz, kind_of(info->dlpi_name)};
  }
  return 0;
}

/* Begin to refuse: one of so many small and large requests, and new threads. */
void refuse_arm(uint64_t from, uint64_t small, uint64_t large, uint64_t threads, size_t size) {
  range_count = 0;
  dl_iterate_phdr(note_library, NULL);
  backtrace(&(void*){0}, 1); /* loads what it needs */
  atomic_store(&seed, from);
  one_in_small = small, one_in_large = large, one_in_threads = threads, large_from = size;
  atomic_store(&armed, true);
}

void refuse_disarm(void) { atomic_store(&armed, false); }
void refuse_spare(void) { spared = 1; }
long refuse_count(void) { return atomic_load(&refusals); }

static enum kind caller_kind(uintptr_t caller) {
  for (int i = 0; i < range_count; i++)
    if (caller >= ranges[i].begin && caller < ranges[i].end) return ranges[i].kind;
  return SPARED; /* unknown code */
}

/* Whether Python asks for a library that is never refused. */
static int asks_for_spared(void) {
  void* frames[MAX_FRAMES];
  int count = backtrace(frames, MAX_FRAMES);
  for (int i = 0; i < count; i++)
    for (int j = 0; j < range_count; j++)
      if ((uintptr_t)frames[i] >= ranges[j].begin && (uintptr_t)frames[i] < ranges[j].end &&
          ranges[j].kind == RUST)
        return 1;
  return 0;
}

static uint64_t next_number(void) {
  if (state == 0) {
    state = (atomic_load(&seed) + 1) * 0x9e3779b97f4a7c15u ^
            (atomic_fetch_add(&threads_seen, 1) + 1) * 0xbf58476d1ce4e5b9u;
    if (state == 0) state = 1;
  }
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

static int refuses(uint64_t one_in, int is_small, void* caller) {
  if (one_in == 0 || (burst == 0 && next_number() % one_in != 0)) return 0;
  enum kind kind = caller_kind((uintptr_t)caller);
  if (kind >= RUST || (kind == PYTHON && asks_for_spared())) return 0;
  if ((spared && kind != OWN) || (is_small && kind == OTHER)) return 0;
  burst = burst > 0 ? burst - 1 : (int)(next_number() % (MAX_BURST + 1));
  atomic_fetch_add(&refusals, 1);
  return 1;
}

static int refuses_size(size_t size, void* caller) {
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) return 0;
  int is_small = size < large_from;
  return refuses(is_small ? one_in_small : one_in_large, is_small, caller);
}

#define CALLER __builtin_return_address(0)

void* malloc(size_t size) {
  if (refuses_size(size, CALLER)) return errno = ENOMEM, NULL;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (refuses_size(count * size, CALLER)) return errno = ENOMEM, NULL;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  if (refuses_size(size, CALLER)) return errno = ENOMEM, NULL;
  return __libc_realloc(old, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  if (refuses_size(size, CALLER)) return ENOMEM;
  void* made = __libc_memalign(alignment, size);
  if (made) *out = made;
  return made ? 0 : ENOMEM;
}
void* aligned_alloc(size_t alignment, size_t size) {
  if (refuses_size(size, CALLER)) return errno = ENOMEM, NULL;
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  if (refuses_size(size, CALLER)) return errno = ENOMEM, NULL;
  return __libc_memalign(alignment, size);
}
void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  if (refuses_size(size, CALLER)) return errno = ENOMEM, MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
void* mmap64(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  if (refuses_size(size, CALLER)) return errno = ENOMEM, MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* data) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  if (atomic_load(&armed) && refuses(one_in_threads, 0, CALLER)) return EAGAIN;
  return real(thread, attributes, run, data);
}

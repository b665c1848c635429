#ifndef __APPLE__
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif

#include "boot/resources.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#elif defined(__APPLE__)
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <sys/sysctl.h>
#endif

#ifdef __APPLE__
#include <pthread/qos.h>
#else
enum {
  QOS_CLASS_USER_INTERACTIVE,
  QOS_CLASS_USER_INITIATED,
  QOS_CLASS_UTILITY,
  QOS_CLASS_BACKGROUND
};
#endif

enum { MAX_THREADS = 256 };

/* Bytes that the system always maps for a process without limits. */
static const size_t SURE = (size_t)64 << 20;

/* All threads must exist at the same time. */
typedef struct gathering {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  bool open;
} gathering;

static void* wait_for_opening(void* data) {
  gathering* g = data;
  pthread_mutex_lock(&g->lock);
  while (!g->open) pthread_cond_wait(&g->opened, &g->lock);
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

bool cow_resources_threads(int count) {
  gathering g = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
  pthread_t threads[MAX_THREADS];
  int wanted = count < MAX_THREADS / 2 ? 2 * count : MAX_THREADS;
  int started = 0;
  while (started < wanted && !pthread_create(&threads[started], NULL, wait_for_opening, &g)) {
    started++;
  }
  pthread_mutex_lock(&g.lock);
  g.open = true;
  pthread_cond_broadcast(&g.opened);
  pthread_mutex_unlock(&g.lock);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  return started == wanted;
}

/* Whether all processes together get no more than there is (Linux, vm.overcommit_memory 2). */
static bool is_strict;

static void read_strictness(void) {
  int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  char mode = 0;
  if (file < 0) return;
  is_strict = read(file, &mode, 1) == 1 && mode == '2';
  close(file);
}

/* Without limits the system maps a few bytes also where there is no memory for them: to ask for
 * them takes microseconds, and says nothing. */
static bool is_limited(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_strictness);
  struct rlimit all, data;
  return is_strict || getrlimit(RLIMIT_AS, &all) != 0 || all.rlim_cur != RLIM_INFINITY ||
         getrlimit(RLIMIT_DATA, &data) != 0 || data.rlim_cur != RLIM_INFINITY;
}

bool cow_resources_memory(size_t size) {
  if (size <= SURE && !is_limited()) return true;
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, size);
  return true;
}

void cow_resources_give_back(void) {
#if defined(__GLIBC__)
  malloc_trim(0);
#elif defined(__APPLE__)
  malloc_zone_pressure_relief(NULL, 0);
#endif
}

bool cow_resources_system_memory(uint64_t* most, uint64_t* easy) {
#ifdef __APPLE__
  uint64_t all = 0;
  size_t size = sizeof all;
  vm_statistics64_data_t pages;
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  mach_port_t host = mach_host_self();
  kern_return_t found = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&pages, &count);
  mach_port_deallocate(mach_task_self(), host);
  if (found != KERN_SUCCESS || sysctlbyname("hw.memsize", &all, &size, NULL, 0)) return false;
  const uint64_t page = vm_kernel_page_size;
  const uint64_t wired = page * pages.wire_count;
  *most = all > wired ? all - wired : 0;
  /* Pages that were read ahead count as free, too. */
  *easy = page * ((uint64_t)pages.free_count - pages.speculative_count + pages.external_page_count +
                  pages.purgeable_count);
  return true;
#else
  (void)most;
  (void)easy;
  return false;
#endif
}

int cow_resources_files(void) {
  int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int second = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int failure = second < 0 ? errno : 0;
  if (first >= 0) close(first);
  if (second >= 0) close(second);
  return failure == EMFILE || failure == ENFILE ? failure : 0; /* /dev/null may be missing */
}

static const struct {
  const char* name;
  unsigned value;
} classes[] = {
    {"user-initiated", QOS_CLASS_USER_INITIATED}, /* the default */
    {"user-interactive", QOS_CLASS_USER_INTERACTIVE},
    {"utility", QOS_CLASS_UTILITY},
    {"background", QOS_CLASS_BACKGROUND},
};
enum { CLASSES = sizeof classes / sizeof *classes };

const char* const cow_quality_names =
    "\"user-interactive\", \"user-initiated\", \"utility\", \"background\" or NULL";

static int index_of(const char* name) {
  if (!name) return 0;
  for (int i = 0; i < CLASSES; i++) {
    if (strcmp(name, classes[i].name) == 0) return i;
  }
  return -1;
}

bool cow_quality_is_known(const char* name) { return index_of(name) >= 0; }

void cow_quality_set(const char* name) {
  unsigned value = classes[index_of(name)].value;
#ifdef __APPLE__
  pthread_set_qos_class_self_np((qos_class_t)value, 0);
#else
  (void)value;
#endif
}

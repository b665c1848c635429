#include "pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include "../base/relax.h"
#ifdef __x86_64__
#include <xmmintrin.h>
#endif
#ifdef __APPLE__
#include <pthread/qos.h>
#include <sys/sysctl.h>
#endif

namespace cowmlx {
namespace {

using Nanoseconds = int64_t;

constexpr int MAX_WORKERS = 255;
constexpr size_t STACK = 1 << 20;
constexpr Nanoseconds MICROSECOND = 1000, SECOND = 1000 * 1000 * MICROSECOND;

/* Regions of one layer follow each other faster than a thread can be woken. Within a series a
 * worker stays for longer, but lets other programs have the processor then. */
constexpr Nanoseconds SPIN = 20 * MICROSECOND, STAY = 200 * MICROSECOND;

/* The time that workers have won is remembered up to CREDIT; they rest once they have cost DEBT
 * more than that. Other programs on the same processors cause such costs: a caller then waits for
 * chunks of workers that do not run. */
constexpr Nanoseconds CREDIT = 10 * 1000 * MICROSECOND, DEBT = 4 * 1000 * MICROSECOND;

/* What they have cost is at most this part of their rest. */
constexpr int AMORTISED = 24;

Nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/* The region under way. A thread that counts one of `left` down has claimed that chunk, and the
 * region stays until the chunk is done: only then are the other members read. */
struct Region {
  alignas(64) std::atomic<uint64_t> left{
      0};                    /* chunks; the higher half: arithmetic of helpers, 0: none */
  std::atomic<int> taken{0}; /* chunks, by others than the caller */
  alignas(64) std::atomic<int> done{0};
  alignas(64) Chunk chunk = nullptr;
  void* context = nullptr;
  int count = 0;
  int share = 0; /* chunks of the caller's share; 0: interleaved */

  /* The chunk that the caller, or the others together, take as their `at`th. Chunks [0, share) are
   * the caller's share, the rest is that of the other threads. A thread that finds no chunk left in
   * its share takes the last chunks of the other share. */
  int index(bool callers, int at) const {
    const int begin = callers ? 0 : share, size = callers ? share : count - share;
    if (at < size) return begin + at;
    return (callers ? count : share) - 1 - (at - size);
  }
};

struct alignas(64) Worker {
  std::atomic<int> asleep{0};
};

/* Nothing here has a destructor: workers outlive exit(). */
Region region;
Worker workers[MAX_WORKERS];
std::atomic<int> wanted{0};        /* threads, the caller included; 0: not set */
std::atomic<int> allowed{0};       /* workers that may claim chunks */
std::atomic<int> series{0};        /* under way */
std::atomic<bool> busy{false};     /* a region is under way; guards `started` and `patience` */
std::atomic<bool> forked{false};   /* this is a child, whose workers stayed behind */
std::atomic<bool> refused{false};  /* the system gave no more threads */
std::atomic<uint64_t> helper{0};   /* arithmetic of a thread that looks for chunks; 0: none does */
thread_local bool is_here = false; /* regions of this thread are open */
int started = 0;

/* When to compute alone, since another program needs the processors. */
struct Patience {
  Nanoseconds alone_until = 0;
  Nanoseconds rest = 0;
  Nanoseconds balance = 0;

  /* A region has ended that alone would have taken `won` longer, and without waiting `lost` less.
   */
  void account(Nanoseconds at, Nanoseconds won, Nanoseconds lost) {
    balance = std::min(balance + won - lost, CREDIT);
    if (balance == CREDIT) rest = 0;
    if (balance > -DEBT) return;
    rest = std::min(std::max(2 * rest, AMORTISED * -balance), SECOND);
    alone_until = at + rest;
    balance = 0;
  }
} patience;

enum class Role { Caller, Worker, Helper };

/* The rounding mode of this thread and its treatment of subnormal numbers, which a host may have
 * changed. Never 0. */
uint64_t arithmetic() {
  uint64_t control = 0;
#if defined(__x86_64__)
  constexpr unsigned RAISED = 0x3F; /* flags of exceptions */
  control = _mm_getcsr() & ~RAISED;
#elif defined(__aarch64__)
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
#endif
  return uint64_t{1} << 31 | static_cast<uint32_t>(control);
}

/* Claim chunks until none is left; how many were. The caller alone waits for the last one. */
int work(Role role) {
  const uint64_t own = role == Role::Helper ? arithmetic() : 0;
  int claimed = 0;
  uint64_t seen = region.left.load(std::memory_order_seq_cst);
  while ((seen & UINT32_MAX) > 0) {
    if (role == Role::Helper && seen >> 32 != own) break;
    if (!region.left.compare_exchange_weak(seen, seen - 1, std::memory_order_acquire)) continue;
    const int count = region.count;
    int index = count - static_cast<int>(seen & UINT32_MAX);
    if (region.share > 0) {
      const bool callers = role == Role::Caller;
      const int at = callers ? claimed : region.taken.fetch_add(1, std::memory_order_relaxed);
      index = region.index(callers, at);
    }
    region.chunk(region.context, index);
    claimed++;
    /* The caller may begin its next region from here on. */
    if (region.done.fetch_add(1, std::memory_order_acq_rel) + 1 == count && role != Role::Caller)
      region.done.notify_one();
    seen = region.left.load(std::memory_order_seq_cst);
  }
  return claimed;
}

bool may_claim(int index) {
  const uint64_t seen = region.left.load(std::memory_order_seq_cst);
  return (seen & UINT32_MAX) > 0 && /* first: what it was stored after holds */
         index < allowed.load(std::memory_order_relaxed);
}

/* Look for work for a while; whether there is some. */
bool look(int index) {
  const Nanoseconds begun = now();
  while (!may_claim(index)) {
    const Nanoseconds waited = now() - begun;
    if (waited < SPIN) {
      cow_relax();
    } else if (waited < STAY && series.load(std::memory_order_relaxed) > 0) {
      sched_yield();
    } else {
      return false;
    }
  }
  return true;
}

void* serve(void* given) {
  Worker& worker = *static_cast<Worker*>(given);
  const int index = static_cast<int>(&worker - workers);
  for (;;) {
    if (!look(index)) {
      worker.asleep.store(1, std::memory_order_seq_cst);
      if (may_claim(index)) {
        worker.asleep.store(0, std::memory_order_relaxed);
      } else {
        worker.asleep.wait(1, std::memory_order_acquire);
      }
    }
    if (index < allowed.load(std::memory_order_relaxed)) work(Role::Worker);
  }
  return nullptr;
}

void wake(Worker& worker) {
  if (worker.asleep.load(std::memory_order_seq_cst) == 1 &&
      worker.asleep.exchange(0, std::memory_order_release) == 1)
    worker.asleep.notify_one();
}

bool start(Worker& worker) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK);
#ifdef __APPLE__
  pthread_attr_set_qos_class_np(&attributes, qos_class_self(), 0); /* else it is a slow core's */
#endif
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the host's */
  pthread_t thread;
  const int failed = pthread_create(&thread, &attributes, serve, &worker);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return failed == 0;
}

void after_fork() { forked.store(true, std::memory_order_relaxed); }

/* Let as many workers claim chunks as are wanted, and start those that are missing. */
int ready(int wished) {
  static const bool registered = pthread_atfork(nullptr, nullptr, after_fork) == 0;
  if (!registered) return 0;
  while (started < wished && !refused.load(std::memory_order_relaxed)) {
    if (start(workers[started])) {
      started++;
    } else {
      refused.store(true, std::memory_order_relaxed);
    }
  }
  const int count = std::min(wished, started);
  allowed.store(count, std::memory_order_relaxed);
  return count;
}

void alone(int count, Chunk chunk, void* context) {
  for (int index = 0; index < count; index++) chunk(context, index);
}

/* Wait for chunks that workers have claimed. A caller that sleeps lets the scheduler move a worker
 * that waits behind another program to this processor. */
void finish(int count) {
  const Nanoseconds end = now() + SPIN;
  int done = region.done.load(std::memory_order_acquire);
  while (done != count && now() < end) {
    cow_relax();
    done = region.done.load(std::memory_order_acquire);
  }
  while (done != count) {
    region.done.wait(done, std::memory_order_acquire);
    done = region.done.load(std::memory_order_acquire);
  }
}

void together(int count, Chunk chunk, void* context, Order order, int most, Nanoseconds begun) {
  region.chunk = chunk;
  region.context = context;
  region.count = count;
  region.share = order == Order::Contiguous ? (count + most) / (most + 1) : 0;
  region.taken.store(0, std::memory_order_relaxed);
  const uint64_t open_to = is_here ? arithmetic() : 0;
  const int helping = is_here && helper.load(std::memory_order_relaxed) == open_to ? 1 : 0;
  /* A helper takes the place of a worker, which would take a processor from it. */
  allowed.store(most - helping, std::memory_order_relaxed);
  region.done.store(0, std::memory_order_relaxed);
  region.left.store(open_to << 32 | static_cast<uint32_t>(count), std::memory_order_seq_cst);
  for (int index = 0; index < std::min(most, count - 1) - helping; index++) wake(workers[index]);
  const int own = work(Role::Caller);
  if (own == count) return;
  const Nanoseconds claimed = now();
  finish(count);
  const Nanoseconds ended = now();
  patience.account(ended, (claimed - begun) / std::max(own, 1) * (count - own), ended - claimed);
}

#ifdef __linux__

constexpr int MAX_CPUS = 8192;
constexpr int PATH = 1024;

int processors_allowed() {
  const size_t size = CPU_ALLOC_SIZE(MAX_CPUS);
  cpu_set_t* set = CPU_ALLOC(MAX_CPUS);
  int count = 0;
  if (set != nullptr && sched_getaffinity(0, size, set) == 0) count = CPU_COUNT_S(size, set);
  CPU_FREE(set);
  return count > 0 ? count : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

/* "QUOTA PERIOD" of a cpu.max in a folder, as whole processors; 0 where there is no bound. */
int quota_in(const char* folder) {
  char path[PATH];
  if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= PATH) return 0;
  FILE* file = fopen(path, "re");
  if (file == nullptr) return 0;
  long long quota = 0, period = 0;
  const bool bounded = fscanf(file, "%lld %lld", &quota, &period) == 2 && period > 0; /* or "max" */
  fclose(file);
  if (!bounded) return 0;
  return quota > period ? static_cast<int>(quota / period) : 1;
}

/* The tightest quota of this process's control group (version 2) and of those above it; 0: none. */
int quota() {
  char line[PATH], folder[2 * PATH];
  FILE* file = fopen("/proc/self/cgroup", "re");
  if (file == nullptr) return 0;
  folder[0] = '\0';
  while (fgets(line, sizeof line, file) != nullptr) {
    if (strncmp(line, "0::/", 4) != 0) continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(folder, sizeof folder, "/sys/fs/cgroup%s", line + 3);
  }
  fclose(file);
  int least = 0;
  while (strlen(folder) >= strlen("/sys/fs/cgroup")) {
    const int found = quota_in(folder);
    if (found > 0 && (least == 0 || found < least)) least = found;
    *strrchr(folder, '/') = '\0';
  }
  return least;
}

#elif defined(__APPLE__)

int processors_allowed() {
  int count = 0;
  size_t size = sizeof count;
  /* Cores of the slow kind would make all others wait for their chunks. */
  if (sysctlbyname("hw.perflevel0.logicalcpu", &count, &size, nullptr, 0) == 0 && count > 0)
    return count;
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

int quota() { return 0; }

#else

int processors_allowed() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

int quota() { return 0; }

#endif

/* How many processors this process may use, at least 1: those that the affinity mask and a control
 * group's quota of processor time leave; on a Mac with two kinds of cores the fast ones. */
int processors() {
  const int count = processors_allowed(), bound = quota();
  if (count < 1) return 1;
  return bound > 0 && bound < count ? bound : count;
}

}  // namespace

const cow_helper HELPER = {
    [](bool looks) { helper.store(looks ? arithmetic() : 0, std::memory_order_relaxed); },
    [] { return work(Role::Helper) > 0; },
};

Here::Here() { is_here = true; }

Here::~Here() { is_here = false; }

bool Here::is_set() { return is_here; }

Series::Series() { series.fetch_add(1, std::memory_order_relaxed); }

Series::~Series() { series.fetch_sub(1, std::memory_order_relaxed); }

int threads() {
  if (forked.load(std::memory_order_relaxed)) return 1;
  int count = wanted.load(std::memory_order_relaxed);
  if (count < 1) {
    static const int available = processors();
    count = available;
  }
  return std::min(count, MAX_WORKERS + 1);
}

void set_threads(int count) {
  wanted.store(count, std::memory_order_relaxed);
  refused.store(false, std::memory_order_relaxed); /* try again */
}

void parallel(int count, Chunk chunk, void* context, Order order) {
  const int wished = count > 1 ? threads() - 1 : 0;
  if (wished < 1 || busy.load(std::memory_order_relaxed) ||
      busy.exchange(true, std::memory_order_acquire)) {
    alone(count, chunk, context);
    return;
  }
  const Nanoseconds begun = now();
  const int most = begun < patience.alone_until ? 0 : ready(wished);
  if (most > 0) {
    together(count, chunk, context, order, most, begun);
  } else {
    alone(count, chunk, context);
  }
  busy.store(false, std::memory_order_release);
}

}  // namespace cowmlx

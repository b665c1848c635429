#include "processors.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

namespace cowmlx {
namespace {

#ifdef __linux__

constexpr int MAX_CPUS = 8192;
constexpr int PATH = 1024;

int allowed() {
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

int allowed() {
  int count = 0;
  size_t size = sizeof count;
  /* Cores of the slow kind would make all others wait for their chunks. */
  if (sysctlbyname("hw.perflevel0.logicalcpu", &count, &size, nullptr, 0) == 0 && count > 0)
    return count;
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

int quota() { return 0; }

#else

int allowed() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

int quota() { return 0; }

#endif

}  // namespace

int processors() {
  const int count = allowed(), bound = quota();
  if (count < 1) return 1;
  return bound > 0 && bound < count ? bound : count;
}

}  // namespace cowmlx

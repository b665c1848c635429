/* The pool of threads from all sides. One scenario per run, named by argv[1]; ends with 0, or at
 * the first thing that is not as it should be. */
#include <atomic>
#include <cfenv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/pool.h"

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                               \
    }                                                                         \
  } while (0)

namespace {

using cowmlx::Order;
using cowmlx::parallel;
using cowmlx::set_threads;
using cowmlx::threads;

constexpr int REGIONS = 3000;
constexpr int MOST = 64; /* chunks of one */

/* A region whose chunks write where no other does: nothing of it is atomic. It allocates nothing: a
 * child forked while another thread does would wait for AddressSanitizer's lock for ever. */
void check_region(int count, int seed) {
  int seen[MOST] = {}, twice[MOST] = {};
  EXPECT(count <= MOST);
  const auto chunk = [&](int index) {
    seen[index] += seed + index;
    twice[index]++;
  };
  parallel(count, chunk, seed % 2 == 0 ? Order::Interleaved : Order::Contiguous);
  for (int index = 0; index < count; index++) {
    EXPECT(seen[index] == seed + index);
    EXPECT(twice[index] == 1);
  }
}

void many() {
  set_threads(4);
  for (int round = 0; round < REGIONS; round++) check_region(round % 40, round);
}

void callers() {
  set_threads(4);
  std::vector<std::thread> all;
  for (int caller = 0; caller < 4; caller++)
    all.emplace_back([caller] {
      for (int round = 0; round < REGIONS; round++) check_region(1 + round % 17, caller + round);
    });
  for (std::thread& one : all) one.join();
}

void bounds() {
  std::atomic<bool> ended{false};
  std::thread changes([&] {
    for (int round = 0; !ended.load(); round++) set_threads(round % 9 - 1);
  });
  for (int round = 0; round < REGIONS; round++) check_region(1 + round % 23, round);
  ended.store(true);
  changes.join();
  set_threads(3);
  EXPECT(threads() == 3);
  set_threads(-5);
  EXPECT(threads() >= 1);
  set_threads(1 << 30);
  EXPECT(threads() >= 1);
  set_threads(1);
  const std::thread::id self = std::this_thread::get_id();
  parallel(100, [&](int) { EXPECT(std::this_thread::get_id() == self); });
}

/* A chunk that itself cuts its work finds the pool taken, and computes alone. */
void nested() {
  set_threads(4);
  for (int round = 0; round < REGIONS / 20; round++)
    parallel(8, [&](int index) { check_region(5, index); });
}

/* Until another thread has taken part: more chunks than the caller gets through alone. */
void until_shared(const std::function<bool(std::thread::id)>& is_other,
                  const std::function<void()>& on_other) {
  std::atomic<bool> shared{false};
  while (!shared.load()) {
    parallel(64, [&](int) {
      if (is_other(std::this_thread::get_id())) {
        on_other();
        shared.store(true);
      } else {
        std::this_thread::yield();
      }
    });
  }
}

void with_a_worker(const std::function<void()>& on_worker) {
  const std::thread::id self = std::this_thread::get_id();
  until_shared([self](std::thread::id id) { return id != self; }, on_worker);
}

void signals() {
  set_threads(3);
  with_a_worker([] {
    sigset_t blocked;
    EXPECT(pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0);
    for (int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM, SIGPROF})
      EXPECT(sigismember(&blocked, signal) == 1);
  });
  sigset_t own;
  EXPECT(pthread_sigmask(SIG_SETMASK, nullptr, &own) == 0);
  EXPECT(sigismember(&own, SIGUSR1) == 0);
}

/* Run `body` with the id of a thread that looks for chunks of open regions meanwhile. Returns how
 * often it found some. */
int helped_with(bool rounds_up, const std::function<void(std::thread::id)>& body) {
  std::atomic<bool> looks{false}, ended{false};
  int found = 0;
  std::thread helper([&] {
    EXPECT(!rounds_up || fesetround(FE_UPWARD) == 0);
    cowmlx::HELPER.look(true);
    while (!ended.load()) {
      found += cowmlx::HELPER.help();
      looks.store(true);
    }
    cowmlx::HELPER.look(false);
  });
  while (!looks.load()) std::this_thread::yield();
  body(helper.get_id());
  ended.store(true);
  helper.join();
  return found;
}

/* A thread that waits computes chunks of open regions, and of no others. */
void helpers() {
  set_threads(2);
  const auto regions = [](std::thread::id) {
    for (int round = 0; round < REGIONS; round++) check_region(1 + round % 17, round);
  };
  EXPECT(helped_with(false, regions) == 0);
  const auto in_turns = [](std::thread::id helper) {
    for (int round = 0; round < REGIONS; round++) {
      std::optional<cowmlx::Here> here;
      if (round % 2 == 0) here.emplace();
      parallel(8, [&](int) { EXPECT(here || std::this_thread::get_id() != helper); });
    }
  };
  helped_with(false, in_turns);
  const cowmlx::Here here;
  const auto shared = [](std::thread::id helper) {
    until_shared([helper](std::thread::id id) { return id == helper; }, [] {});
  };
  EXPECT(helped_with(false, shared) > 0);
  helped_with(false, regions);
  EXPECT(helped_with(true, regions) == 0); /* its numbers would not be the caller's */
}

/* Children are forked from one thread while another's regions are under way. */
void forks() {
  set_threads(4);
  with_a_worker([] {});
  std::atomic<bool> ended{false};
  std::thread works([&] {
    for (int round = 0; !ended.load(); round++) check_region(1 + round % 17, round);
  });
  for (int child = 0; child < 20; child++) {
    const pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
      for (int round = 0; round < 100; round++) check_region(20, round);
      EXPECT(threads() == 1);
      set_threads(4);
      check_region(20, 7);
      _exit(threads() == 1 ? 7 : 8);
    }
    int status = 0;
    EXPECT(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
  ended.store(true);
  works.join();
  check_region(20, 3);
}

/* The process ends while workers and another thread compute. */
void leave() {
  set_threads(4);
  static std::atomic<bool> under_way{false};
  std::thread([] {
    static std::atomic<int> sum{0};
    for (;;)
      parallel(64, [](int index) {
        sum.fetch_add(index);
        under_way.store(true);
      });
  }).detach();
  while (!under_way.load()) std::this_thread::yield();
  exit(0);
}

/* What the process may use is what the test says in argv[2]. */
void usable(const char* expected) {
  const int count = atoi(expected);
  EXPECT(threads() == count);
  const std::thread::id self = std::this_thread::get_id();
  parallel(50, [&](int) { EXPECT(count > 1 || std::this_thread::get_id() == self); });
}

}  // namespace

int main(int count, char** given) {
  const char* name = count > 1 ? given[1] : "";
  if (strcmp(name, "many") == 0) many();
  if (strcmp(name, "callers") == 0) callers();
  if (strcmp(name, "bounds") == 0) bounds();
  if (strcmp(name, "nested") == 0) nested();
  if (strcmp(name, "signals") == 0) signals();
  if (strcmp(name, "helpers") == 0) helpers();
  if (strcmp(name, "forks") == 0) forks();
  if (strcmp(name, "leave") == 0) leave();
  if (strcmp(name, "usable") == 0) usable(given[2]);
  return 0;
}

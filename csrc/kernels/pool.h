/* One pool of threads for all kernels. A region is cut into chunks, which the caller and idle
 * workers take one after the other; what a chunk computes never depends on who computes it. */
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "../helper.h"

namespace cowmlx {

using Chunk = void (*)(void* context, int index);

/* How chunks are assigned. Interleaved: an idle thread takes the next chunk. Contiguous: the caller
 * takes chunks from the first one on, the other threads from the end of the caller's share on, so
 * that each side reads adjacent memory. */
enum class Order { Interleaved, Contiguous };

/* Run chunks 0 … count - 1 and return when all are done. Any thread may call; while another
 * thread's region is under way the caller computes its own alone. Chunks call nothing that waits,
 * and do not throw. Safe in a forked child, where the caller computes alone from then on. */
void parallel(int count, Chunk chunk, void* context, Order order);

inline void parallel(int count, Chunk chunk, void* context) {
  parallel(count, chunk, context, Order::Interleaved);
}

template <class F>
void parallel(int count, F&& body, Order order = Order::Interleaved) {
  using Body = std::remove_reference_t<F>;
  parallel(
      count, [](void* context, int index) { (*static_cast<Body*>(context))(index); },
      const_cast<std::remove_const_t<Body>*>(&body), order);
}

/* Regions follow each other as long as one is there, with little between them: workers stay awake
 * meanwhile, since waking them takes longer than what is between. */
class Series {
 public:
  Series();
  ~Series();
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;
};

/* While one lives, other threads wait for what this thread computes: its regions are open, and the
 * tasks of operations that it evaluates run at once, not on the thread of a stream. */
class Here {
 public:
  Here();
  ~Here();
  Here(const Here&) = delete;
  Here& operator=(const Here&) = delete;

  static bool is_set();
};

/* Computes chunks of open regions. A thread whose arithmetic differs from that of a region's caller
 * takes none: a host may round in another way. */
extern const cow_helper HELPER;

/* How many threads compute, the caller included: as set, or as many as the process may use. */
int threads();

/* Bound the threads from the next region on; below 1 stands for as many as there are processors. */
void set_threads(int count);

/* Run task(index, worker) for indices 0 … count - 1 on at most `most` workers, numbered from 0: no
 * two tasks of one worker run at the same time. Each begins with a separate range of indices, so
 * that what it has written in one region is in its cache in the next, and then helps the others. */
template <class F>
void share(int count, int most, F&& task) {
  const int workers = std::min({most, threads(), count});
  if (workers <= 1) {
    for (int index = 0; index < count; index++) task(index, 0);
    return;
  }
  constexpr int RANGES = 16;
  struct alignas(64) Range {
    std::atomic<int> next;
    int end;
  } ranges[RANGES];
  const int cut = std::min(workers, RANGES);
  for (int at = 0; at < cut; at++) {
    ranges[at].next.store(static_cast<int>(int64_t{count} * at / cut), std::memory_order_relaxed);
    ranges[at].end = static_cast<int>(int64_t{count} * (at + 1) / cut);
  }
  parallel(workers, [&](int worker) {
    for (int at = 0; at < cut; at++) {
      Range& range = ranges[(worker + at) % cut];
      for (int index; (index = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;)
        task(index, worker);
    }
  });
}

}  // namespace cowmlx

/* Tasks that need memory of their own while they run. */
#pragma once

#include <algorithm>
#include <atomic>

#include "pool.h"

namespace cowmlx {

/* Run task(index, worker) for indices 0 … count - 1 on at most `most` workers, numbered from 0: no
 * two tasks of one worker run at the same time. */
template <class F>
void share(int count, int most, F&& task) {
  const int workers = std::min({most, threads(), count});
  if (workers <= 1) {
    for (int index = 0; index < count; index++) task(index, 0);
    return;
  }
  std::atomic<int> next{0};
  parallel(workers, [&](int worker) {
    for (int index; (index = next.fetch_add(1, std::memory_order_relaxed)) < count;)
      task(index, worker);
  });
}

}  // namespace cowmlx

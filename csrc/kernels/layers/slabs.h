/* Rows of activations cut into slabs, and slabs into parts that are prepared side by side. */
#pragma once

#include <algorithm>

#include "../share.h"
#include "../table.h"

namespace cowmlx {

constexpr int SLAB_ROWS = 256; /* activations of so many rows stay in the cache between stages */
constexpr int PART_ROWS = 64;

/* Rows [begin, begin + rows) in `parts` parts. All parts of more than SMALL_ROWS rows have more
 * than SMALL_ROWS themselves, so that all rows of a long prompt take the same path. */
struct Slab {
  int begin, rows, parts;

  int part(int index) const { return static_cast<int>(int64_t{rows} * index / parts); }
};

/* How many slabs `rows` make: of even size, so that the last is not a remainder. */
inline int slab_count(int rows) { return (rows + SLAB_ROWS - 1) / SLAB_ROWS; }

inline Slab slab(int rows, int index) {
  const int count = slab_count(rows);
  const int begin = static_cast<int>(int64_t{rows} * index / count);
  const int end = static_cast<int>(int64_t{rows} * (index + 1) / count);
  const int parts = end - begin <= PART_ROWS ? 1 : (end - begin) / PART_ROWS;
  return {begin, end - begin, parts};
}

/* Do `body(row)` for rows 0 … count - 1: a few at a time on whichever thread is idle. */
template <class F>
void rowwise(int count, F&& body) {
  const int tasks = (count + SMALL_ROWS - 1) / SMALL_ROWS;
  share(tasks, tasks, [&](int task, int) {
    const int end = std::min(count, (task + 1) * SMALL_ROWS);
    for (int row = task * SMALL_ROWS; row < end; row++) body(row);
  });
}

}  // namespace cowmlx

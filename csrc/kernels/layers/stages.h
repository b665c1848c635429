/* The stages of a step over layers: scratch, slabs of rows, products and attention. */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../arena.h"
#include "../pool.h"
#include "../table.h"
#include "layer.h"

namespace cowmlx {

/* ---- rows of activations, cut into slabs, and slabs into parts prepared side by side ---- */

constexpr int SLAB_ROWS = 256; /* activations of so many rows stay in the cache between stages */
constexpr int PART_ROWS = 64;
constexpr int QUERIES = 64; /* that one task attends for */

/* For products that nothing precedes or follows. */
constexpr auto NOTHING = [](auto...) {};

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
void rowwise(int count, F&& body, int few = SMALL_ROWS) {
  const int tasks = (count + few - 1) / few;
  share(tasks, tasks, [&](int task, int) {
    const int end = std::min(count, (task + 1) * few);
    for (int row = task * few; row < end; row++) body(row);
  });
}

/* ---- products: matrices that read the same rows, in one parallel region ---- */

constexpr int MOST_MATRICES = 3; /* query, key and value */

struct Product {
  const Matrix* matrix;
  float* out; /* of the slab's first row */
  int64_t stride;
};

/* What a stage does with a row of x before its products: `from` row to `to` row, width numbers. */
struct RowsOf {
  const float* x; /* of the slab's first row */
  int64_t stride;
};

/* Scratch for one stage: prepared rows for each part of a slab and each kind of matrix. */
class Preparing {
 public:
  explicit Preparing(const Table& table) : table_(table) {}

  /* Reserve for slabs of up to `rows` rows and any of these matrices. */
  void reserve(Arena&, const Matrix* const* matrices, int count, int rows, bool rounded);

  /* Prepare a slab for `count` matrices; `make(row)` writes row `row` of x first, if given. */
  template <class F>
  void prepare(const Slab& slab, const Product* products, int count, const RowsOf& rows,
               bool rounded, F&& make) {
    of_ = kinds(products, count);
    int distinct = 0;
    for (int i = 0; i < count; i++) distinct = std::max(distinct, of_.kind[i] + 1);
    share(slab.parts, slab.parts, [&](int part, int) {
      const int begin = slab.part(part), end = slab.part(part + 1);
      for (int row = begin; row < end; row++) make(row);
      for (int kind = 0; kind < distinct; kind++) {
        const Matrix& like = *products[of_.first[kind]].matrix;
        table_.prepare(like, rows.x + begin * rows.stride, rows.stride, end - begin, rounded,
                       scratch_[kind] + part * pitch(like, slab, rounded), &prepared_[kind][part]);
      }
    });
  }

  /* The products of the slab that was prepared last; `then(from, to, row, row_end)` follows on the
   * columns [from, to) and rows that a task has computed of all `count` matrices alike, if
   * `together`: then all have the same rows and are cut at the same blocks. */
  template <class F>
  void multiply(const Slab& slab, const Product* products, int count, bool together, F&& then) {
    int total = 0;
    for (int i = 0; i < (together ? 1 : count); i++) total += products[i].matrix->blocks();
    const int chunk = blocks_per_task(slab, products, total);
    /* Tasks: for every part of the slab, runs of blocks of every matrix. */
    int tasks = 0, begins[MOST_MATRICES + 1];
    for (int i = 0; i < (together ? 1 : count); i++) {
      begins[i] = tasks;
      tasks += (products[i].matrix->blocks() + chunk - 1) / chunk;
    }
    begins[together ? 1 : count] = tasks;
    auto body = [&](int index) {
      const int part = index % slab.parts,
                task = index / slab.parts; /* a block stays in the cache */
      int i = 0;
      while (task >= begins[i + 1]) i++;
      const int from = (task - begins[i]) * chunk;
      const int to = std::min(products[i].matrix->blocks(), from + chunk);
      const int begin = slab.part(part), rows = slab.part(part + 1) - begin;
      for (int j = i; j < (together ? count : i + 1); j++)
        table_.product(*products[j].matrix, prepared_[of_.kind[j]][part], from, to, 0, rows,
                       products[j].out + begin * products[j].stride, products[j].stride);
      then(from * LANES, std::min(products[i].matrix->rows, to * LANES), begin, begin + rows);
    };
    if (tasks * slab.parts == 1)
      body(0);
    else
      parallel(tasks * slab.parts, body,
               slab.rows > SMALL_ROWS ? Order::Interleaved : Order::Contiguous);
  }

 private:
  struct Kinds {
    int kind[MOST_MATRICES], first[MOST_MATRICES];
  };
  /* Bytes from one part's prepared rows to the next one's. */
  size_t pitch(const Matrix& like, const Slab& slab, bool rounded) const;
  static Kinds kinds(const Product* products, int count);
  static int blocks_per_task(const Slab&, const Product* products, int total);

  static constexpr int MOST_PARTS = SLAB_ROWS / PART_ROWS;
  const Table& table_;
  char* scratch_[MOST_MATRICES] = {};
  Prepared prepared_[MOST_MATRICES][MOST_PARTS];
  Kinds of_{};
};

/* ---- attention: keys and values into the cache, and attention over it ---- */

/* Turn and norm the keys of rows [begin, begin + count) of the step, and write them and their
 * values into the layer's cache. `keys` and `values` are those rows', contiguous; keys are changed.
 */
void store(const AttentionHalf&, const Step&, const LayerCache&, float* keys, const float* values,
           int begin, int count);

/* Turn and norm all queries (B T, heads key_dim) in place, attend, and write (B T, heads
 * value_dim). */
void attend(const AttentionHalf&, const Step&, const LayerCache&, float* queries, float* out,
            float* scratch);

/* Numbers of scratch that attend() takes. */
size_t attend_scratch(const AttentionHalf&, const Step&);

/* y = norm(x) of one row of n numbers; a copy without a norm. */
void apply(const Table&, const Norm&, const float* x, int n, float* y);

}  // namespace cowmlx

/* Products of a stage: matrices that read the same rows, in one parallel region. */
#pragma once

#include "../matrix.h"
#include "../table.h"
#include "arena.h"
#include "slabs.h"

namespace cowmlx {

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

  /* Reserve for the largest slab of `rows` rows and any of these matrices. */
  void reserve(Arena&, const Matrix* const* matrices, int count, int rows, bool int8);

  /* Prepare a slab for `count` matrices; `make(row)` writes row `row` of x first, if given. */
  template <class F>
  void prepare(const Slab& slab, const Product* products, int count, const RowsOf& rows, bool int8,
               F&& make) {
    of_ = kinds(products, count, int8);
    int distinct = 0;
    for (int i = 0; i < count; i++) distinct = std::max(distinct, of_.kind[i] + 1);
    share(slab.parts, slab.parts, [&](int part, int) {
      const int begin = slab.part(part), end = slab.part(part + 1);
      for (int row = begin; row < end; row++) make(row);
      for (int kind = 0; kind < distinct; kind++) {
        const Matrix& like = *products[of_.first[kind]].matrix;
        table_.prepare(like, rows.x + begin * rows.stride, rows.stride, end - begin,
                       int8_for(like, int8), scratch_[kind] + part * size_, &prepared_[kind][part]);
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
      parallel(tasks * slab.parts, body);
  }

 private:
  struct Kinds {
    int kind[MOST_MATRICES], first[MOST_MATRICES];
  };
  static Kinds kinds(const Product* products, int count, bool int8);
  static bool int8_for(const Matrix&, bool int8);
  static int blocks_per_task(const Slab&, const Product* products, int total);

  static constexpr int MOST_PARTS = SLAB_ROWS / PART_ROWS;
  const Table& table_;
  char* scratch_[MOST_MATRICES] = {};
  size_t size_ = 0; /* of one part's prepared rows */
  Prepared prepared_[MOST_MATRICES][MOST_PARTS];
  Kinds of_{};
};

}  // namespace cowmlx

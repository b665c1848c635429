/* Matrices that operations have packed in blocks, kept for those that read the same weight again.
 */
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "operation.h"

namespace cowmlx {

/* A weight in blocks, as it is kept. While it is, its own memory stays, too, and nothing is
 * computed in place there, so that the blocks stay true. */
class PackedWeight {
 public:
  std::shared_ptr<mx::array::Data> of;
  mx::array blocks;
  std::atomic<bool> ready{false}; /* a task has filled the blocks */

  PackedWeight(std::shared_ptr<mx::array::Data> data, int64_t numbers)
      : of(std::move(data)),
        blocks(mx::allocator::malloc(static_cast<size_t>(numbers) * sizeof(float)), {0},
               mx::float32) {}

  /* A claim, held by the task that fills the blocks; null if they are filled, or another task
   * holds it. An evaluation that fails drops its claim. */
  std::shared_ptr<void> claim() {
    const std::lock_guard<std::mutex> held(lock_);
    if (ready.load(std::memory_order_acquire) || !filling_.expired()) return nullptr;
    auto claimed = std::make_shared<char>();
    filling_ = claimed;
    return claimed;
  }

 private:
  std::mutex lock_;
  std::weak_ptr<void> filling_;
};

/* Where one evaluation has its blocks. */
struct Blocks {
  float* packed;
  bool packs;                         /* they are to be filled */
  std::shared_ptr<PackedWeight> kept; /* whose they are; null: nobody's */
  std::shared_ptr<void> claimed;      /* of it, where they are to be filled */

  /* The task has filled them. */
  void filled() const {
    if (packs && kept != nullptr) kept->ready.store(true, std::memory_order_release);
  }
};

/* Keeps a weight in blocks once an operation has read it twice in a row. */
class Keeper {
 public:
  /* The blocks of an evaluated float32 weight, of `numbers` numbers, in `matrices` matrices. */
  Blocks find(const mx::array& weight, int64_t matrices, int64_t numbers,
              mx::cpu::CommandEncoder& encoder);

 private:
  static constexpr size_t MOST_AXES = 5;
  /* The memory, the first number, how many matrices; then a length and a stride of each axis. */
  using Key = std::array<int64_t, 3 + 2 * MOST_AXES>;
  class Shelf;

  static Shelf& shelf();
  static Key key_of(const mx::array& weight, int64_t matrices);

  std::mutex lock_;
  std::weak_ptr<mx::array::Data> seen_; /* the weight of the last evaluation */
  Key key_{};                           /* how it was read */
  std::shared_ptr<PackedWeight> kept_;
};

}  // namespace cowmlx

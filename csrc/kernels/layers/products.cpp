#include "stages.h"

namespace cowmlx {

namespace {

/* Bytes of weights below which a task costs more to hand over than to compute. */
constexpr size_t TASK_BYTES = 16 << 10;
constexpr int TILE_BLOCKS = 4;

bool alike(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.bits == b.bits && a.group == b.group && a.columns == b.columns;
}

size_t block_bytes(const Matrix& matrix) {
  return static_cast<size_t>(matrix.columns) * matrix.bits * LANES / 8;
}

}  // namespace

void Preparing::reserve(Arena& arena, const Matrix* const* matrices, int count, int rows,
                        bool rounded) {
  size_ = 0;
  int parts = 1, part_rows = rows;
  if (rows > PART_ROWS) {
    const Slab largest = slab(std::min(rows, SLAB_ROWS), 0);
    parts = MOST_PARTS;
    part_rows = std::max((largest.rows + largest.parts - 1) / largest.parts, 2 * PART_ROWS - 1);
  }
  for (int i = 0; i < count; i++)
    if (matrices[i]->rows)
      size_ = std::max(size_, table_.prepare_size(*matrices[i], part_rows, rounded));
  size_ = (size_ + Arena::ALIGNMENT - 1) / Arena::ALIGNMENT * Arena::ALIGNMENT;
  for (auto& scratch : scratch_) scratch = arena.take<char>(size_ * parts);
}

Preparing::Kinds Preparing::kinds(const Product* products, int count) {
  Kinds of{};
  int distinct = 0;
  for (int i = 0; i < count; i++) {
    int kind = 0;
    while (kind < distinct && !alike(*products[of.first[kind]].matrix, *products[i].matrix)) kind++;
    if (kind == distinct) of.first[distinct++] = i;
    of.kind[i] = kind;
  }
  return of;
}

int Preparing::blocks_per_task(const Slab& slab, const Product* products, int total) {
  /* Few rows take little time, of which a thread that waits for another's last task loses a part.
   */
  const int shares = slab.rows > SMALL_ROWS ? 4 : 16;
  const int wanted = std::max(1, total * slab.parts / (threads() * shares));
  const size_t bytes = std::max<size_t>(1, block_bytes(*products[0].matrix));
  const int least = slab.rows > SMALL_ROWS ? 1 : static_cast<int>(TASK_BYTES / bytes) + 1;
  if (threads() == 1) return total;
  /* Whole tiles, whose sums do not wait for each other. */
  const int blocks = (std::max(wanted, least) + TILE_BLOCKS - 1) / TILE_BLOCKS * TILE_BLOCKS;
  return std::min(total, blocks);
}

}  // namespace cowmlx

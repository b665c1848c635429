#include "stages.h"

#include <vector>

namespace cowmlx {

namespace {

/* Bytes of weights below which a task costs more to hand over than to compute. */
constexpr size_t TASK_BYTES = 16 << 10;
constexpr int TILE_BLOCKS = 4;

bool same_form(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.bits == b.bits && a.group == b.group;
}

bool alike(const Matrix& a, const Matrix& b) { return same_form(a, b) && a.columns == b.columns; }

size_t block_bytes(const Matrix& matrix) {
  return static_cast<size_t>(matrix.columns) * matrix.bits * LANES / 8;
}

}  // namespace

size_t Preparing::pitch(const Matrix& like, const Slab& slab, bool rounded) const {
  const int rows = (slab.rows + slab.parts - 1) / slab.parts;
  const size_t size = table_.prepare_size(like, rows, rounded);
  return (size + Arena::ALIGNMENT - 1) / Arena::ALIGNMENT * Arena::ALIGNMENT;
}

void Preparing::reserve(Arena& arena, const Matrix* const* matrices, int count, int rows,
                        bool rounded) {
  const int most = std::min(rows, SLAB_ROWS);
  size_t size = 0;
  std::vector<const Matrix*> kinds; /* of which one stage has as many at most */
  for (int i = 0; i < count; i++) {
    const Matrix& matrix = *matrices[i];
    if (matrix.rows == 0) continue;
    if (std::none_of(kinds.begin(), kinds.end(),
                     [&](const Matrix* kind) { return same_form(*kind, matrix); }))
      kinds.push_back(&matrix);
    /* The largest slab of each number of parts. */
    for (int parts = 1; parts == 1 || parts * PART_ROWS <= most; parts++) {
      const int slab_rows = std::min(most, (parts + 1) * PART_ROWS - 1);
      size = std::max(size, parts * pitch(matrix, {0, slab_rows, parts}, rounded));
    }
  }
  const size_t distinct = std::min<size_t>(kinds.size(), MOST_MATRICES);
  for (size_t kind = 0; kind < distinct; kind++) scratch_[kind] = arena.take<char>(size);
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

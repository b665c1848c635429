/* The steps of a recording. */
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "operation.h"

namespace cowmlx {

/* A primitive with its inputs and outputs, by their places among all arrays. */
struct Recorded {
  std::shared_ptr<mx::Primitive> primitive;
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
};

/* Whether an array was not computed together with one that failed. Only for the dispatch thread. */
bool is_sound(const mx::array& array);

/* mlx does not export the types of all its primitives. */
inline bool is(const mx::Primitive& primitive, std::string_view name) {
  return primitive.name() == name;
}

/* Operations of mlx whose results lie in the memory of their inputs, unless that has gaps. */
inline constexpr std::array<std::string_view, 9> VIEWS = {"Broadcast", "Contiguous", "ExpandDims",
                                                          "Flatten",   "Reshape",    "Slice",
                                                          "Squeeze",   "Transpose",  "Unflatten"};

inline bool is_view(const mx::Primitive& primitive) {
  return std::ranges::find(VIEWS, std::string_view(primitive.name())) != VIEWS.end();
}

/* Constant folding: compute small results of Full now, and keep them. `arrays`: those of all
 * places; `kept`: those that the recording holds, by their places. */
void fold_full(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
               std::vector<std::pair<uint32_t, mx::array>>& kept);

/* Elimination of common subexpressions: readers of a step that equals an earlier one read the
 * earlier one's results, so that nothing reads the later step's.
 * `kept`: arrays that the recording holds, by their places; `count`: of all places; `results`: the
 * places that the recording returns. */
void eliminate_common(std::vector<Recorded>& steps,
                      const std::vector<std::pair<uint32_t, mx::array>>& kept, size_t count,
                      std::vector<uint32_t>& results);

/* Whether a view's elements may lie apart, or in another order than its own. */
inline bool makes_gaps(const mx::Primitive& view) {
  return is(view, "Broadcast") || is(view, "Slice") || is(view, "Transpose");
}

/* Whether an operation may take memory: some views copy where the input has gaps. */
inline bool takes_memory(const mx::Primitive& primitive) {
  return !is_view(primitive) || is(primitive, "Contiguous") || is(primitive, "Flatten") ||
         is(primitive, "Reshape");
}

/* A slice without steps: [begin, end) of each axis. */
struct Range {
  mx::Shape begin, end;
};

/* None if a primitive is no such slice. */
std::optional<Range> range_of(const mx::Primitive& primitive);

/* An operation whose results lie with their axes in another order. */
class Turned {
 public:
  virtual ~Turned() = default;

  /* The axes, from that whose elements are farthest apart on. */
  virtual std::vector<int> order() const = 0;
};

/* Operations whose result is their input. */
inline bool is_same(const mx::Primitive& primitive) {
  return is(primitive, "Copy") || is(primitive, "StopGradient");
}

/* Give an array the elements of another, row-major. */
inline void copy_elements(const mx::array& from, mx::array& to) {
  to.set_data(mx::allocator::malloc(to.nbytes()));
  if (from.flags().row_contiguous)
    std::copy_n(from.data<char>(), from.nbytes(), to.data<char>());
  else
    Copy{Lines(from), to.data<char>()}.run();
}

/* Let kernels multiply with matrices that are inputs or kept. `arrays`: those of all places;
 * `steady`: most replays have the same matrices. Else only with small ones of many rows. */
void take_products(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays, bool steady);

/* Merge a bias, a relu or another shape into an operation whose result nothing else reads; steps
 * that are merged lose their primitive. `results`: the places that the recording returns. */
void merge(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
           const std::vector<uint32_t>& results);

/* Let slices of results of functions be read from the functions' operands, and concatenations be
 * written in the order of axes in which they are read. `arrays`: those of all places, to which
 * those of new steps are added; `results`: the places that the recording returns. */
void move_parts(std::vector<Recorded>& steps, std::vector<mx::array>& arrays,
                const std::vector<uint32_t>& results);

/* Let one operation compute a sum of products of float32 matrices. `arrays`:
 * those of all places; `results`: the places that the recording returns. */
void add_products(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
                  const std::vector<uint32_t>& results);

/* Replace mlx's concatenations by ones that the caller can compute. */
void replace_concatenations(std::vector<Recorded>& steps);

/* Let kernels multiply transposed float32 matrices of many rows, and add up such products.
 * `arrays`: those of all places. */
void replace_outer_products(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays);

/* Let products by rows read small float32 matrices in blocks, in which they are laid once for
 * several products. `arrays`: those of all places, to which those of new steps are added. */
void pack_matrices(std::vector<Recorded>& steps, std::vector<mx::array>& arrays);

/* Replace mlx's products of float32 matrices by ones that the caller can compute. `arrays`: those
 * of all places, to which those of new steps are added. */
void replace_products(std::vector<Recorded>& steps, std::vector<mx::array>& arrays);

/* Replace mlx's sums of float32 over axes beside each other by ones of the same bits that the
 * caller can compute. `arrays`: those of all places. */
void replace_sums(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays);

/* Replace mlx's sums of rows at places of a float32 matrix by ones of the same bits that the caller
 * can compute. `arrays`: those of all places. */
void replace_scatters(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays);

/* Replace mlx's choices of rows of a float32 matrix, and bounds of integers, by ones that the
 * caller can compute. `arrays`: those of all places. */
void replace_gathers(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays);

/* An operation that does the work of several of mlx's. */
class Several {
 public:
  virtual ~Several() = default;
  virtual size_t operations() const = 0;
};

/* Fuse elementwise steps of float32 that follow each other: one operation reads and writes memory
 * once. `arrays`: those of all places; `results`: the places that the recording returns.
 * `alone`: also steps of which no other follows. */
void fuse(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
          const std::vector<uint32_t>& results, bool alone);

}  // namespace cowmlx

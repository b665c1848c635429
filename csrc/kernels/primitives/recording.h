/* The steps of a recording. */
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
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

/* A sum of float32 in place of mlx's, with its bits; null if `primitive` is none, or adds up axes
 * that others stand between. */
std::shared_ptr<mx::Primitive> sum_of(const std::shared_ptr<mx::Primitive>& primitive,
                                      const mx::array& x);

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

/* Steps of a recording that become part of others: products of kernels in the place of mlx's, with
 * the bias, the relu and the shape that follow them. */
#include <algorithm>
#include <unordered_map>

#include "recording.h"

namespace cowmlx {
namespace {

/* Where a matrix is laid in blocks each time: rows that are multiplied with it, at least, and its
 * numbers, at most. A BLAS has more to do for such a product than to multiply. */
constexpr size_t LEAST_ROWS = 256, MOST_NUMBERS = 1 << 16;

class Merging {
 public:
  Merging(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
          const std::vector<uint32_t>& results)
      : steps_(steps), arrays_(arrays), results_(results) {}

  void run() {
    std::vector<uint32_t> users(arrays_.size());
    std::vector<Recorded*> makers(arrays_.size());
    for (Recorded& step : steps_) {
      for (const uint32_t place : step.inputs) users[place]++;
      for (const uint32_t place : step.outputs) makers[place] = &step;
    }
    for (const uint32_t place : results_) users[place]++;
    const auto own = [&](uint32_t place, const Recorded& step, size_t output) {
      const Recorded* maker = makers[place];
      return maker != nullptr && users[place] == 1 && maker->shapes[0] == step.shapes[output] &&
                     maker->outputs.size() == 1
                 ? makers[place]
                 : nullptr;
    };
    for (Recorded& step : steps_) {
      if (step.outputs.size() != 1) continue;
      if (step.inputs.size() == 1) {
        reshape(step, makers[step.inputs[0]], users[step.inputs[0]]);
        continue;
      }
      if (step.inputs.size() != 2) continue;
      for (size_t first = 0; first < 2; first++) {
        Recorded* made = own(step.inputs[first], step, 0);
        if (made == nullptr || made->primitive == nullptr) continue;
        if (!merge_into(*made, step, makers[step.inputs[1 - first]], step.inputs[1 - first]))
          continue;
        made->primitive = nullptr;
        break;
      }
    }
  }

 private:
  /* A product whose rows have other axes: it writes them one after the other. */
  void reshape(Recorded& step, Recorded* made, uint32_t users) {
    if (made == nullptr || made->primitive == nullptr || users != 1) return;
    const bool is_view = is(*step.primitive, "Unflatten") || is(*step.primitive, "Reshape");
    if (!is_view || !is(*made->primitive, "CowmlxDense")) return;
    if (step.shapes[0].empty() || step.shapes[0].back() != made->shapes[0].back()) return;
    step.primitive = made->primitive;
    step.inputs = made->inputs;
    made->primitive = nullptr;
  }

  /* Merge an operation into the step that reads its result as one of two inputs. */
  bool merge_into(const Recorded& made, Recorded& step, const Recorded* other, uint32_t place) {
    uint32_t spread = place; /* what is broadcast to the result's shape */
    if (other != nullptr) {
      if (!is(*other->primitive, "Broadcast")) return false;
      spread = other->inputs[0];
    }
    auto* extended = dynamic_cast<Extensible*>(made.primitive.get());
    if (extended == nullptr) return false;
    const mx::Primitive& does = *step.primitive;
    std::vector<uint32_t> inputs = made.inputs;
    std::shared_ptr<mx::Primitive> merged;
    if (is(does, "Add") && is_vector(spread, step.shapes[0].back())) {
      merged = extended->with_bias();
      inputs.push_back(spread);
    } else if (is(does, "Maximum") && is_zero(spread)) {
      merged = extended->with_relu();
    }
    if (merged == nullptr) return false;
    step.primitive = std::move(merged);
    step.inputs = std::move(inputs);
    return true;
  }

  /* Whether an array has `count` numbers of float32, along its last axis. */
  bool is_vector(uint32_t place, int count) const {
    const mx::array& array = arrays_[place];
    return array.dtype() == mx::float32 && array.ndim() > 0 && array.shape(-1) == count &&
           array.size() == static_cast<size_t>(count);
  }

  bool is_zero(uint32_t place) const {
    const mx::array& array = arrays_[place];
    return !array.has_primitive() && array.data_shared_ptr() != nullptr && array.size() == 1 &&
           array.dtype() == mx::float32 && array.data<float>()[0] == 0;
  }

  std::vector<Recorded>& steps_;
  const std::vector<mx::array>& arrays_;
  const std::vector<uint32_t>& results_;
};

}  // namespace

void take_products(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
                   bool steady) {
  std::unordered_map<uint32_t, const Recorded*> makers;
  for (const Recorded& step : steps)
    for (const uint32_t place : step.outputs) makers[place] = &step;
  const auto is_given = [&](uint32_t place) {
    const auto found = makers.find(place);
    if (found == makers.end()) return true;
    const Recorded& step = *found->second;
    return is(*step.primitive, "Transpose") && !makers.contains(step.inputs[0]);
  };
  for (Recorded& step : steps) {
    if (!is(*step.primitive, "Matmul") || step.dtypes[0] != mx::float32) continue;
    const mx::array &x = arrays[step.inputs[0]], &matrix = arrays[step.inputs[1]];
    if (matrix.ndim() != 2 || x.size() == 0 || matrix.size() == 0) continue;
    const bool is_worth = steady || (x.size() >= LEAST_ROWS * static_cast<size_t>(x.shape(-1)) &&
                                     matrix.size() <= MOST_NUMBERS);
    if (is_worth && is_given(step.inputs[1]))
      step.primitive = dense_product(step.primitive->stream());
  }
}

void merge(std::vector<Recorded>& steps, const std::vector<mx::array>& arrays,
           const std::vector<uint32_t>& results) {
  Merging(steps, arrays, results).run();
}

}  // namespace cowmlx

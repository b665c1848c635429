#include "buffers.h"

#include <algorithm>
#include <cstring>

#include "mlx/allocator.h"

#include "pool.h"

namespace mx = mlx::core;

namespace cowmlx {
namespace {

constexpr int64_t COPY_BYTES = 1 << 18; /* that a thread copies at a time */

}  // namespace

Lines::Lines(const mx::array& array)
    : data_(array.data<char>()),
      shape_(array.shape()),
      strides_(array.strides()),
      item_(array.itemsize()),
      contiguous_(array.flags().row_contiguous),
      width_(array.shape(-1)) {
  count_ = width_ ? static_cast<int64_t>(array.size()) / width_ : 0;
}

void Lines::copy(int64_t begin, int64_t end, char* to) const {
  if (contiguous_) {
    std::memcpy(to, data_ + begin * bytes(), static_cast<size_t>((end - begin) * bytes()));
    return;
  }
  for (int64_t line = begin; line < end; line++, to += bytes()) copy_line(line, to);
}

void Lines::copy_line(int64_t index, char* to) const {
  const char* from = data_;
  for (size_t axis = shape_.size() - 1; axis-- > 0; index /= shape_[axis])
    from += index % shape_[axis] * strides_[axis] * static_cast<int64_t>(item_);
  const int64_t stride = strides_.back() * static_cast<int64_t>(item_);
  if (strides_.back() == 1)
    std::memcpy(to, from, static_cast<size_t>(bytes()));
  else
    for (int64_t i = 0; i < width_; i++, to += item_) std::memcpy(to, from + i * stride, item_);
}

void Copy::run() const {
  const int64_t each = std::max<int64_t>(1, COPY_BYTES / std::max<int64_t>(1, from.bytes()));
  parallel(static_cast<int>((from.count() + each - 1) / each), [&](int task) {
    const int64_t begin = task * each, end = std::min(from.count(), begin + each);
    from.copy(begin, end, to + begin * from.bytes());
  });
}

void take_over(const mx::array& in, mx::array& out, std::vector<Copy>& copies) {
  if (in.is_donatable() && in.flags().row_contiguous) {
    out.copy_shared_buffer(in);
    return;
  }
  out.set_data(mx::allocator::malloc(out.nbytes()));
  if (out.size() > 0) copies.push_back({Lines(in), out.data<char>()});
}

}  // namespace cowmlx

#include "arrays.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "mlx/allocator.h"
#include "mlx/backend/common/utils.h"

#include "pool.h"

namespace cowmlx {
namespace {

constexpr int64_t COPY_BYTES = 1 << 18; /* that a thread copies at a time */

using Data = mx::array::Data;

/* The memory of buffers that were taken over, by their addresses. */
class Owners {
 public:
  Memory add(Data data) {
    auto* owned = new Data(std::move(data));
    Memory memory(owned, [this](const Data* last) {
      remove(last);
      delete last;
    });
    const std::lock_guard<std::mutex> held(lock_);
    all_[owned->buffer().ptr()] = memory;
    return memory;
  }

  /* Of data that lies in such a buffer, or nullptr. */
  Memory find(const Data& data) {
    const std::lock_guard<std::mutex> held(lock_);
    const auto found = all_.find(data.buffer().ptr());
    return found == all_.end() ? nullptr : found->second.lock();
  }

 private:
  void remove(const Data* last) {
    const std::lock_guard<std::mutex> held(lock_);
    all_.erase(last->buffer().ptr());
  }

  std::mutex lock_;
  std::unordered_map<const void*, std::weak_ptr<const Data>> all_;
};

Owners& owners() {
  static auto* all = new Owners; /* tasks may run while the process ends */
  return *all;
}

/* Whether an operation alone has the array that `in` is. */
bool is_unshared(mx::array& in) {
  mx::array same(in.shape(), in.dtype(), nullptr, {});
  same.copy_shared_buffer(in);
  in.set_data(mx::allocator::malloc(1)); /* is_donatable() asks whose the data are, too */
  const bool unshared = in.is_donatable();
  in.copy_shared_buffer(same);
  return unshared;
}

/* The memory of an array without other owners, or nullptr. */
Memory taken(mx::array& in) {
  if (!in.flags().row_contiguous) return nullptr;
  if (in.is_donatable()) return owners().add(std::move(*in.data_shared_ptr()));
  if (in.data_shared_ptr().use_count() != 1) return nullptr;
  Memory memory = owners().find(*in.data_shared_ptr());
  return memory && is_unshared(in) ? memory : nullptr;
}

/* Data in a buffer that others own. */
Data part_of(const Memory& memory) {
  return Data(memory->buffer(), [memory](mx::allocator::Buffer) {});
}

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

Takeover::Takeover(const Arrays& inputs, Arrays& outputs) : outputs_(outputs) {
  taken_.reserve(outputs.size());
  /* Every output lists the inputs; they have no other owner if only one output holds them. */
  for (mx::array& output : outputs)
    if (&output.inputs() == &inputs)
      inputs_ = &output.inputs();
    else
      output.inputs().clear();
}

Takeover::~Takeover() {
  if (finished_) return;
  for (const auto& [in, memory] : taken_) {
    mx::array& from = (*inputs_)[in];
    from.set_data(part_of(memory), from.data_size(), from.strides(), from.flags(), from.offset());
  }
  for (mx::array& output : outputs_)
    if (&output.inputs() != inputs_) output.inputs() = *inputs_;
}

void Takeover::finish() {
  finished_ = true;
  for (const mx::array& output : outputs_)
    if (output.is_tracer()) return;
  for (mx::array& output : outputs_) {
    output.set_siblings({}, 0);
    if (&output.inputs() == inputs_) continue;
    if (!owners().find(*output.data_shared_ptr())) memory_.push_back(output.data_shared_ptr());
    output.set_status(mx::array::Status::evaluated);
    output.detach();
  }
}

void Takeover::buffer(size_t in, size_t out) {
  mx::array& from = (*inputs_)[in];
  mx::array& to = outputs_[out];
  if (Memory memory = taken(from)) {
    taken_.emplace_back(in, memory);
    to.set_data(part_of(memory), from.data_size(), from.strides(), from.flags(), from.offset());
    memory_.push_back(std::move(memory));
    return;
  }
  make(out);
  if (to.size() > 0) copies_.push_back({Lines(from), to.data<char>()});
}

void Takeover::make(size_t out) {
  mx::array& to = outputs_[out];
  memory_.push_back(owners().add(mx::allocator::malloc(to.nbytes())));
  to.set_data(part_of(memory_.back()));
}

Activations::Activations(const mx::array& array)
    : data_(array.data<void>()),
      type_(scalar_of(array, "x")),
      direct_(type_ == Scalar::Float32 && array.flags().row_contiguous),
      columns_(array.shape(-1)),
      rows_(columns_ > 0 ? static_cast<int64_t>(array.size()) / columns_ : 0),
      step_(columns_ > 1 ? array.strides(-1) : 1),
      shape_(array.shape().begin(), array.shape().end() - 1),
      strides_(array.strides().begin(), array.strides().end() - 1) {}

void Activations::read(const Table& table, int64_t first, int count, float* out) const {
  const size_t size = size_of(type_);
  for (int row = 0; row < count; row++, out += columns_) {
    int64_t left = first + row, offset = 0;
    for (int axis = static_cast<int>(shape_.size()) - 1; axis >= 0; axis--) {
      offset += left % shape_[axis] * strides_[axis];
      left /= shape_[axis];
    }
    const char* from = static_cast<const char*>(data_) + offset * static_cast<int64_t>(size);
    if (step_ == 1) {
      table.load(from, type_, columns_, out);
    } else {
      for (int column = 0; column < columns_; column++)
        table.load(from + column * step_ * static_cast<int64_t>(size), type_, 1, out + column);
    }
  }
}

}  // namespace cowmlx

/* What arrays of hosts need of mlx: elements that lie in memory of the library's, so that nothing
 * is copied, and whether they are computed. */
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <unistd.h>

#include "mlx/device.h"
#include "operation.h"

namespace cowmlx {

size_t front() {
  static const size_t found = [] {
    if (mx::is_available(mx::Device::gpu)) return size_t{0};
    auto& all = mx::allocator::allocator();
    mx::allocator::Buffer made = all.malloc(64);
    const auto begin = reinterpret_cast<uintptr_t>(made.ptr());
    const auto data = reinterpret_cast<uintptr_t>(made.raw_ptr());
    size_t written = 0;
    if (data == begin + sizeof written) std::memcpy(&written, made.ptr(), sizeof written);
    const bool is_known = written >= 64 && written == all.size(made);
    all.free(made);
    return is_known ? sizeof written : size_t{0};
  }();
  return found;
}

namespace {

using mx::allocator::Buffer;

using LetGo = void (*)(void*);

/* Metal uses whole pages alone where they are. */
bool is_of_pages(uintptr_t address, size_t room) {
  const long page = sysconf(_SC_PAGESIZE);
  return page > 0 && room > 0 && (address | room) % static_cast<size_t>(page) == 0;
}

/* An array, and whether mlx counts its bytes as its own. */
using Adopted = std::pair<mx::array, bool>;

/* Returns nothing if the data cannot be used where they are. */
std::optional<Adopted> adopt(uintptr_t address, size_t room, uintptr_t let_go,
                             const std::vector<int32_t>& shape, mx::Dtype dtype) {
  void* data = reinterpret_cast<void*>(address);
  const auto last = reinterpret_cast<LetGo>(let_go);
  const mx::Shape sides(shape.begin(), shape.end());
  Buffer made =
      is_of_pages(address, room) ? mx::allocator::make_buffer(data, room) : Buffer(nullptr);
  if (made.ptr() != nullptr) {
    auto end = [data, last](Buffer buffer) {
      mx::allocator::release(buffer);
      last(data);
    };
    mx::allocator::Data held(made, std::move(end));
    return Adopted(mx::array(std::move(held), sides, dtype), true);
  }
  if (front() == 0) return std::nullopt;
  char* begin = static_cast<char*>(data) - front();
  std::memcpy(begin, &room, front());
  auto end = [data, last](Buffer) { last(data); };
  mx::allocator::Data held(Buffer(begin), std::move(end));
  return Adopted(mx::array(std::move(held), sides, dtype), false);
}

bool available(const std::vector<mx::array>& arrays) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [](const mx::array& array) { return array.is_available(); });
}

/* Bytes of chosen rows that are copied at most. */
constexpr size_t MOST_COPIED = 1 << 20;

/* Copy rows that a row-major array chooses; nothing if that cannot be done here. */
std::optional<mx::array> copied_rows(const mx::array& array, const mx::array& chosen) {
  const auto bytes = array.nbytes() / static_cast<size_t>(array.shape(0));
  if (chosen.ndim() != 1 || chosen.dtype() != mx::uint32 || !chosen.is_available() ||
      !chosen.flags().row_contiguous || bytes * chosen.size() > MOST_COPIED)
    return std::nullopt;
  const auto* at = chosen.data<uint32_t>();
  const auto count = static_cast<uint32_t>(array.shape(0));
  if (!std::all_of(at, at + chosen.size(), [&](uint32_t row) { return row < count; }))
    return std::nullopt;
  mx::Shape shape = array.shape();
  shape[0] = chosen.shape(0);
  mx::array made(std::move(shape), array.dtype(), nullptr, Arrays{});
  made.set_data(mx::allocator::malloc(made.nbytes()));
  const char* from = array.data<char>();
  char* to = made.data<char>();
  for (size_t row = 0; row < chosen.size(); row++)
    std::memcpy(to + row * bytes, from + at[row] * bytes, bytes);
  made.set_status(mx::array::Status::available);
  return made;
}

/* Adjacent rows of a row-major array, in its memory. */
mx::array adjacent_rows(const mx::array& array, int begin, int end) {
  mx::Shape shape = array.shape();
  shape[0] = end - begin;
  mx::array made(std::move(shape), array.dtype(), nullptr, Arrays{});
  const auto width = static_cast<int64_t>(array.size()) / array.shape(0);
  auto flags = array.flags();
  flags.col_contiguous = static_cast<int64_t>(made.size()) == std::ranges::max(made.shape());
  made.copy_shared_buffer(array, array.strides(), flags, made.size(), begin * width);
  made.set_status(mx::array::Status::available);
  return made;
}

std::optional<mx::array> rows(const mx::array& array, int begin, int end,
                              const std::optional<mx::array>& order) {
  if (array.ndim() == 0 || array.size() == 0 || !array.is_available() ||
      !array.flags().row_contiguous || mx::is_available(mx::Device::gpu))
    return std::nullopt;
  const int count = order ? static_cast<int>(order->size()) : array.shape(0);
  if (begin < 0 || begin >= end || end > count) return std::nullopt;
  if (!order) return adjacent_rows(array, begin, end);
  if (order->ndim() != 1 || !order->is_available() || !order->flags().row_contiguous)
    return std::nullopt;
  return copied_rows(array, adjacent_rows(*order, begin, end));
}

}  // namespace

void bind_adopt(nb::module_& module) {
  module.attr("MOST_COPIED") = MOST_COPIED;
  module.def("adopt", adopt, "address"_a, "room"_a, "let_go"_a, "shape"_a, "dtype"_a,
             R"(An array whose elements lie where they are, and may be computed in.

Args:
    address: of the elements, row-major, behind 32 bytes that may be written.
    room: bytes from there on.
    let_go: address of a function that is called with the first, on any thread, once nothing
        needs the elements any more.
    shape: sizes.
    dtype: type of the elements.

Returns:
    The array, and whether mlx counts its bytes as active memory. None, and nothing is called, if the
    elements would have to be copied.)");
  module.def("available", available, "arrays"_a,
             "Whether arrays that are being computed have their elements.");
  module.def("rows", rows, "array"_a, "begin"_a, "end"_a, "order"_a = nb::none(),
             R"(Rows of an array, computed before it returns, without a stream.

Args:
    array: its first axis has the rows.
    begin: the first row.
    end: behind the last one.
    order: uint32 (N,): rows are those of these numbers, from `begin` on.

Returns:
    The rows: a view, or up to 1 MiB copied in an order. None if that cannot be done here: the array
    is not computed or not row-major, a number is out of range.)");
}

}  // namespace cowmlx

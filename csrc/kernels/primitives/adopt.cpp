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

}  // namespace

void bind_adopt(nb::module_& module) {
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
}

}  // namespace cowmlx

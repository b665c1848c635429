/* mlx's memory on a CPU, from cache lines on, with an exception where there is none. mlx's
 * allocator returns a null pointer then, and its operations write through it. */

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <nanobind/nanobind.h>

#include "mlx/allocator.h"
#include "mlx/device.h"
#include "mlx/memory.h"
#include "mlx/utils.h"

#include "operation.h"

namespace cowmlx {
namespace {

using mx::allocator::Allocator;
using mx::allocator::Buffer;

/* Virtual functions of an object, as the Itanium C++ ABI has them: behind the offset to the whole
 * object and its type come malloc, free, size, make_buffer, release and two destructors. */
using Function = void (*)();
using Malloc = Buffer (*)(Allocator*, size_t);
using Free = void (*)(Allocator*, Buffer);
constexpr size_t BEFORE = 2, FUNCTIONS = 7;

constexpr size_t SMALL = 64;

Malloc unchecked = nullptr;
Free freed = nullptr;
std::array<Function, BEFORE + FUNCTIONS> table;

/* mlx counts bytes that it has not got as active. A buffer begins with its size, so one that is
 * said to be larger takes them back when it is freed, which must not keep it for reuse. */
void uncount(Allocator* allocator, size_t size) {
  Buffer small = unchecked(allocator, SMALL);
  if (small.ptr() == nullptr) return;
  const size_t limit = mx::set_cache_limit(0);
  if (auto* counted = static_cast<size_t*>(small.ptr()); *counted == allocator->size(small)) {
    *counted += size;
  }
  allocator->free(small);
  mx::set_cache_limit(limit);
}

/* The message names `size`, the bytes that mlx has asked for. */
Buffer checked(Allocator* allocator, size_t bytes, size_t size) {
  Buffer made = unchecked(allocator, bytes);
  if (made.ptr() != nullptr || bytes == 0) return made;
  uncount(allocator, bytes);
  mx::clear_cache();
  made = unchecked(allocator, bytes);
  if (made.ptr() != nullptr) return made;
  uncount(allocator, bytes);
  throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(size) + " bytes.");
}

/* mlx's buffers begin at multiples of 16 and their data 8 bytes behind, so that vectors as long as
 * a cache line lie in two lines. To let data begin at a line, a large buffer lies within one of
 * mlx's that has bytes to spare; the address of that one is written before the size. Not so for
 * smaller ones: asked for a bit more than a power of two, mlx may reuse a free buffer of twice the
 * size. */
constexpr size_t LINE = 64, FRONT = 3 * sizeof(size_t), SPARE = LINE + sizeof(size_t);
constexpr size_t LARGE = 16 << 10;
bool aligns = false; /* mlx's buffers are as described */

Buffer allocate(Allocator* allocator, size_t size) {
  if (size < LARGE || size > SIZE_MAX - SPARE || !aligns) return checked(allocator, size, size);
  Buffer whole = checked(allocator, size + SPARE, size);
  const auto begin = reinterpret_cast<uintptr_t>(whole.ptr()) + FRONT;
  auto* place = reinterpret_cast<size_t*>((begin + LINE - 1) / LINE * LINE) - 1;
  place[-1] = reinterpret_cast<uintptr_t>(whole.ptr());
  place[0] = size;
  return Buffer(place);
}

void give_back(Allocator* allocator, Buffer buffer) {
  const auto* place = static_cast<const size_t*>(buffer.ptr());
  const bool is_within =
      aligns && reinterpret_cast<uintptr_t>(place) % 16 != 0 && place[0] >= LARGE;
  freed(allocator, is_within ? Buffer(reinterpret_cast<void*>(place[-1])) : buffer);
}

/* Let the one allocator of the process raise. Other allocators do so themselves. */
void guard_allocator() {
#if defined(__linux__)
  if (unchecked != nullptr || mx::is_available(mx::Device::gpu)) return;
  Function*& functions = *reinterpret_cast<Function**>(&mx::allocator::allocator());
  std::copy_n(functions - BEFORE, table.size(), table.begin());
  unchecked = reinterpret_cast<Malloc>(table[BEFORE]);
  freed = reinterpret_cast<Free>(table[BEFORE + 1]);
  aligns = front() == sizeof(size_t);
  table[BEFORE] = reinterpret_cast<Function>(&allocate);
  table[BEFORE + 1] = reinterpret_cast<Function>(&give_back);
  functions = table.data() + BEFORE;
#endif
}

}  // namespace

void bind_allocator(nb::module_& module) {
  module.def("guard_allocator", guard_allocator,
             "Let mlx raise an exception on a CPU where there is no memory, and let data of\n"
             "16 KiB and more begin at cache lines.");
}

}  // namespace cowmlx

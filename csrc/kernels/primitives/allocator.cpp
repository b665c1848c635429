/* mlx's memory on a CPU, with an exception where there is none. mlx's allocator returns a null
 * pointer then, and its operations write through it. */

#include <algorithm>
#include <array>
#include <cstddef>
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
constexpr size_t BEFORE = 2, FUNCTIONS = 7;

constexpr size_t SMALL = 64;

Malloc unchecked = nullptr;
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

Buffer checked(Allocator* allocator, size_t size) {
  Buffer made = unchecked(allocator, size);
  if (made.ptr() != nullptr || size == 0) return made;
  uncount(allocator, size);
  mx::clear_cache();
  made = unchecked(allocator, size);
  if (made.ptr() != nullptr) return made;
  uncount(allocator, size);
  throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(size) + " bytes.");
}

/* Let the one allocator of the process raise. Other allocators do so themselves. */
void guard_allocator() {
#if defined(__linux__)
  if (unchecked != nullptr || mx::is_available(mx::Device::gpu)) return;
  Function*& functions = *reinterpret_cast<Function**>(&mx::allocator::allocator());
  std::copy_n(functions - BEFORE, table.size(), table.begin());
  unchecked = reinterpret_cast<Malloc>(table[BEFORE]);
  table[BEFORE] = reinterpret_cast<Function>(&checked);
  functions = table.data() + BEFORE;
#endif
}

}  // namespace

void bind_allocator(nb::module_& module) {
  module.def("guard_allocator", guard_allocator,
             "Let mlx raise an exception on a CPU where there is no memory.");
}

}  // namespace cowmlx

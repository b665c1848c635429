// What checks of one table share: random numbers, guarded arrays and numbers of 16 bits. It needs
// no library of C++, without which checks on ARM are linked.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

inline uint32_t state = 7;

inline uint32_t random_word() {
  state = state * 1664525 + 1013904223;
  return state ^ (state >> 15);
}
inline double random_unit() { return random_word() * 0x1p-31 - 1; }

// Zeros that end where a guarded page begins.
template <class T>
struct Array {
  int64_t size;
  size_t room;
  char* pages;
  T* data;

  explicit Array(int64_t count) : size(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(count > 0 ? count : 1) * sizeof(T);
    room = (bytes + page - 1) / page * page + page;
    void* got = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (got == MAP_FAILED) abort();
    pages = static_cast<char*>(got);
    char* guard = pages + room - page;
    if (mprotect(guard, page, PROT_NONE) != 0) abort();
    data = reinterpret_cast<T*>(guard - bytes);
  }
  Array(const Array&) = delete;
  ~Array() { munmap(pages, room); }
  T& operator[](int64_t i) const { return data[i]; }
};

inline uint16_t to_half(float x, bool brain) {
  uint32_t u;
  memcpy(&u, &x, 4);
  if (brain) return static_cast<uint16_t>(u >> 16);
  if (fabsf(x) < 0x1p-14f) return 0;  // subnormal
  const uint32_t exponent = ((u >> 23) & 255) - 112;
  return static_cast<uint16_t>((u >> 16 & 0x8000) | exponent << 10 | (u >> 13 & 0x3ff));
}

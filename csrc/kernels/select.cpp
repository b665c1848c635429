#include "table.h"

#include <atomic>
#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#if __has_include("isa_avx2.cpp")
#define AVX2 &avx2_table
#define AVX_VNNI &avxvnni_table
#else
#define AVX2 nullptr
#define AVX_VNNI nullptr
#endif

namespace cowmlx {
namespace {

bool always() { return true; }

struct Set {
  const char* name;
  const Table* table; /* null: not made for this kind of processor */
  bool (*usable)();
  bool (*preferred)() = always; /* unless a set is named: whether it is better than the next ones */
};

#if defined(__x86_64__)

/* GCC's and Clang's answer covers what the system saves of the registers (xgetbv). */
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

/* Of AVX2's width; compilers know it by name for not as long as its instructions. */
bool has_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned AVX_VNNI_BIT = 1u << 4;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & AVX_VNNI_BIT) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool has_avx512bf16() { return has_avx512vnni() && __builtin_cpu_supports("avx512bf16"); }

bool is_amd() {
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
}

/* The family of an AMD processor: 0x19 is Zen 3 and 4, 0x1a Zen 5. Of others 0. */
unsigned amd_family() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned LARGEST_BASE = 0xf;
  if (!is_amd() || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return 0;
  const unsigned base = eax >> 8 & 0xf, extended = eax >> 20 & 0xff;
  return base == LARGEST_BASE ? base + extended : base;
}

/* Static, so that it is set before any product runs. */
[[maybe_unused]] const unsigned amd = [] {
  constexpr unsigned ZEN3_OR_4 = 0x19, ZEN5 = 0x1a;
  const unsigned family = amd_family();
  attends_to_one = family != ZEN3_OR_4 || !has_avx512();
  if (family == ZEN3_OR_4) one_row = {.ahead = 6 << 10, .second_level = true};
  if (family == ZEN3_OR_4 && has_avx512()) one_row.stream_bits = 4, one_row.cached = 32 << 20;
  if (family >= ZEN5) one_row = {.ahead = 6 << 10, .stream_bits = 32, .cached = 16 << 20};
  return family;
}();

#elif defined(__aarch64__)

bool has_dot_products() {
#if defined(__linux__)
  constexpr unsigned long DOT_PRODUCTS = 1ul << 20; /* HWCAP_ASIMDDP */
  return (getauxval(AT_HWCAP) & DOT_PRODUCTS) != 0;
#elif defined(__APPLE__)
  int has = 0;
  size_t size = sizeof has;
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has == 1;
#else
  return false;
#endif
}

bool has_int8_matrices() {
#if defined(__linux__)
  constexpr unsigned long INT8_MATRICES = 1ul << 13; /* HWCAP2_I8MM */
  return has_dot_products() && (getauxval(AT_HWCAP2) & INT8_MATRICES) != 0;
#elif defined(__APPLE__)
  int has = 0;
  size_t size = sizeof has;
  return has_dot_products() &&
         sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, nullptr, 0) == 0 && has == 1;
#else
  return false;
#endif
}

#endif

/* Every name that COWMLX_KERNELS may have on some machine, best first. */
const Set SETS[] = {
#if defined(__x86_64__)
    {"avx512bf16", &avx512bf16_table, has_avx512bf16, is_amd},
    {"avx512vnni", &avx512vnni_table, has_avx512vnni},
    {"avx512", &avx512_table, has_avx512},
    {"avxvnni", AVX_VNNI, has_avxvnni},
    {"avx2", AVX2, has_avx2},
    {"i8mm", nullptr, nullptr},
    {"neon", nullptr, nullptr},
#elif defined(__aarch64__)
    {"avx512bf16", nullptr, nullptr},
    {"avx512vnni", nullptr, nullptr},
    {"avx512", nullptr, nullptr},
    {"avxvnni", nullptr, nullptr},
    {"avx2", nullptr, nullptr},
    {"i8mm", &i8mm_table, has_int8_matrices},
    {"neon", &neon_table, has_dot_products},
#else
    {"avx512bf16", nullptr, nullptr},
    {"avx512vnni", nullptr, nullptr},
    {"avx512", nullptr, nullptr},
    {"avxvnni", nullptr, nullptr},
    {"avx2", nullptr, nullptr},
    {"i8mm", nullptr, nullptr},
    {"neon", nullptr, nullptr},
#endif
    {"portable", &portable_table, always},
};
constexpr int COUNT = sizeof SETS / sizeof SETS[0];

bool is_usable(const Set& set) { return set.table != nullptr && set.usable(); }

/* Pairs of bfloat16 are multiplied twice as fast as float32 on an AMD EPYC (Zen 5). On an Intel
 * Xeon they are not: prompts have 0.7 of the speed of float32 there. */
const Table& best() {
  static const Table& found = []() -> const Table& {
    for (const Set& set : SETS)
      if (is_usable(set) && set.preferred()) return *set.table;
    return portable_table;
  }();
  return found;
}

std::atomic<const Table*> chosen{nullptr};

}  // namespace

const Table* const* usable_tables() {
  struct Usable {
    const Table* tables[COUNT + 1] = {};

    Usable() {
      int count = 0;
      for (const Set& set : SETS)
        if (is_usable(set)) tables[count++] = set.table;
    }
  };
  static const Usable usable;
  return usable.tables;
}

const char* select_table(const char* name) {
  static char why[160];
  if (name == nullptr || *name == '\0') {
    chosen.store(&best(), std::memory_order_release);
    return "";
  }
  for (const Set& set : SETS) {
    if (strcmp(set.name, name) != 0) continue;
    if (is_usable(set)) {
      chosen.store(set.table, std::memory_order_release);
      return "";
    }
    snprintf(why, sizeof why, "this processor cannot run kernels of the instruction set \"%s\"",
             name);
    return why;
  }
  snprintf(why, sizeof why, "there is no instruction set \"%.40s\"", name);
  return why;
}

const Table& table() {
  const Table* found = chosen.load(std::memory_order_acquire);
  return found != nullptr ? *found : best();
}

}  // namespace cowmlx

// Attention of one query a head by one instruction set's table: attend_one() and attend_few() have
// the same bits, close to sums in float64. TABLE is its name.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "checks.h"
#include "table.h"

using namespace cowmlx;

namespace {

int failures = 0;
// A number that float16 and bfloat16 hold exactly.
float random_number() {
  return static_cast<float>(static_cast<int>(random_word() >> 24) - 128) / 64;
}

// Keys or values in float32, and the same numbers in 16 bits.
struct Held {
  Array<float> numbers;
  Array<uint16_t> halves;

  Held(int64_t count, Scalar type) : numbers(count), halves(count) {
    for (int64_t i = 0; i < count; i++) {
      numbers[i] = random_number();
      halves[i] = to_half(numbers[i], type == Scalar::BFloat16);
    }
  }

  Cache cache(int dim, Scalar type) const {
    void* data = type == Scalar::Float32 ? static_cast<void*>(numbers.data) : halves.data;
    Cache made{};
    made.data = data, made.position_stride = dim, made.type = type;
    return made;
  }
};

void check(const Table& table, Scalar type, int heads, int key_dim, int value_dim, int end) {
  constexpr int FIRST = 3;
  const Held keys(int64_t{end} * key_dim, type), values(int64_t{end} * value_dim, type);
  const Held query(int64_t{heads} * key_dim, Scalar::Float32);
  const Array<float> scratch(static_cast<int64_t>(table.attention_size(key_dim, value_dim)));
  Attention a{};
  a.query = query.numbers.data, a.query_head_stride = key_dim;
  a.keys = keys.cache(key_dim, type), a.values = values.cache(value_dim, type);
  a.heads = heads, a.queries = 1, a.key_dim = key_dim, a.value_dim = value_dim;
  a.first = FIRST, a.end = end, a.position = end - 1, a.scale = 0.1f;
  a.scratch = scratch.data, a.out_head_stride = value_dim;
  const Array<float> of_few(heads * value_dim), of_one(heads * value_dim);
  attends_to_one = false;
  a.out = of_few.data;
  table.attention(a);
  attends_to_one = true;
  a.out = of_one.data;
  table.attention(a);
  for (int head = 0; head < heads; head++) {
    const Array<double> sums(value_dim);
    double total = 0;
    for (int at = FIRST; at < end; at++) {
      double score = 0;
      for (int d = 0; d < key_dim; d++)
        score += double{query.numbers[head * key_dim + d]} * keys.numbers[at * key_dim + d];
      const double weight = exp(score * 0.1);
      total += weight;
      for (int d = 0; d < value_dim; d++) sums[d] += weight * values.numbers[at * value_dim + d];
    }
    for (int d = 0; d < value_dim; d++) {
      const float few = of_few[head * value_dim + d], one = of_one[head * value_dim + d];
      if (memcmp(&few, &one, sizeof one) == 0 && fabs(one - sums[d] / total) < 1e-4) continue;
      failures++;
      fprintf(stderr, "type %d, %d heads, dims %d and %d, end %d: %g and %g, not %g\n",
              static_cast<int>(type), heads, key_dim, value_dim, end, few, one, sums[d] / total);
    }
  }
}

}  // namespace

int main() {
  for (const Scalar type : {Scalar::Float32, Scalar::Float16, Scalar::BFloat16})
    for (int heads = 1; heads <= 5; heads++)
      for (const int end : {4, 8, 70, 150}) {
        check(TABLE, type, heads, 64, 64, end);
        check(TABLE, type, heads, 16, 112, end);
      }
  return failures > 0;
}

#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cowmlx {
namespace {

constexpr uint64_t GOLDEN = 0x9e3779b97f4a7c15, COIN = 0xd1b54a32d192ed03;

/* splitmix64, doi:10.1145/2660193.2660195. */
uint64_t mixed(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

constexpr int TILE = 512;
constexpr float MOST = 23; /* no noise is above: -log(-log1p(-2^-33)) */

/* mlx's way from 32 bits to a number in [2^-33, 1), then to noise, in the same steps. */
float gumbel(uint32_t bits) {
  const float below_one = std::nextafterf(1, 0);
  const float uniform = std::min(static_cast<float>(bits) / 0x1p32f, below_one) + 0x1p-33f;
  return -std::log(-std::log1p(-uniform));
}

/* The best so far. */
class Race {
 public:
  Race(const Table& table, float shift, float scale)
      : table_(table), shift_(shift), scale_(scale) {}

  /* Let one token be the best so far: the likely winner, beside whom few others need noise. */
  void open(float logit, uint32_t bits, int32_t token) {
    best_ = score(logit, bits);
    token_ = token;
  }

  bool hopeless(const float* logits, int count) const {
    return scale_ * (table_.highest(logits, count) - shift_) + MOST < best_;
  }

  /* Let tokens take part: `tokens` null stands for `first` and those behind it. */
  void run(const float* logits, const uint32_t* bits, int count, int32_t first,
           const int32_t* tokens) {
    int32_t places[TILE];
    const int found = table_.contenders(logits, bits, count, shift_, scale_, best_, places);
    for (int i = 0; i < found; i++) {
      const int place = places[i];
      const float reached = score(logits[place], bits[place]);
      const int32_t token = tokens != nullptr ? tokens[place] : first + place;
      if (reached > best_ || (reached == best_ && token < token_)) {
        best_ = reached;
        token_ = token;
      }
    }
  }

  int32_t token() const { return token_ < 0 ? 0 : token_; }

 private:
  float score(float logit, uint32_t bits) const { return (logit - shift_) * scale_ + gumbel(bits); }

  const Table& table_;
  float shift_, scale_;
  float best_ = -std::numeric_limits<float>::max();
  int32_t token_ = -1;
};

struct Words {
  alignas(64) uint32_t first[TILE], second[TILE], a[TILE], b[TILE];
};

/* Where a number is; n if it is nowhere. */
int find(const Table& table, const float* numbers, int n, float number) {
  for (int from = 0; from < n; from += TILE) {
    const int count = std::min(TILE, n - from);
    if (table.highest(numbers + from, count) < number) continue;
    for (int i = from; i < from + count; i++)
      if (numbers[i] == number) return i;
  }
  return n;
}

}  // namespace

uint64_t sample_key(uint64_t seed, uint64_t number) { return mixed(seed + (number + 1) * GOLDEN); }

double sample_coin(uint64_t key) { return static_cast<double>(mixed(key ^ COIN) >> 11) * 0x1p-53; }

/* mlx's bits of n numbers: counter pair (i, i + n - n / 2) gives those of its two places; where n
 * is odd, the pair (n / 2, 0) that of the middle. */

void Noise::count(int32_t token, uint32_t* first, uint32_t* second) const {
  const int half = size_ / 2, other = size_ - half;
  const bool is_high = token >= other, is_middle = token == half && other > half;
  const int32_t pair = is_high ? token - other : token;
  *first = static_cast<uint32_t>(pair);
  *second = is_middle ? 0 : static_cast<uint32_t>(pair + other);
}

uint32_t Noise::bits(int32_t token) const {
  alignas(64) uint32_t first[LANES] = {}, second[LANES] = {}, a[LANES], b[LANES];
  count(token, first, second);
  table_.threefry(key_, first, second, 1, a, b);
  return token >= size_ - size_ / 2 ? b[0] : a[0];
}

int32_t Noise::best_of_all(const float* logits, float shift, float scale) const {
  Race race(table_, shift, scale);
  Words words;
  const int half = size_ / 2, other = size_ - half;
  const int likely = find(table_, logits, size_, shift);
  if (likely < size_) race.open(shift, bits(likely), likely);
  for (int from = 0; from < half; from += TILE) {
    const int count = std::min(TILE, half - from);
    const float *low = logits + from, *high = low + other;
    if (race.hopeless(low, count) && race.hopeless(high, count)) continue;
    const int filled = (count + LANES - 1) / LANES * LANES;
    for (int i = 0; i < filled; i++) {
      words.first[i] = static_cast<uint32_t>(from + i);
      words.second[i] = static_cast<uint32_t>(from + i + other);
    }
    table_.threefry(key_, words.first, words.second, count, words.a, words.b);
    race.run(low, words.a, count, from, nullptr);
    race.run(high, words.b, count, from + other, nullptr);
  }
  if (other > half) {
    words.first[0] = static_cast<uint32_t>(half);
    words.second[0] = 0;
    table_.threefry(key_, words.first, words.second, 1, words.a, words.b);
    race.run(logits + half, words.a, 1, half, nullptr);
  }
  return race.token();
}

int32_t Noise::best_of(const float* logits, const int32_t* tokens, int size, float shift,
                       float scale) const {
  Race race(table_, shift, scale);
  Words words;
  const int other = size_ - size_ / 2;
  const int likely = find(table_, logits, size, shift);
  if (likely < size) race.open(shift, bits(tokens[likely]), tokens[likely]);
  for (int from = 0; from < size; from += TILE) {
    const int own = std::min(TILE, size - from);
    if (race.hopeless(logits + from, own)) continue;
    for (int i = 0; i < own; i++) count(tokens[from + i], &words.first[i], &words.second[i]);
    table_.threefry(key_, words.first, words.second, own, words.a, words.b);
    for (int i = 0; i < own; i++)
      if (tokens[from + i] >= other) words.a[i] = words.b[i];
    race.run(logits + from, words.a, own, 0, tokens + from);
  }
  return race.token();
}

}  // namespace cowmlx

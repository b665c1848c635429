#include "draw_noise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "matrix.h"

namespace cowmlx {
namespace {

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
      const float score = (logits[place] - shift_) * scale_ + gumbel(bits[place]);
      const int32_t token = tokens != nullptr ? tokens[place] : first + place;
      if (score > best_ || (score == best_ && token < token_)) {
        best_ = score;
        token_ = token;
      }
    }
  }

  int32_t token() const { return token_ < 0 ? 0 : token_; }

 private:
  const Table& table_;
  float shift_, scale_;
  float best_ = -std::numeric_limits<float>::max();
  int32_t token_ = -1;
};

struct Words {
  alignas(64) uint32_t first[TILE], second[TILE], a[TILE], b[TILE];
};

}  // namespace

/* mlx's bits of n numbers: counter pair (i, i + n - n / 2) gives those of its two places; where n
 * is odd, the pair (n / 2, 0) that of the middle. */

int32_t Noise::best_of_all(const float* logits, float shift, float scale) const {
  Race race(table_, shift, scale);
  Words words;
  const int half = size_ / 2, other = size_ - half;
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

int32_t Noise::best_of(const float* logits, const int32_t* tokens, int count, float shift,
                       float scale) const {
  Race race(table_, shift, scale);
  Words words;
  const int half = size_ / 2, other = size_ - half;
  for (int from = 0; from < count; from += TILE) {
    const int own = std::min(TILE, count - from);
    if (race.hopeless(logits + from, own)) continue;
    for (int i = 0; i < own; i++) {
      const int32_t token = tokens[from + i];
      const bool is_high = token >= other, is_middle = token == half && other > half;
      const int32_t pair = is_high ? token - other : token;
      words.first[i] = static_cast<uint32_t>(pair);
      words.second[i] = is_middle ? 0 : static_cast<uint32_t>(pair + other);
    }
    table_.threefry(key_, words.first, words.second, own, words.a, words.b);
    for (int i = 0; i < own; i++)
      if (tokens[from + i] >= other) words.a[i] = words.b[i];
    race.run(logits + from, words.a, own, 0, tokens + from);
  }
  return race.token();
}

}  // namespace cowmlx

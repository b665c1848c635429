#include "stages.h"

#include <algorithm>
#include <cstring>

namespace cowmlx {

namespace {

/* Multiplications below which handing work to another thread costs more than it saves. */
constexpr int64_t SMALL_WORK = 1 << 15;

/* Where keys or values of `dim` numbers, stored so, begin that lie at `line`. */
Cache at(const Step& step, const LayerCache& cache, const Stored& stored, int64_t line, int dim) {
  Cache found{};
  const int64_t size = static_cast<int64_t>(size_of(cache.type));
  if (step.quantization.bits == 0) {
    found.data = static_cast<char*>(stored.data) + line * dim * size;
    found.position_stride = dim;
    found.type = cache.type;
    return found;
  }
  const int words = dim * step.quantization.bits / 32, groups = dim / step.quantization.group;
  found.data = static_cast<uint32_t*>(stored.data) + line * words;
  found.position_stride = words;
  found.bits = step.quantization.bits;
  found.group = step.quantization.group;
  found.scales = static_cast<char*>(stored.scales) + line * groups * size;
  found.biases = static_cast<char*>(stored.biases) + line * groups * size;
  found.scale_position_stride = groups;
  found.scale_type = cache.type;
  return found;
}

/* Write one position. */
void put(const Table& table, const float* from, int dim, const Cache& to) {
  if (to.bits == 0)
    table.store(from, dim, to.data, to.type);
  else
    table.quantize(from, dim, to.bits, to.group, to.data, const_cast<void*>(to.scales),
                   const_cast<void*>(to.biases), to.scale_type);
}

int longest(const Step& step, int place) {
  int end = 0;
  for (int row = 0; row < step.rows; row++) end = std::max(end, step.places[place].ends[row]);
  return end;
}

/* Norm and turn one head of the token at `position`, in place. */
void finish_head(const Norm& norm, bool per_head, const Turn& turn, const Step& step, int position,
                 int dim, float* head) {
  if (per_head && norm.kind != Norm::Kind::None) apply(*step.table, norm, head, dim, head);
  if (turn.table < 0) return;
  const Angles& angles = step.angles[turn.table];
  const int64_t at = int64_t{position} * angles.half;
  step.table->rotate(head, angles.cosines + at, angles.sines + at, turn.dims, turn.traditional);
}

}  // namespace

void apply(const Table& table, const Norm& norm, const float* x, int n, float* y) {
  switch (norm.kind) {
    case Norm::Kind::Rms:
      table.rms_norm(x, norm.weight, norm.eps, n, y);
      break;
    case Norm::Kind::Layer:
      table.layer_norm(x, norm.weight, norm.bias, norm.eps, n, y);
      break;
    case Norm::Kind::None:
      if (y != x) std::memcpy(y, x, sizeof(float) * n);
  }
}

void store(const AttentionHalf& a, const Step& step, const LayerCache& cache, float* keys,
           const float* values, int begin, int count) {
  const Place& place = step.places[a.place];
  const int key_width = a.groups * a.key_dim, value_width = a.groups * a.value_dim;
  rowwise(count, [&](int index) {
    const int row = (begin + index) / step.tokens, token = (begin + index) % step.tokens;
    float* key = keys + int64_t{index} * key_width;
    const float* value = values + int64_t{index} * value_width;
    if (!a.norm_per_head) apply(*step.table, a.key_norm, key, key_width, key);
    for (int group = 0; group < a.groups; group++) {
      finish_head(a.key_norm, a.norm_per_head, a.turn, step, step.offsets[row] + token, a.key_dim,
                  key + group * a.key_dim);
      const int64_t line =
          (int64_t{row} * a.groups + group) * cache.capacity + place.columns[row] + token;
      put(*step.table, key + group * a.key_dim, a.key_dim,
          at(step, cache, cache.keys, line, a.key_dim));
      put(*step.table, value + group * a.value_dim, a.value_dim,
          at(step, cache, cache.values, line, a.value_dim));
    }
  });
}

size_t attend_scratch(const Table& table, const AttentionHalf& a) {
  return table.attention_size(a.key_dim, a.value_dim);
}

void attend(const AttentionHalf& a, const Step& step, const LayerCache& cache, float* queries,
            float* out, float* scratch) {
  const Place& place = step.places[a.place];
  const size_t own = attend_scratch(*step.table, a);
  const int width = a.heads * a.key_dim, out_width = a.heads * a.value_dim;
  const int each = a.heads / a.groups, blocks = (step.tokens + QUERIES - 1) / QUERIES;
  const int64_t work = int64_t{step.rows} * step.tokens * a.heads * longest(step, a.place) *
                       (a.key_dim + a.value_dim);
  if (!a.norm_per_head)
    rowwise(step.rows * step.tokens, [&](int row) {
      float* query = queries + int64_t{row} * width;
      apply(*step.table, a.query_norm, query, width, query);
    });
  share(step.rows * a.groups * blocks, work < SMALL_WORK ? 1 : step.workers,
        [&](int index, int worker) {
          const int block = index % blocks, group = index / blocks % a.groups;
          const int row = index / blocks / a.groups;
          const int first = block * QUERIES;
          /* What follows a row's own tokens means nothing, and may not change how they are cut. */
          const int own_tokens = place.ends[row] - place.positions[row];
          const int all = std::min(QUERIES, step.tokens - first);
          const int count = std::clamp(own_tokens - first, 0, all);
          const int64_t line = (int64_t{row} * a.groups + group) * cache.capacity;
          const int64_t token = int64_t{row} * step.tokens + first;
          float* query = queries + token * width + group * each * a.key_dim;
          float* result = out + token * out_width + group * each * a.value_dim;
          for (int t = count; t < all; t++)
            std::fill_n(result + int64_t{t} * out_width, each * a.value_dim, 0.0f);
          if (count == 0) return;
          for (int t = 0; t < count; t++)
            for (int head = 0; head < each; head++)
              finish_head(a.query_norm, a.norm_per_head, a.turn, step,
                          step.offsets[row] + first + t, a.key_dim,
                          query + int64_t{t} * width + head * a.key_dim);
          Attention attention{};
          attention.query = query;
          attention.query_head_stride = a.key_dim;
          attention.query_stride = width;
          attention.keys = at(step, cache, cache.keys, line, a.key_dim);
          attention.values = at(step, cache, cache.values, line, a.value_dim);
          attention.heads = each;
          attention.queries = count;
          attention.key_dim = a.key_dim;
          attention.value_dim = a.value_dim;
          attention.position = place.positions[row] + first;
          attention.end = std::min(place.ends[row], attention.position + count);
          attention.window = place.windowed ? a.window : 0;
          if (attention.window)
            attention.first = std::max(0, attention.position - attention.window + 1);
          attention.scale = a.scale;
          attention.soft_cap = a.soft_cap;
          attention.sinks = a.sinks ? a.sinks + group * each : nullptr;
          attention.scratch = scratch + worker * own;
          attention.out = result;
          attention.out_head_stride = a.value_dim;
          attention.out_stride = out_width;
          step.table->attention(attention);
        });
}

}  // namespace cowmlx

#include "stages.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cowmlx {

namespace {

/* Multiplications below which handing work to another thread costs more than it saves. */
constexpr int64_t SMALL_WORK = 1 << 15;

/* The same of keys and values that are turned and stored. */
constexpr int SMALL_NUMBERS = 1 << 12;

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
  const int few = std::clamp(SMALL_NUMBERS / (key_width + value_width), 1, SMALL_ROWS);
  const auto put_row = [&](int index) {
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
  };
  rowwise(count, put_row, few);
}

namespace {

/* Positions of a part. Few queries attend to the parts of a long context in parallel, so that all
 * threads have one where there are fewer heads of keys than threads. How a row is cut depends on
 * that row alone. */
constexpr int PART = 1024;
constexpr int MOST_PARTS = 16;

class Attending {
 public:
  Attending(const AttentionHalf& a, const Step& step)
      : a_(a),
        step_(step),
        place_(step.places[a.place]),
        each_(a.heads / a.groups),
        blocks_((step.tokens + QUERIES - 1) / QUERIES) {
    for (int row = 0; row < step.rows; row++) parts_ = std::max(parts_, span(row).parts());
  }

  size_t scratch() const { return worker_numbers() * step_.workers + part_numbers() * units(); }

  void run(const LayerCache& cache, float* queries, float* out, float* scratch) const {
    const int64_t work = int64_t{step_.rows} * step_.tokens * a_.heads * longest(step_, a_.place) *
                         (a_.key_dim + a_.value_dim);
    const int workers = work < SMALL_WORK ? 1 : step_.workers;
    float* parts = scratch + worker_numbers() * step_.workers;
    if (!a_.norm_per_head)
      rowwise(step_.rows * step_.tokens, [&](int row) {
        float* query = queries + row * width();
        apply(*step_.table, a_.query_norm, query, a_.heads * a_.key_dim, query);
      });
    share(step_.rows * a_.groups * blocks_ * parts_, workers, [&](int index, int worker) {
      const int part = index % parts_, block = index / parts_ % blocks_;
      const int group = index / parts_ / blocks_ % a_.groups;
      const int row = index / parts_ / blocks_ / a_.groups;
      Task task{row, group, block * QUERIES, part, scratch + worker * worker_numbers(), nullptr};
      if (span(row).parts() > 1) task.partial = parts + unit(row, group, part) * part_numbers();
      if (part < span(row).parts()) attend(task, cache, queries, out);
    });
    if (parts_ == 1) return;
    share(step_.rows * a_.groups, workers, [&](int index, int) {
      const int group = index % a_.groups, row = index / a_.groups;
      if (span(row).parts() > 1)
        merge(row, group, parts + unit(row, group, 0) * part_numbers(), out);
    });
  }

 private:
  /* Positions that a row's queries see, in parts of `length`. */
  struct Span {
    int first, end, length;

    int parts() const { return std::max(1, (end - first + length - 1) / length); }
  };

  /* Queries from `first` on of a row's group, and a part of the positions that they see. */
  struct Task {
    int row, group, first, part;
    float* scratch;
    float* partial; /* results of a part; null: there is one part */
  };

  Span span(int row) const {
    const int end = place_.ends[row], window = place_.windowed ? a_.window : 0;
    const int first = window ? std::max(0, place_.positions[row] - window + 1) : 0;
    const int most = PART * MOST_PARTS, seen = std::max(1, end - first);
    const bool few = own_tokens(row, 0, step_.tokens) <= FEW_QUERIES && each_ <= FEW_HEADS;
    return {first, end, few ? (seen + most - 1) / most * PART : seen};
  }

  int64_t width() const { return int64_t{a_.heads} * a_.key_dim; }
  int64_t out_width() const { return int64_t{a_.heads} * a_.value_dim; }

  /* Queries of a part, at most. */
  int most_queries() const { return std::min(step_.tokens, FEW_QUERIES); }

  /* Scratch of attention(), and the queries of a part, which each thread turns for itself. */
  size_t worker_numbers() const {
    const size_t own = step_.table->attention_size(a_.key_dim, a_.value_dim);
    return own + (parts_ > 1 ? size_t{1} * most_queries() * each_ * a_.key_dim : 0);
  }

  /* Results of a part, and the largest score and the sum of weights of each query. */
  size_t part_numbers() const { return size_t{1} * most_queries() * each_ * (a_.value_dim + 2); }
  size_t units() const { return parts_ > 1 ? size_t{1} * step_.rows * a_.groups * parts_ : 0; }
  int64_t unit(int row, int group, int part) const {
    return (int64_t{row} * a_.groups + group) * parts_ + part;
  }

  /* Tokens of a row. Padding follows them, and must not change how they are cut. */
  int own_tokens(int row, int first, int all) const {
    return std::clamp(place_.ends[row] - place_.positions[row] - first, 0, all);
  }

  void attend(const Task& task, const LayerCache& cache, float* queries, float* out) const {
    const int row = task.row, first = task.first;
    const int all = std::min(QUERIES, step_.tokens - first), count = own_tokens(row, first, all);
    const int64_t token = int64_t{row} * step_.tokens + first;
    float* query = queries + token * width() + task.group * each_ * a_.key_dim;
    float* result = out + token * out_width() + task.group * each_ * a_.value_dim;
    if (task.part == 0)
      for (int t = count; t < all; t++)
        std::fill_n(result + t * out_width(), each_ * a_.value_dim, 0.0f);
    if (count == 0) return;
    const int64_t line = (int64_t{row} * a_.groups + task.group) * cache.capacity;
    Attention attention{};
    attention.query = query;
    attention.query_head_stride = a_.key_dim;
    attention.query_stride = width();
    attention.keys = at(step_, cache, cache.keys, line, a_.key_dim);
    attention.values = at(step_, cache, cache.values, line, a_.value_dim);
    attention.heads = each_;
    attention.queries = count;
    attention.key_dim = a_.key_dim;
    attention.value_dim = a_.value_dim;
    attention.position = place_.positions[row] + first;
    attention.end = std::min(place_.ends[row], attention.position + count);
    attention.window = place_.windowed ? a_.window : 0;
    if (attention.window) attention.first = std::max(0, attention.position - attention.window + 1);
    attention.scale = a_.scale;
    attention.soft_cap = a_.soft_cap;
    attention.sinks = a_.sinks ? a_.sinks + task.group * each_ : nullptr;
    attention.scratch = task.scratch;
    attention.out = result;
    attention.out_head_stride = a_.value_dim;
    attention.out_stride = out_width();
    if (task.partial != nullptr)
      see_part(task, attention);
    else if (task.row + 1 < step_.rows || task.group + 1 < a_.groups)
      attention.next_keys = at(step_, cache, cache.keys, line + cache.capacity, a_.key_dim).data;
    turn(task, attention, query);
    step_.table->attention(attention);
  }

  /* Restrict attention to a part, whose queries and results lie elsewhere. */
  void see_part(const Task& task, Attention& attention) const {
    const Span all = span(task.row);
    const int begin = all.first + task.part * all.length;
    attention.first = begin;
    attention.end = std::min(attention.end, begin + all.length);
    if (task.part > 0) attention.sinks = nullptr;
    attention.query = task.scratch + step_.table->attention_size(a_.key_dim, a_.value_dim);
    attention.query_stride = each_ * a_.key_dim;
    attention.out = task.partial;
    attention.out_stride = each_ * a_.value_dim;
    attention.state = task.partial + int64_t{most_queries()} * each_ * a_.value_dim;
  }

  /* Norm and turn the queries: in place, or where attention reads them. */
  void turn(const Task& task, const Attention& attention, float* query) const {
    auto* to = const_cast<float*>(attention.query);
    for (int t = 0; t < attention.queries; t++, query += width(), to += attention.query_stride) {
      if (to != query) std::memcpy(to, query, sizeof(float) * each_ * a_.key_dim);
      for (int head = 0; head < each_; head++)
        finish_head(a_.query_norm, a_.norm_per_head, a_.turn, step_,
                    step_.offsets[task.row] + task.first + t, a_.key_dim, to + head * a_.key_dim);
    }
  }

  /* The results of all parts of a row's group. */
  void merge(int row, int group, const float* partial, float* out) const {
    const int count = own_tokens(row, 0, step_.tokens), parts = span(row).parts();
    const size_t size = part_numbers();
    const float* state = partial + int64_t{most_queries()} * each_ * a_.value_dim;
    for (int query = 0; query < count * each_; query++, state += 2, partial += a_.value_dim) {
      float largest = state[0], total = 0, weights[MOST_PARTS];
      for (int part = 1; part < parts; part++) largest = std::max(largest, state[part * size]);
      for (int part = 0; part < parts; part++) {
        weights[part] = std::exp(state[part * size] - largest);
        total += weights[part] * state[part * size + 1];
      }
      float* to = out + (int64_t{row} * step_.tokens + query / each_) * out_width() +
                  (group * each_ + query % each_) * a_.value_dim;
      const float divided = total > 0 ? 1 / total : total; /* 0 where nothing is seen */
      std::fill_n(to, a_.value_dim, 0.0f);
      for (int part = 0; part < parts; part++)
        for (int d = 0; d < a_.value_dim; d++)
          to[d] += partial[part * size + d] * weights[part] * divided;
    }
  }

  const AttentionHalf& a_;
  const Step& step_;
  const Place& place_;
  int each_, blocks_; /* heads of queries for one of keys; of queries */
  int parts_ = 1;     /* of the row that has most */
};

}  // namespace

size_t attend_scratch(const AttentionHalf& a, const Step& step) {
  return Attending(a, step).scratch();
}

void attend(const AttentionHalf& a, const Step& step, const LayerCache& cache, float* queries,
            float* out, float* scratch) {
  Attending(a, step).run(cache, queries, out, scratch);
}

}  // namespace cowmlx

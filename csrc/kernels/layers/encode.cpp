#include <cstring>

#include "stages.h"

namespace cowmlx {

namespace {

/* Rows of a band: texts behind each other that go through all layers before the next ones, so that
 * there is memory for the queries, keys and values of a band alone. */
constexpr int BAND_ROWS = 2 * SLAB_ROWS;

struct Text {
  int group, index, begin; /* its first row */
};

struct Band {
  int first, last; /* texts [first, last) */
  int begin, rows;
};

/* Every text of an encoding, and one that begins behind the last. */
std::vector<Text> texts_of(const Encoding& e) {
  std::vector<Text> texts;
  for (int i = 0; i < e.group_count; i++)
    for (int text = 0; text < e.groups[i].texts; text++)
      texts.push_back({i, text, e.groups[i].start + text * e.groups[i].length});
  texts.push_back({e.group_count, 0, e.rows});
  return texts;
}

/* Bands of even size. */
std::vector<Band> bands_of(const std::vector<Text>& texts, int rows) {
  const int count = (rows + BAND_ROWS - 1) / BAND_ROWS, least = (rows + count - 1) / count;
  std::vector<Band> bands;
  const int end = static_cast<int>(texts.size()) - 1;
  for (int first = 0, last = 1; last <= end; last++) {
    const int own = texts[last].begin - texts[first].begin;
    if (own < least && last < end) continue;
    bands.push_back({first, last, texts[first].begin, own});
    first = last;
  }
  return bands;
}

/* What an encoding computes in. */
struct Buffers {
  float *queries, *keys, *values, *attended; /* of a band */
  float *normed, *gate, *up, *added;         /* of a slab */
  float* attention;
  Preparing preparing;

  Buffers(Arena& arena, const Layers& net, const Encoding& e, const std::vector<Band>& bands)
      : preparing(*e.table) {
    size_t rows = 0;
    for (const Band& band : bands) rows = std::max<size_t>(rows, band.rows);
    const size_t slab_rows = rows < SLAB_ROWS ? rows : SLAB_ROWS;
    size_t key = 0, value = 0, inner = 0, up_inner = 0, scratch = 0;
    std::vector<const Matrix*> matrices;
    for (const Layer& layer : net.layers) {
      const AttentionHalf& a = layer.attention;
      const MLPHalf& p = layer.mlp;
      key = std::max<size_t>(key, a.heads * a.key_dim);
      value = std::max<size_t>(value, a.heads * a.value_dim);
      inner = std::max<size_t>(inner, p.gate.rows);
      up_inner = std::max<size_t>(up_inner, p.up.rows);
      scratch = std::max(scratch, e.table->attention_size(a.key_dim, a.value_dim));
      for (const Matrix* m : {&a.query, &a.key, &a.value, &a.out, &p.gate, &p.up, &p.down})
        matrices.push_back(m);
    }
    queries = arena.take<float>(rows * key);
    keys = arena.take<float>(rows * key);
    values = arena.take<float>(rows * value);
    attended = arena.take<float>(rows * value);
    normed = arena.take<float>(slab_rows * net.width);
    gate = arena.take<float>(slab_rows * inner);
    up = arena.take<float>(slab_rows * up_inner);
    added = arena.take<float>(slab_rows * net.width);
    attention = arena.take<float>(scratch * e.workers);
    preparing.reserve(arena, matrices.data(), static_cast<int>(matrices.size()),
                      static_cast<int>(rows), net.rounded);
  }
};

/* A band through the layers. Rows are counted from the band's first. */
class Pass {
 public:
  Pass(const Layers& net, const Encoding& encoding, Buffers& buffers,
       const std::vector<Text>& texts, const Band& band)
      : net_(net), e_(encoding), b_(buffers), texts_(texts), band_(band) {}

  void run() {
    const int rows = band_.rows;
    for (int i = e_.first; i < e_.end; i++) {
      const Layer& layer = net_.layers[i];
      for (int s = 0; s < slab_count(rows); s++) project(layer.attention, slab(rows, s));
      attend(layer.attention);
      for (int s = 0; s < slab_count(rows); s++) {
        const Slab part = slab(rows, s);
        const AttentionHalf& a = layer.attention;
        const int width = a.heads * a.value_dim;
        add(a.out, {b_.attended + int64_t{part.begin} * width, width}, a.after, part);
        mlp(layer.mlp, part);
      }
    }
  }

 private:
  float* x(int row) const { return e_.x + int64_t{band_.begin + row} * net_.width; }

  /* Products of rows of x, behind a norm. */
  template <class F>
  void multiply(const Norm& norm, const Slab& part, const Product* products, int count,
                bool together, F&& then) {
    const bool bare = norm.kind == Norm::Kind::None;
    const RowsOf rows{bare ? x(part.begin) : b_.normed, net_.width};
    b_.preparing.prepare(part, products, count, rows, net_.rounded, [&](int row) {
      if (!bare)
        apply(*e_.table, norm, x(part.begin + row), net_.width,
              b_.normed + int64_t{row} * net_.width);
    });
    b_.preparing.multiply(part, products, count, together, then);
  }

  void project(const AttentionHalf& a, const Slab& part) {
    const int key = a.heads * a.key_dim, value = a.heads * a.value_dim;
    const int64_t begin = part.begin;
    const Product products[3] = {{&a.query, b_.queries + begin * key, key},
                                 {&a.key, b_.keys + begin * key, key},
                                 {&a.value, b_.values + begin * value, value}};
    multiply(a.before, part, products, 3, false, NOTHING);
    if (a.turn.table < 0) return;
    rowwise(part.rows, [&](int index) {
      const int row = part.begin + index;
      const Angles& angles = *e_.angles;
      const int64_t at = int64_t{e_.positions[band_.begin + row]} * angles.half;
      for (float* heads : {b_.queries, b_.keys})
        for (int head = 0; head < a.heads; head++)
          e_.table->rotate(heads + int64_t{row} * key + head * a.key_dim, angles.cosines + at,
                           angles.sines + at, a.turn.dims, a.turn.traditional);
    });
  }

  /* A task is one head of a text, since texts are short; of a long one some queries. */
  void attend(const AttentionHalf& a) {
    int longest = 0;
    for (int i = band_.first; i < band_.last; i++)
      longest = std::max(longest, e_.groups[texts_[i].group].length);
    const int blocks = (longest + QUERIES - 1) / QUERIES;
    const int count = (band_.last - band_.first) * a.heads * blocks;
    const size_t own = e_.table->attention_size(a.key_dim, a.value_dim);
    share(count, e_.workers, [&](int task, int worker) {
      const Text& text = texts_[band_.first + task / blocks / a.heads];
      const TextGroup& group = e_.groups[text.group];
      const int head = task / blocks % a.heads, first = task % blocks * QUERIES;
      if (first >= group.length) return;
      Attention attention = attention_of(a, text, head);
      attention.query += int64_t{first} * attention.query_stride;
      attention.out += int64_t{first} * attention.out_stride;
      attention.queries = std::min(QUERIES, group.length - first);
      if (group.mask != nullptr)
        attention.mask = static_cast<const char*>(attention.mask) +
                         first * attention.mask_stride * (group.mask_bool ? 1 : 4);
      attention.scratch = b_.attention + worker * own;
      e_.table->attention(attention);
    });
  }

  /* Of all queries of a head. */
  Attention attention_of(const AttentionHalf& a, const Text& text, int head) const {
    const int key = a.heads * a.key_dim, value = a.heads * a.value_dim;
    const TextGroup& group = e_.groups[text.group];
    const int64_t row = text.begin - band_.begin;
    Attention attention{};
    attention.query = b_.queries + row * key + head * a.key_dim;
    attention.query_stride = key;
    attention.keys.data = b_.keys + row * key + head * a.key_dim;
    attention.keys.position_stride = key;
    attention.values.data = b_.values + row * value + head * a.value_dim;
    attention.values.position_stride = value;
    attention.heads = 1;
    attention.key_dim = a.key_dim;
    attention.value_dim = a.value_dim;
    attention.end = attention.position = group.length; /* a query sees all */
    attention.scale = a.scale;
    if (group.mask != nullptr) {
      const int64_t* strides = group.mask_strides;
      attention.mask = static_cast<const char*>(group.mask) +
                       (text.index * strides[0] + head * strides[1]) * (group.mask_bool ? 1 : 4);
      attention.mask_stride = strides[2];
      attention.mask_position_stride = strides[3];
      attention.mask_bool = group.mask_bool;
    }
    attention.out = b_.attended + row * value + head * a.value_dim;
    attention.out_stride = value;
    return attention;
  }

  void mlp(const MLPHalf& p, const Slab& part) {
    const int inner = p.gate.rows;
    const bool gated = p.up.rows > 0;
    const Product products[2] = {{&p.gate, b_.gate, inner}, {&p.up, b_.up, inner}};
    multiply(p.before, part, products, gated ? 2 : 1, true,
             [&](int from, int to, int row, int row_end) {
               for (; row < row_end; row++) {
                 const int64_t at = int64_t{row} * inner + from;
                 e_.table->gate(p.activation, b_.gate + at, gated ? b_.up + at : nullptr, to - from,
                                b_.gate + at);
               }
             });
    add(p.down, {b_.gate, inner}, p.after, part);
  }

  /* x = norm(x + product of rows) */
  void add(const Matrix& matrix, const RowsOf& rows, const Norm& norm, const Slab& part) {
    const Product product{&matrix, b_.added, net_.width};
    b_.preparing.prepare(part, &product, 1, rows, net_.rounded, NOTHING);
    b_.preparing.multiply(part, &product, 1, false, NOTHING);
    rowwise(part.rows, [&](int row) {
      float* sum = x(part.begin + row);
      e_.table->add(sum, b_.added + int64_t{row} * net_.width, 1, net_.width, sum);
      if (norm.kind != Norm::Kind::None) apply(*e_.table, norm, sum, net_.width, sum);
    });
  }

  const Layers& net_;
  const Encoding& e_;
  Buffers& b_;
  const std::vector<Text>& texts_;
  const Band band_;
};

}  // namespace

size_t scratch_size(const Layers& net, const Encoding& encoding) {
  Arena counting(nullptr);
  Buffers buffers(counting, net, encoding, bands_of(texts_of(encoding), encoding.rows));
  return counting.used();
}

void encode(const Layers& net, const Encoding& encoding, void* scratch) {
  const Series series;
  const std::vector<Text> texts = texts_of(encoding);
  const std::vector<Band> bands = bands_of(texts, encoding.rows);
  Arena arena(scratch);
  Buffers buffers(arena, net, encoding, bands);
  for (const Band& band : bands) Pass(net, encoding, buffers, texts, band).run();
}

}  // namespace cowmlx

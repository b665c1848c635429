#include <cstring>

#include "stages.h"

namespace cowmlx {

namespace {

/* Whether the head rounds activations: as product() does with those of float32, which the last norm
 * gives, so that logits are the same bits in both ways. */
bool rounds_head(const Layers& net) { return net.rounded && net.head.group > 0; }

/* What a step computes in. */
struct Buffers {
  float *queries, *attended;     /* of all rows */
  float *normed, *keys, *values; /* of a slab, as are all that follow */
  float *gate, *up, *added;
  float* attention;
  float *low, *lifted; /* of adapters: in their rank, and what is added */
  Preparing preparing, preparing_low, preparing_head;

  Buffers(Arena& arena, const Layers& net, const Step& step)
      : preparing(*step.table), preparing_low(*step.table), preparing_head(*step.table) {
    const size_t rows = static_cast<size_t>(step.rows) * step.tokens;
    const size_t slab_rows = rows < SLAB_ROWS ? rows : SLAB_ROWS;
    size_t query = 0, out = 0, key = 0, value = 0, inner = 0, scratch = 0;
    std::vector<const Matrix*> matrices;
    for (const Layer& layer : net.layers) {
      const AttentionHalf& a = layer.attention;
      query = std::max<size_t>(query, a.heads * a.key_dim);
      out = std::max<size_t>(out, a.heads * a.value_dim);
      key = std::max<size_t>(key, a.groups * a.key_dim);
      value = std::max<size_t>(value, a.groups * a.value_dim);
      scratch = std::max(scratch, attend_scratch(a, step));
      for (const Matrix* matrix : {&a.query, &a.key, &a.value, &a.out}) matrices.push_back(matrix);
      if (!layer.has_mlp) continue;
      const MLPHalf& p = layer.mlp;
      inner = std::max<size_t>(inner, p.gate.rows);
      for (const Matrix* matrix : {&p.gate, &p.up, &p.down}) matrices.push_back(matrix);
    }
    if (step.logits) matrices.push_back(&net.head);
    size_t rank = 0, height = 0;
    std::vector<const Matrix*> lows;
    for (const Matrix* matrix : matrices) {
      if (matrix->low == nullptr) continue;
      rank = std::max<size_t>(rank, matrix->low->down.rows);
      height = std::max<size_t>(height, matrix->rows);
      lows.push_back(&matrix->low->down);
      lows.push_back(&matrix->low->up);
    }
    low = arena.take<float>(slab_rows * rank);
    lifted = arena.take<float>(slab_rows * height);
    queries = arena.take<float>(rows * query);
    attended = arena.take<float>(rows * out);
    normed = arena.take<float>(slab_rows * net.width);
    keys = arena.take<float>(slab_rows * key);
    values = arena.take<float>(slab_rows * value);
    gate = arena.take<float>(slab_rows * inner);
    up = arena.take<float>(slab_rows * inner);
    added = arena.take<float>(slab_rows * net.width);
    attention = arena.take<float>(scratch);
    preparing.reserve(arena, matrices.data(), static_cast<int>(matrices.size()),
                      static_cast<int>(rows), net.rounded);
    preparing_low.reserve(arena, lows.data(), static_cast<int>(lows.size()), static_cast<int>(rows),
                          false);
    const Matrix* head = &net.head;
    if (step.logits)
      preparing_head.reserve(arena, &head, 1, static_cast<int>(rows), rounds_head(net));
  }
};

class Pass {
 public:
  Pass(const Layers& net, const Step& step, Buffers& buffers)
      : net_(net), step_(step), b_(buffers), rows_(step.rows * step.tokens) {}

  void run() {
    if (step_.part != Part::FinishLast && step_.ids) embed();
    const int count = static_cast<int>(net_.layers.size());
    for (int i = step_.part == Part::FinishLast ? count - 1 : 0; i < count; i++) {
      const Layer& layer = net_.layers[i];
      const bool last = i == count - 1;
      const bool stores = !(last && step_.part == Part::FinishLast);
      const bool finishes = !(last && step_.part == Part::StoreLast);
      project(layer.attention, step_.caches[i], stores, finishes);
      if (!finishes) return;
      attend(layer.attention, step_, step_.caches[i], b_.queries, b_.attended, b_.attention);
      for (int s = 0; s < slab_count(rows_); s++) {
        const Slab part = slab(rows_, s);
        output(layer.attention, part);
        if (layer.has_mlp) mlp(layer.mlp, part);
      }
    }
    if (net_.last.kind != Norm::Kind::None)
      rowwise(rows_, [&](int row) { apply(*step_.table, net_.last, x(row), net_.width, x(row)); });
    if (step_.logits) head();
  }

 private:
  float* x(int row) const { return step_.x + int64_t{row} * net_.width; }

  void embed() {
    rowwise(rows_, [&](int row) {
      step_.table->row_numbers(net_.embedding, step_.ids[row], x(row));
      if (net_.input_scale != 1)
        for (int i = 0; i < net_.width; i++) x(row)[i] *= net_.input_scale;
    });
  }

  void head() {
    const int width = net_.head.rows;
    for (int s = 0; s < slab_count(rows_); s++) {
      const Slab part = slab(rows_, s);
      const Product product{&net_.head, step_.logits + int64_t{part.begin} * width, width};
      const RowsOf rows{x(part.begin), net_.width};
      b_.preparing_head.prepare(part, &product, 1, rows, rounds_head(net_), NOTHING);
      b_.preparing_head.multiply(part, &product, 1, false, NOTHING);
      add_low(part, product, rows);
    }
  }

  void project(const AttentionHalf& a, const LayerCache& cache, bool stores, bool queries) {
    const int query = a.heads * a.key_dim, key = a.groups * a.key_dim,
              value = a.groups * a.value_dim;
    for (int s = 0; s < slab_count(rows_); s++) {
      const Slab part = slab(rows_, s);
      Product products[MOST_MATRICES];
      int count = 0;
      if (queries) products[count++] = {&a.query, b_.queries + int64_t{part.begin} * query, query};
      if (stores) {
        products[count++] = {&a.key, b_.keys, key};
        products[count++] = {&a.value, b_.values, value};
      }
      normed_products(a.before, part, products, count, false, NOTHING);
      if (stores) store(a, step_, cache, b_.keys, b_.values, part.begin, part.rows);
    }
  }

  /* One product of rows. */
  void multiply(const Slab& part, const Product& product, const RowsOf& rows) {
    b_.preparing.prepare(part, &product, 1, rows, net_.rounded, NOTHING);
    b_.preparing.multiply(part, &product, 1, false, NOTHING);
    add_low(part, product, rows);
  }

  /* Products of normed rows of x. */
  template <class F>
  void normed_products(const Norm& norm, const Slab& part, const Product* products, int count,
                       bool together, F&& then) {
    const bool bare = norm.kind == Norm::Kind::None;
    const RowsOf rows{bare ? x(part.begin) : b_.normed, net_.width};
    b_.preparing.prepare(part, products, count, rows, net_.rounded, [&](int row) {
      if (!bare)
        apply(*step_.table, norm, x(part.begin + row), net_.width,
              b_.normed + int64_t{row} * net_.width);
    });
    b_.preparing.multiply(part, products, count, together, then);
    for (int i = 0; i < count; i++) add_low(part, products[i], rows);
  }

  /* Add what an adapter makes of rows to a product of them. */
  void add_low(const Slab& part, const Product& product, const RowsOf& rows) {
    if (product.matrix->low == nullptr) return;
    const LowRank& low = *product.matrix->low;
    const int rank = low.down.rows, height = product.matrix->rows;
    const Product down{&low.down, b_.low, rank}, up{&low.up, b_.lifted, height};
    b_.preparing_low.prepare(part, &down, 1, rows, false, NOTHING);
    b_.preparing_low.multiply(part, &down, 1, false, NOTHING);
    b_.preparing_low.prepare(part, &up, 1, {b_.low, rank}, false, NOTHING);
    b_.preparing_low.multiply(part, &up, 1, false, [&](int from, int to, int row, int row_end) {
      for (; row < row_end; row++) {
        float* out = product.out + row * product.stride + from;
        if (low.rescale)
          for (int i = 0; i < to - from; i++) out[i] *= low.rescale[from + i];
        step_.table->add(out, b_.lifted + int64_t{row} * height + from, 1, to - from, out);
      }
    });
  }

  void output(const AttentionHalf& a, const Slab& part) {
    const int width = a.heads * a.value_dim;
    const Product product{&a.out, b_.added, net_.width};
    const RowsOf rows{b_.attended + int64_t{part.begin} * width, width};
    multiply(part, product, rows);
    add(a.after, a.residual, part);
  }

  void mlp(const MLPHalf& p, const Slab& part) {
    const int inner = p.gate.rows, count = p.up.rows ? 2 : 1;
    const Product products[2] = {{&p.gate, b_.gate, inner}, {&p.up, b_.up, inner}};
    const auto gate = [&](int from, int to, int row, int row_end) {
      for (; row < row_end; row++) {
        float* gate = b_.gate + int64_t{row} * inner + from;
        const float* up = count > 1 ? b_.up + int64_t{row} * inner + from : nullptr;
        step_.table->gate(p.activation, gate, up, to - from, gate);
      }
    };
    if (p.gate.low || p.up.low) { /* which are added first */
      normed_products(p.before, part, products, count, true, NOTHING);
      rowwise(part.rows, [&](int row) { gate(0, inner, row, row + 1); });
    } else {
      normed_products(p.before, part, products, count, true, gate);
    }
    const Product product{&p.down, b_.added, net_.width};
    const RowsOf rows{b_.gate, inner};
    multiply(part, product, rows);
    add(p.after, p.residual, part);
  }

  /* x += residual * norm(added) */
  void add(const Norm& norm, float residual, const Slab& part) {
    rowwise(part.rows, [&](int row) {
      float* added = b_.added + int64_t{row} * net_.width;
      if (norm.kind != Norm::Kind::None) apply(*step_.table, norm, added, net_.width, added);
      float* sum = x(part.begin + row);
      step_.table->add(sum, added, residual, net_.width, sum);
    });
  }

  const Layers& net_;
  const Step& step_;
  Buffers& b_;
  const int rows_;
};

}  // namespace

size_t scratch_size(const Layers& net, const Step& step) {
  Arena counting(nullptr);
  Buffers buffers(counting, net, step);
  return counting.used();
}

void run(const Layers& net, const Step& step, void* scratch) {
  const Series series;
  Arena arena(scratch);
  Buffers buffers(arena, net, step);
  Pass(net, step, buffers).run();
}

}  // namespace cowmlx

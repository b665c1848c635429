/* Steps over invented decoder layers, without Python. The same step gives the same bits with one
 * thread and with four, in one part and in two, and in rows alone. Memory is as large as it has to
 * be, so that a sanitizer sees what is beyond; and there is no table but the step's own. Ends with
 * 0, or at the first thing that is not so. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "kernels/layers/stages.h"

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

namespace cowmlx {
extern const Table portable_table;
}

namespace {

using namespace cowmlx;

constexpr int ROUNDS = 40, WIDTH = 64, VOCABULARY = 37, GROUP = 32, SLAB = 300;

std::mt19937 engine(11);

int below(int count) { return static_cast<int>(engine() % static_cast<unsigned>(count)); }

float number() { return static_cast<float>(below(2001) - 1000) / 1000; }

/* All that layers point into. */
struct Memory {
  std::vector<std::unique_ptr<float[]>> floats;
  std::vector<std::unique_ptr<uint16_t[]>> halves;
  std::vector<std::unique_ptr<uint32_t[]>> words;
  std::vector<std::unique_ptr<LowRank>> lows;

  float* numbers(size_t count, float scale = 1) {
    floats.emplace_back(new float[count]);
    std::generate_n(floats.back().get(), count, [=] { return scale * number(); });
    return floats.back().get();
  }

  const void* brains(size_t count, float scale) {
    halves.emplace_back(new uint16_t[count]);
    std::generate_n(halves.back().get(), count, [=] {
      const float value = scale * number();
      uint32_t bits;
      memcpy(&bits, &value, sizeof bits);
      return static_cast<uint16_t>(bits >> 16);
    });
    return halves.back().get();
  }

  const void* quantized(size_t count) {
    words.emplace_back(new uint32_t[count]);
    std::generate_n(words.back().get(), count, [] { return static_cast<uint32_t>(engine()); });
    return words.back().get();
  }

  Matrix matrix(int rows, int columns) {
    Matrix m{};
    m.rows = rows;
    m.columns = columns;
    m.scale_type = Scalar::Float32;
    const float scale = 1 / std::sqrt(static_cast<float>(columns));
    const size_t filled = static_cast<size_t>(m.blocks()) * LANES;
    const size_t count = filled * static_cast<size_t>(columns);
    switch (below(3)) {
      case 0:
        m.format = Format::Float32;
        m.bits = 32;
        m.weight = numbers(count, scale);
        break;
      case 1:
        m.format = Format::BFloat16;
        m.bits = 16;
        m.weight = brains(count, scale);
        break;
      default:
        m.format = Format::Affine;
        m.bits = below(2) ? 4 : 8;
        m.group = GROUP;
        m.weight = quantized(count * static_cast<size_t>(m.bits) / 32);
        m.scales = numbers(count / GROUP, scale / static_cast<float>(1 << m.bits));
        m.biases = numbers(count / GROUP, scale);
    }
    if (below(3) == 0) m.bias = numbers(static_cast<size_t>(rows));
    if (below(4) == 0) m.low = low(rows, columns);
    return m;
  }

  const LowRank* low(int rows, int columns) {
    const auto dense = [this](int rows, int columns) {
      Matrix m{};
      m.format = Format::Float32;
      m.bits = 32;
      m.rows = rows;
      m.columns = columns;
      const size_t filled = static_cast<size_t>(m.blocks()) * LANES;
      m.weight = numbers(filled * static_cast<size_t>(columns), 0.1f);
      return m;
    };
    const int rank = 1 + below(6);
    lows.emplace_back(new LowRank{dense(rank, columns), dense(rows, rank)});
    if (below(2)) lows.back()->rescale = numbers(static_cast<size_t>(rows));
    return lows.back().get();
  }

  Norm norm(int size) {
    Norm made;
    made.kind = static_cast<Norm::Kind>(below(3));
    made.eps = 1e-5f;
    if (made.kind == Norm::Kind::None) return made;
    if (below(4)) made.weight = numbers(static_cast<size_t>(size));
    if (made.kind == Norm::Kind::Layer && below(2)) made.bias = numbers(static_cast<size_t>(size));
    return made;
  }

  Layer layer() {
    Layer made{};
    AttentionHalf& a = made.attention;
    a.groups = 1 + below(3);
    a.heads = a.groups * (1 + below(3));
    a.key_dim = below(2) ? 16 : 32;
    a.value_dim = below(2) ? 16 : 32;
    const int query = a.heads * a.key_dim, key = a.groups * a.key_dim;
    a.before = norm(WIDTH);
    a.after = norm(WIDTH);
    a.query = matrix(query, WIDTH);
    a.key = matrix(key, WIDTH);
    a.value = matrix(a.groups * a.value_dim, WIDTH);
    const int inside = a.heads * a.value_dim;
    a.out = matrix(WIDTH, inside);
    while (inside % GROUP && a.out.format == Format::Affine) a.out = matrix(WIDTH, inside);
    a.norm_per_head = below(2);
    a.query_norm = norm(a.norm_per_head ? a.key_dim : query);
    a.key_norm = norm(a.norm_per_head ? a.key_dim : key);
    if (below(3)) a.turn = {0, 8, below(2) == 0};
    a.scale = 0.25f;
    a.soft_cap = below(3) ? 0 : 30.0f;
    if (below(3) == 0) a.sinks = numbers(static_cast<size_t>(a.heads));
    a.window = below(2) ? 0 : 5;
    made.has_mlp = below(4);
    MLPHalf& p = made.mlp;
    if (!made.has_mlp) return made;
    const int inner = GROUP * (1 + below(4));
    p.before = norm(WIDTH);
    p.after = norm(WIDTH);
    p.gate = matrix(inner, WIDTH);
    p.up = matrix(inner, WIDTH);
    p.down = matrix(WIDTH, inner);
    p.activation = static_cast<Activation>(below(5));
    return made;
  }
};

Layers network(Memory& memory) {
  Layers net{};
  net.width = WIDTH;
  net.rounded = below(2);
  net.embedding = memory.matrix(VOCABULARY, WIDTH);
  net.embedding.bias = nullptr;
  net.input_scale = below(2) ? 1 : 1.5f;
  const int count = 1 + below(3);
  for (int i = 0; i < count; i++) net.layers.push_back(memory.layer());
  net.last = memory.norm(WIDTH);
  return net;
}

/* What a step starts from: tokens, what the caches hold, how far each row is. */
struct Text {
  int rows, tokens, capacity;
  Scalar type;
  KVQuantization quantization;
  std::vector<int32_t> offsets, ids;
  std::vector<float> cosines, sines;
  std::vector<std::vector<char>> keys, values; /* quantized: words, scales and biases, in turn */
};

/* Whether heads are whole groups. */
bool is_wide(const Layers& net) {
  return std::all_of(net.layers.begin(), net.layers.end(), [](const Layer& layer) {
    return layer.attention.key_dim % GROUP == 0 && layer.attention.value_dim % GROUP == 0;
  });
}

Text text(const Layers& net, int rows, int tokens) {
  Text made;
  made.rows = rows;
  made.tokens = tokens;
  made.type = static_cast<Scalar>(below(3));
  if (below(2) && is_wide(net)) made.quantization = {below(2) ? 4 : 8, GROUP};
  int longest = 0;
  for (int row = 0; row < rows; row++) {
    made.offsets.push_back(below(40));
    longest = std::max(longest, made.offsets.back());
  }
  made.capacity = longest + tokens;
  for (int i = 0; i < rows * tokens; i++) made.ids.push_back(below(VOCABULARY));
  for (int i = 0; i < made.capacity * 4; i++) {
    made.cosines.push_back(std::cos(static_cast<float>(i / 4)));
    made.sines.push_back(std::sin(static_cast<float>(i / 4)));
  }
  for (const Layer& layer : net.layers) {
    const AttentionHalf& a = layer.attention;
    auto numbers = [&](int dim) {
      const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(a.groups) *
                           static_cast<size_t>(made.capacity) * static_cast<size_t>(dim);
      std::vector<char> bytes(count * size_of(made.type));
      for (size_t i = 0; i < count; i++) { /* small numbers, whatever the type */
        const float value = number();
        const uint16_t half = static_cast<uint16_t>(0x3000 + below(0x800));
        if (made.type == Scalar::Float32)
          memcpy(bytes.data() + 4 * i, &value, 4);
        else
          memcpy(bytes.data() + 2 * i, &half, 2);
      }
      return bytes;
    };
    auto words = [&](int dim) {
      const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(a.groups) *
                           static_cast<size_t>(made.capacity) *
                           static_cast<size_t>(dim * made.quantization.bits / 8);
      std::vector<char> bytes(count);
      for (char& byte : bytes) byte = static_cast<char>(engine());
      return bytes;
    };
    for (auto [part, dim] : {std::pair{&made.keys, a.key_dim}, {&made.values, a.value_dim}})
      if (made.quantization.bits == 0) {
        part->push_back(numbers(dim));
      } else {
        part->push_back(words(dim));
        part->push_back(numbers(dim / GROUP));
        part->push_back(numbers(dim / GROUP));
      }
  }
  return made;
}

struct Result {
  std::vector<float> x;
  std::vector<std::vector<char>> keys, values;

  bool operator==(const Result& other) const {
    return keys == other.keys && values == other.values && x.size() == other.x.size() &&
           memcmp(x.data(), other.x.data(), x.size() * sizeof(float)) == 0;
  }
};

/* Take the step in these parts, one after the other. */
Result take(const Layers& net, const Text& text, const std::vector<Part>& parts) {
  Result result{{}, text.keys, text.values};
  const size_t size = static_cast<size_t>(text.rows) * static_cast<size_t>(text.tokens) * WIDTH;
  std::unique_ptr<float[]> x(new float[size]());
  const Angles angles{text.cosines.data(), text.sines.data(), 4};
  Place place{text.offsets, {}, text.offsets, true};
  for (int32_t offset : text.offsets) place.ends.push_back(offset + text.tokens);
  std::vector<LayerCache> caches;
  const auto stored = [&](std::vector<std::vector<char>>& from, size_t layer) {
    if (text.quantization.bits == 0) return Stored{from[layer].data(), nullptr, nullptr};
    return Stored{from[3 * layer].data(), from[3 * layer + 1].data(), from[3 * layer + 2].data()};
  };
  for (size_t i = 0; i < net.layers.size(); i++)
    caches.push_back({stored(result.keys, i), stored(result.values, i), text.capacity, text.type});
  for (const Part part : parts) {
    Step step{};
    step.table = &portable_table;
    step.rows = text.rows;
    step.tokens = text.tokens;
    step.offsets = text.offsets.data();
    step.ids = text.ids.data();
    step.x = x.get();
    step.angles = &angles;
    step.places = &place;
    step.caches = caches.data();
    step.quantization = text.quantization;
    step.part = part;
    step.workers = threads();
    const size_t bytes = scratch_size(net, step);
    const auto aligned = std::align_val_t(Arena::ALIGNMENT);
    void* scratch = operator new(bytes, aligned);
    run(net, step, scratch);
    operator delete(scratch, aligned);
  }
  result.x.assign(x.get(), x.get() + size);
  for (const float value : result.x) EXPECT(std::isfinite(value));
  return result;
}

/* One row of a text, as if it were alone. */
Text row_of(const Text& all, int row) {
  Text one = all;
  one.rows = 1;
  one.offsets = {all.offsets[static_cast<size_t>(row)]};
  one.ids.assign(all.ids.begin() + row * all.tokens, all.ids.begin() + (row + 1) * all.tokens);
  for (size_t i = 0; i < one.keys.size(); i++)
    for (auto* part : {&one.keys[i], &one.values[i]}) {
      const auto each = static_cast<std::ptrdiff_t>(part->size()) / all.rows;
      *part = std::vector<char>(part->begin() + row * each, part->begin() + (row + 1) * each);
    }
  return one;
}

void check(const Layers& net, const Text& given) {
  set_threads(1);
  const Result expected = take(net, given, {Part::All});
  EXPECT(take(net, given, {Part::StoreLast, Part::FinishLast}) == expected);
  set_threads(4);
  EXPECT(take(net, given, {Part::All}) == expected);
  EXPECT(take(net, given, {Part::StoreLast, Part::FinishLast}) == expected);
  if (given.rows * given.tokens > SMALL_ROWS) return;
  for (int row = 0; row < given.rows; row++) {
    const Result alone = take(net, row_of(given, row), {Part::All});
    EXPECT(memcmp(alone.x.data(), expected.x.data() + row * given.tokens * WIDTH,
                  alone.x.size() * sizeof(float)) == 0);
  }
}

}  // namespace

int main() {
  for (int round = 0; round < ROUNDS; round++) {
    Memory memory;
    const Layers net = network(memory);
    check(net, text(net, 1 + below(5), 1));
    check(net, text(net, 1 + below(2), 2 + below(6)));
    if (round % 4 == 0) check(net, text(net, 1 + below(3), 30 + below(100)));
    if (round % 10 == 0) check(net, text(net, 1, SLAB + below(SLAB)));
  }
  return 0;
}

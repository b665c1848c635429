/* Sums over all rows of (rows, channels), for each channel: statistics of batch norms, and what
 * their gradients need. Memory is read once. */
#include <cmath>
#include <numeric>

#include "arena.h"
#include "operation.h"

namespace cowmlx {
namespace {

constexpr int64_t TILE = 1 << 13;       /* numbers that a core's nearest cache holds, read twice */
constexpr int64_t MOST_PARTS = 64;      /* of all rows, which threads share */
constexpr int64_t LEAST_PART = 1 << 14; /* numbers */
constexpr int64_t WIDE = 64; /* numbers of a line, at least: several rows if these are short */

enum class Kind { Moments, Sums };

/* What is known of a channel's rows so far. Moments: their mean and the sum of the squared
 * differences from it. Sums: of a, and of a * (b - centre). */
struct Known {
  double* first;
  double* second;
};

/* One evaluation. Parts and tiles depend on the sizes alone, and so do all bits. */
struct ChannelJob {
  Kind kind;
  std::optional<Copy> copies[2];
  const float *a, *b, *centre; /* Moments: a alone */
  int64_t rows, channels;
  double* known; /* (parts, 2, channels) */
  float* room;   /* for each worker */
  float* out;    /* (2, channels) */
  int workers;

  /* Whole rows, in vectors as long as the machine's. */
  int64_t width() const {
    if (channels >= WIDE) return channels;
    const int64_t whole = std::lcm(channels, int64_t{LANES});
    return (WIDE + whole - 1) / whole * whole;
  }
  int64_t parts() const {
    return std::clamp<int64_t>(rows * channels / LEAST_PART, 1, std::min(rows, MOST_PARTS));
  }
  int64_t tile_rows() const { return std::max<int64_t>(TILE / width(), 1) * (width() / channels); }
  int64_t worker_numbers() const { return 3 * width(); }

  void take(Arena& arena) {
    known = arena.take<double>(static_cast<size_t>(parts() * 2 * channels));
    room = arena.take<float>(static_cast<size_t>(workers * worker_numbers()));
  }

  /* Add the numbers of a tile up, line by line, and then those of the last line. */
  void add(const Table& table, int64_t first, int64_t count, const float* middle, float* sums,
           float* products) const {
    const int64_t all = count * channels, lines = all / width(), rest = all % width();
    const float *from = a + first * channels, *other = b == nullptr ? b : b + first * channels;
    const auto wide = static_cast<int>(width());
    table.line_sums(from, other, middle, lines, width(), wide, sums, products);
    if (rest == 0) return;
    const int64_t done = lines * width();
    table.line_sums(from + done, other == nullptr ? other : other + done, middle, 1, width(),
                    static_cast<int>(rest), sums, products);
  }

  /* The sum of a channel over the rows of a line. */
  double folded(const float* sums, int64_t channel) const {
    double sum = 0;
    for (int64_t at = channel; at < width(); at += channels) sum += sums[at];
    return sum;
  }

  /* Two passes over a tile, the second of which corrects the mean (Chan et al., 1983). */
  void moments(const Table& table, int64_t first, int64_t count, int64_t before, float* own,
               Known to) const {
    float *sums = own, *middle = own + width(), *squares = middle + width();
    const auto some = static_cast<double>(count), all = some + static_cast<double>(before);
    std::fill_n(sums, width(), 0.0F);
    add(table, first, count, nullptr, sums, nullptr);
    for (int64_t channel = 0; channel < channels; channel++) {
      const auto mean = static_cast<float>(folded(sums, channel) / some);
      for (int64_t at = channel; at < width(); at += channels) middle[at] = mean;
    }
    std::fill_n(sums, width(), 0.0F);
    std::fill_n(squares, width(), 0.0F);
    add(table, first, count, middle, sums, squares);
    for (int64_t channel = 0; channel < channels; channel++) {
      const double rest = folded(sums, channel) / some;
      const double distance = middle[channel] + rest - to.first[channel];
      to.first[channel] += distance * some / all;
      to.second[channel] += folded(squares, channel) - some * rest * rest +
                            distance * distance * some * static_cast<double>(before) / all;
    }
  }

  void sums(const Table& table, int64_t first, int64_t count, float* own, Known to) const {
    float *sums = own, *middle = own + width(), *products = middle + width();
    std::fill_n(sums, width(), 0.0F);
    std::fill_n(products, width(), 0.0F);
    for (int64_t at = 0; at < width(); at++) middle[at] = centre[at % channels];
    add(table, first, count, middle, sums, products);
    for (int64_t channel = 0; channel < channels; channel++) {
      to.first[channel] += folded(sums, channel);
      to.second[channel] += folded(products, channel);
    }
  }

  Known known_of(int64_t part) const {
    double* first = known + part * 2 * channels;
    return {first, first + channels};
  }

  int64_t begin(int64_t part) const { return rows * part / parts(); }

  void part(const Table& table, int64_t index, float* own) const {
    const int64_t begins = begin(index), ends = begin(index + 1);
    const Known to = known_of(index);
    std::fill_n(to.first, 2 * channels, 0.0);
    for (int64_t first = begins; first < ends; first += tile_rows()) {
      const int64_t count = std::min(tile_rows(), ends - first);
      if (kind == Kind::Moments)
        moments(table, first, count, first - begins, own, to);
      else
        sums(table, first, count, own, to);
    }
  }

  void join(int64_t channel) const {
    double first = 0, second = 0;
    for (int64_t index = 0; index < parts(); index++) {
      const Known part = known_of(index);
      second += part.second[channel];
      if (kind == Kind::Sums) {
        first += part.first[channel];
        continue;
      }
      const auto before = static_cast<double>(begin(index));
      const auto all = static_cast<double>(begin(index + 1)), some = all - before;
      const double distance = part.first[channel] - first;
      first += distance * some / all;
      second += distance * distance * some * before / all;
    }
    if (kind == Kind::Moments) second /= static_cast<double>(rows);
    out[channel] = static_cast<float>(first);
    out[channels + channel] = static_cast<float>(second);
  }

  void operator()() const {
    const Series series;
    const Table& used = table();
    for (const std::optional<Copy>& copy : copies)
      if (copy) copy->run();
    share(static_cast<int>(parts()), workers,
          [&](int index, int worker) { part(used, index, room + worker * worker_numbers()); });
    for (int64_t channel = 0; channel < channels; channel++) join(channel);
  }
};

/* Inputs: x, or a, b and a centre. */
class Channels : public WithGradient {
 public:
  Channels(mx::Stream stream, Kind kind) : WithGradient(stream), kind_(kind) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    ChannelJob job{};
    job.kind = kind_;
    job.channels = inputs[0].shape(-1);
    job.rows = static_cast<int64_t>(inputs[0].size()) / job.channels;
    job.out = out.data<float>();
    if (job.rows == 0) {
      std::fill_n(job.out, out.size(), kind_ == Kind::Moments ? std::nanf("") : 0.0F);
      return;
    }
    job.workers = threads();
    job.a = lying(inputs[0], encoder, job.copies[0]);
    if (kind_ == Kind::Sums) {
      job.b = lying(inputs[1], encoder, job.copies[1]);
      job.centre = inputs[2].data<float>();
    }
    Arena counted(nullptr);
    job.take(counted);
    Arena arena(temporary<char>(encoder, static_cast<int64_t>(counted.used())));
    job.take(arena);
    dispatch(encoder, std::move(job));
  }

  const char* name() const override {
    return kind_ == Kind::Moments ? "CowmlxChannelMoments" : "CowmlxChannelSums";
  }

  bool is_equivalent(const mx::Primitive& other) const override {
    return kind_ == static_cast<const Channels&>(other).kind_;
  }

  static mx::array make(Arrays inputs, Kind kind, mx::Stream stream) {
    const int channels = inputs[0].shape(-1);
    return mx::array(mx::Shape{2, channels}, mx::float32, std::make_shared<Channels>(stream, kind),
                     std::move(inputs));
  }

 protected:
  mx::array plainly(const Arrays& inputs) override {
    const mx::Stream s = stream();
    std::vector<int> axes(inputs[0].ndim() - 1);
    std::iota(axes.begin(), axes.end(), 0);
    if (kind_ == Kind::Moments)
      return mx::stack({mx::mean(inputs[0], axes, false, s), mx::var(inputs[0], axes, false, 0, s)},
                       s);
    const mx::array away = mx::subtract(inputs[1], inputs[2], s);
    return mx::stack({mx::sum(inputs[0], axes, false, s),
                      mx::sum(mx::multiply(inputs[0], away, s), axes, false, s)},
                     s);
  }

 private:
  Kind kind_;
};

mx::array channel_moments(const mx::array& x) {
  if (x.dtype() != mx::float32 || x.ndim() < 1) refuse("x is float32, (..., C)");
  return Channels::make({x}, Kind::Moments, cpu_stream());
}

mx::array channel_sums(const mx::array& a, const mx::array& b, const mx::array& centre) {
  const bool is_float = a.dtype() == mx::float32 && b.dtype() == mx::float32;
  if (!is_float || a.ndim() < 1 || a.shape() != b.shape())
    refuse("a and b are float32 of one shape, (..., C)");
  if (centre.dtype() != mx::float32 || centre.shape() != mx::Shape{a.shape(-1)})
    refuse("centre is float32, (C,)");
  const mx::Stream stream = cpu_stream();
  return Channels::make({a, b, mx::contiguous(centre, false, stream)}, Kind::Sums, stream);
}

}  // namespace

void bind_channels(nb::module_& module) {
  module.def("channel_moments", channel_moments, "x"_a,
             R"(The mean and the variance of each channel.

Args:
    x: (..., C) float32.

Returns:
    (2, C): means, and means of squared differences from them; nan without rows.)");
  module.def("channel_sums", channel_sums, "a"_a, "b"_a, "centre"_a,
             R"(The sum of a, and that of a * (b - centre), of each channel.

Args:
    a, b: (..., C) float32.
    centre: (C,) float32.

Returns:
    (2, C).)");
}

}  // namespace cowmlx

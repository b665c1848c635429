#include "operation.h"

namespace cowmlx {
namespace {

struct Bounds {
  int64_t low, high;
};

template <class T>
void find(const T* values, int64_t size, Bounds bounds, int64_t* found) {
  /* Unsigned numbers have no lower bound, and those of 64 bits do not fit int64_t. */
  const auto low = std::is_signed_v<T> ? bounds.low : 0;
  const auto is_bad = [&](T value) {
    if constexpr (std::is_same_v<T, uint64_t>) return value > static_cast<uint64_t>(bounds.high);
    return int64_t(value) < low || int64_t(value) > bounds.high;
  };
  int64_t count = 0, place = 0;
  for (int64_t at = 0; at < size; at++) count += is_bad(values[at]);
  while (count > 0 && !is_bad(values[place])) place++;
  found[0] = count;
  found[1] = place;
  found[2] = static_cast<int64_t>(values[place]);
}

/* How many of some integers are out of bounds, where the first one is, and its value. */
class Outside : public WithGradient {
 public:
  Outside(mx::Stream stream, Bounds bounds) : WithGradient(stream), bounds_(bounds) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    const auto size = static_cast<int64_t>(inputs[0].size());
    dispatch(encoder,
             [values = Integers(inputs[0]), size, bounds = bounds_, found = out.data<int64_t>()] {
               values.visit([&](const auto* from) { find(from, size, bounds, found); });
             });
  }

  const char* name() const override { return "CowmlxOutside"; }

 protected:
  mx::array plainly(const Arrays& inputs) override {
    const mx::Stream s = stream();
    const mx::array& given = inputs[0];
    const mx::array wide = given.itemsize() < 4 ? mx::astype(given, mx::int32, s) : given;
    const bool is_signed = mx::issubdtype(wide.dtype(), mx::signedinteger);
    const bool has_least = mx::issubdtype(given.dtype(), mx::signedinteger);
    /* A bound beyond the type bounds nothing. */
    const int64_t least = is_signed ? INT32_MIN : 0, most = is_signed ? INT32_MAX : UINT32_MAX;
    const auto number = [&](int64_t bound) {
      if (wide.itemsize() == 4) bound = std::clamp(bound, least, most);
      return mx::array(bound, wide.dtype());
    };
    mx::array bad = mx::greater(wide, number(bounds_.high), s);
    if (has_least) bad = mx::logical_or(bad, mx::less(wide, number(bounds_.low), s), s);
    bad = mx::flatten(bad, s);
    const mx::array place = mx::argmax(mx::astype(bad, mx::int32, s), false, s);
    Arrays found{mx::sum(bad, false, s), place, mx::take(mx::flatten(wide, s), place, s)};
    for (mx::array& one : found) one = mx::astype(one, mx::int64, s);
    return mx::stack(found, s);
  }

  mx::Dtype type() const override { return mx::int64; }

 private:
  Bounds bounds_;
};

mx::array outside(const mx::array& values, int64_t low, int64_t high) {
  const mx::Dtype type = values.dtype();
  if (!mx::issubdtype(type, mx::integer)) refuse("values must be integers");
  if (values.size() == 0) refuse("there are no values");
  const mx::Stream stream = cpu_stream();
  return mx::array({3}, mx::int64, std::make_shared<Outside>(stream, Bounds{low, high}),
                   {mx::contiguous(values, false, stream)});
}

}  // namespace

void bind_indices(nb::module_& module) {
  module.def("outside", outside, "values"_a, "low"_a, "high"_a,
             R"(Which integers are out of bounds.

Args:
    values: integers of any shape, at least one.
    low: the least that is in bounds; unsigned ones have none.
    high: the greatest.

Returns:
    (3,) int64: how many are out of bounds, where the first is in row-major order, and its value; 0,
    0 and the first value if none is.)");
}

}  // namespace cowmlx

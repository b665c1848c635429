/* ProgramBuilder and the operators of Array: each scenario prints its name once all holds. */
#include <cmath>
#include <cow_mlx.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <locale>
#include <string>

using namespace cowmlx;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

using Floats = std::vector<float>;

/* The reason that a call fails for; what it says must have a text in it. */
template <typename Call>
static std::string reason(const char* text, Call call) {
  try {
    call();
  } catch (const Error& error) {
    if (std::strstr(error.what(), text) == nullptr) std::fprintf(stderr, "%s\n", error.what());
    EXPECT(std::strstr(error.what(), text) != nullptr);
    return error.reason();
  }
  return "nothing";
}

static Floats run(const ProgramBuilder& builder, const std::vector<Input>& inputs = {}) {
  return builder.build().run(inputs)[0].values<float>();
}

static void a_program_is_written_with_operators() {
  ProgramBuilder b;
  auto x = b.input("x", Dtype::float32, {"rows", 3});
  auto w = b.parameter("w", Dtype::float32, {3}, "\"normal\"");
  auto y = matmul(x, w);
  b.output("y", -(y + 1) / 2 - 3 * y);
  b.output("loss", mean(square(y), 0, true));
  b.output("above", where(y > 5, 1.0, 0.5));
  b.output("total", sum(y));
  const Program program = b.build();
  EXPECT(program.info().find("\"init\": {\"name\": \"normal\"") != std::string::npos);
  const Floats of_x = {1, 2, 3, 4, 5, 6}, of_w = {1, 0, 1};
  const std::vector<Input> inputs = {{of_x, {2, 3}}, {of_w, {3}}};
  const auto found = program.run(inputs, 4);
  EXPECT((found[0].values<float>() == Floats{-14.5f, -35.5f}));
  EXPECT((found[1].shape() == Shape{1} && found[1].values<float>() == Floats{58}));
  EXPECT((found[2].values<float>() == Floats{0.5f, 1}));
  const Program slope =
      program.derive("{\"gradient\": {\"of\": \"total\", \"with_respect_to\": [\"w\"]}}");
  EXPECT((slope.run(inputs)[0].values<float>() == Floats{5, 7, 9}));
}

static void numbers_take_the_dtype_of_what_they_meet() {
  ProgramBuilder b;
  for (Dtype dtype : {Dtype::float16, Dtype::bfloat16, Dtype::float64, Dtype::complex64}) {
    auto x = b.input("x" + std::to_string(static_cast<int>(dtype)), dtype, {"n"});
    EXPECT((x * 2).dtype() == dtype && (0.5 * x).dtype() == dtype && (x - 1.5f).dtype() == dtype);
  }
  auto i = b.input("i", Dtype::uint8, {"n"});
  EXPECT((i + 1).dtype() == Dtype::uint8 && (i * 0.5).dtype() == Dtype::float32);
  EXPECT((i < 3).dtype() == Dtype::boolean && (i / 2).dtype() == Dtype::float32);
  auto bit = i >= 1;
  EXPECT((bit + 1).dtype() == Dtype::int32 && logical_and(bit, true).dtype() == Dtype::boolean);
  EXPECT(where(bit, i, 0).dtype() == Dtype::uint8 && where(bit, 0, i).dtype() == Dtype::uint8);
  EXPECT(b.constant(1).dtype() == Dtype::int32 && b.constant(0.1).dtype() == Dtype::float64);
  EXPECT(b.constant(1, Dtype::int8).dtype() == Dtype::int8);
}

static void constants_are_what_they_were() {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  const Floats odd = {0.1f, -1e-42f, 3.4e38f, 16777216, INFINITY, -INFINITY};
  ProgramBuilder b;
  b.output("odd", b.constant(odd, {2, 3}));
  const bool flags[] = {true, false};
  b.output("flags", b.constant(Span<const bool>(flags, 2), {2}));
  b.output("doubles", b.constant(std::vector<double>{0.1, 1e300}, {2, 1}));
  b.output("pairs", b.constant(std::vector<std::complex<float>>{{1.5f, -2}, {0, 1}}, {2}));
  b.output("none", b.constant(Floats{}, {0, 3}));
  b.output("bytes", b.constant(std::vector<int>{200}, {1}, Dtype::uint8));
  b.output("nan", b.constant(NAN));
  const auto found = b.build().run({}, 7);
  std::locale::global(before);
  EXPECT(found[0].values<float>() == odd && (found[0].shape() == Shape{2, 3}));
  EXPECT(found[1].view<bool>()[0] && !found[1].view<bool>()[1]);
  EXPECT((found[2].values<double>() == std::vector<double>{0.1, 1e300}));
  EXPECT(found[3].view<std::complex<float>>()[0] == std::complex<float>(1.5f, -2));
  EXPECT((found[4].shape() == Shape{0, 3} && found[4].dtype() == Dtype::float32));
  EXPECT(found[5].values<std::uint8_t>()[0] == 200);
  EXPECT(std::isnan(found[6].values<float>()[0]));
}

static void loops_use_what_is_around_them() {
  ProgramBuilder b;
  auto x = b.input("x", Dtype::float32, {"n"});
  auto twice = x + x;
  auto half = b.constant(0.5f);
  /* A loop within a branch within a loop, which all use values from outside. */
  auto state = b.while_loop(
      {x, b.constant(0)}, [&](const Values& s) { return s[1] < 3; },
      [&](const Values& s) {
        auto inner = b.cond(
            sum(s[0]) < sum(twice) * 10,
            [&] {
              return Values{b.while_loop(
                  {s[0], s[1]}, [&](const Values& t) { return t[1] < 3; },
                  [&](const Values& t) { return Values{t[0] + twice * half, t[1] + 1}; }, 9)[0]};
            },
            [&] { return Values{twice}; });
        return Values{inner[0], s[1] + 1};
      },
      100);
  b.output("y", state[0]);
  b.output("rounds", state[1]);
  const auto found = b.build().run({{Floats{1, 2}, {2}}}, 2);
  EXPECT((found[0].values<float>() == Floats{7, 14})); /* 1 + 3 + 2 + 1 times x */
  EXPECT(found[1].values<int>()[0] == 3);
}

static void a_body_may_give_a_value_twice_or_as_it_came() {
  ProgramBuilder b;
  auto x = b.input("x", Dtype::float32, {2});
  auto y = b.input("y", Dtype::float32, {2});
  auto turned = b.while_loop(
      {x, y, x}, [&](const Values& s) { return max(s[0]) < 5; },
      [&](const Values& s) { return Values{y, s[0], y}; }, 2);
  auto chosen = b.cond(max(x) < 5, [&] { return Values{x, x}; }, [&] { return Values{y, x}; });
  b.output("a", turned[0]);
  b.output("b", turned[1]);
  b.output("same", x);
  b.output("again", x);
  b.output("one", chosen[0]);
  b.output("two", chosen[1]);
  const auto found = b.build().run({{Floats{1, 2}, {2}}, {Floats{7, 8}, {2}}}, 6);
  const Floats of_x = {1, 2}, of_y = {7, 8};
  EXPECT(found[0].values<float>() == of_y && found[1].values<float>() == of_x);
  for (std::size_t i = 2; i < 6; i++) EXPECT(found[i].values<float>() == of_x);
}

static void shapes_of_a_state_may_be_expressions() {
  ProgramBuilder b;
  auto x = b.input("x", Dtype::float32, {"n"});
  auto thin = slice(x, {0}, {-1}, {2}), wide = pad(x, {{1, 2}});
  auto state = b.while_loop(
      {thin, wide, b.constant(0)}, [](const Values& s) { return s[2] < 2; },
      [&](const Values& s) { return Values{s[0] + thin, s[1] * wide, s[2] + 1}; }, 5);
  b.output("thin", state[0]);
  b.output("wide", state[1]);
  const auto found = b.build().run({{Floats{1, 2, 3, 4}, {4}}}, 2);
  EXPECT((found[0].values<float>() == Floats{3, 9}));
  EXPECT((found[1].values<float>() == Floats{0, 1, 8, 27, 64, 0, 0}));
}

static void sequences_are_gone_through() {
  ProgramBuilder b;
  auto rows = b.input("rows", Dtype::float32, {"n", 2});
  auto scale = b.input("scale", Dtype::float32, {});
  auto zero = b.constant(Floats{0, 0}, {2});
  const auto step = [&](const Values& carry, const Values& row) {
    auto next = carry[0] + row[0] * scale;
    return Values{next, sum(next)};
  };
  auto ahead = b.scan({zero}, {rows}, step);
  auto back = b.scan({zero}, {rows}, step, true);
  b.output("last", ahead[0]);
  b.output("sums", ahead[1]);
  b.output("sums_back", back[1]);
  const auto found = b.build().run({{Floats{1, 2, 3, 4, 5, 6}, {3, 2}}, {Floats{10}, {}}}, 3);
  EXPECT((found[0].values<float>() == Floats{90, 120}));
  EXPECT((found[1].values<float>() == Floats{30, 100, 210}));
  EXPECT((found[2].values<float>() == Floats{210, 180, 110}));
}

static void a_function_is_called_again() {
  ProgramBuilder b;
  auto x = b.input("x", Dtype::float32, {"n"});
  auto bias = b.input("bias", Dtype::float32, {});
  auto affine = b.function({x}, [&](const Values& in) { return Values{in[0] * 2 + bias}; });
  auto once = b.call(affine, {x})[0];
  b.output("y", b.call(affine, {once})[0]);
  EXPECT((run(b, {{Floats{1, 2}, {2}}, {Floats{3}, {}}}) == Floats{13, 17}));
}

static void operations_give_what_the_table_says() {
  ProgramBuilder b;
  auto x = b.input("x", Dtype::float32, {2, 3});
  auto [low, high] = minmax(x, 1);
  auto parts = split(x, {1, 2}, 1);
  EXPECT(parts.size() == 3 && split(x, 3, 1).size() == 3 && unstack(x, 2).size() == 2);
  EXPECT(svd(x).size() == 3 && svd(x, false).size() == 1);
  auto mixed = op::concatenate({low, high, reshape(parts[2], {-1})});
  b.output("y", transpose(reshape(mixed, {2, 3}), {1, 0}));
  b.output("z", op::linspace(b, 0, 1, 3));
  const auto found = b.build().run({{Floats{1, 2, 3, 4, 5, 6}, {2, 3}}}, 2);
  EXPECT((found[0].values<float>() == Floats{1, 6, 4, 3, 3, 6}));
  EXPECT((found[1].values<float>() == Floats{0, 0.5f, 1}));
}

static void what_is_wrong_is_told() {
  ProgramBuilder b, other;
  auto x = b.input("x", Dtype::float32, {"n", 3});
  auto foreign = other.input("x", Dtype::float32, {3});
  EXPECT(reason("add has values of different programs", [&] { x + foreign; }) == "conflict");
  EXPECT(reason("a value is of another program", [&] { b.output("y", foreign); }) == "conflict");
  EXPECT(reason("add has no value", [] { op::add(1, 2); }) == "missing");
  EXPECT(reason("the program has no output", [&] { b.build(); }) == "missing");
  EXPECT(reason("the name of an input is \"%1\"", [&] { b.input("%1", Dtype::int8, {}); }) ==
         "out_of_range");
  EXPECT(reason("of 2 values has a shape of 3", [&] { b.constant(Floats{1, 2}, {3}); }) ==
         "conflict");
  const auto body = [&](const Values&) { return Values{b.input("z", Dtype::int8, {})}; };
  EXPECT(reason("an input is declared in a body", [&] { b.function({x}, body); }) == "conflict");
  std::optional<Value> leaked;
  b.function({x}, [&](const Values& in) { return leaked = in[0], Values{in[0]}; });
  EXPECT(reason("used outside of it", [&] { *leaked + x; }) == "conflict");
  auto foreign_function = other.function({foreign}, [](const Values& in) { return in; });
  EXPECT(reason("a function is of another program", [&] { b.call(foreign_function, {x}); }) ==
         "conflict");
  EXPECT(reason("a function is of another program", [&] { b.call(Function(), {x}); }) ==
         "conflict");
  EXPECT(reason("split has 1000000000 results", [&] { split(x, 1000000000); }) == "limit_exceeded");
  /* The library's own words, where its answer is needed, and else as the program is made. */
  auto wrong = matmul(x, x);
  EXPECT(reason("matmul cannot take (n, 3) and (n, 3)", [&] { wrong * 2; }) == "conflict");
  b.output("y", wrong);
  EXPECT(reason("(matmul)", [&] { b.build(); }) == "conflict");
  /* What failed leaves the builder as it was. */
  ProgramBuilder next;
  auto y = next.input("y", Dtype::float32, {2});
  try {
    next.function({y}, [&](const Values&) -> Values { throw std::string("a body that throws"); });
  } catch (const std::string&) {
  }
  next.output("sum", sum(y));
  EXPECT((run(next, {{Floats{1, 2}, {2}}}) == Floats{3}));
}

static void arrays_have_operators() {
  const Array a(Floats{1, 2, 3}), b(Floats{4, 5, 6});
  EXPECT(((a + b) * 2 - 1).values<float>() == (Floats{9, 13, 17}));
  EXPECT((1 / a).values<float>() == (Floats{1, 0.5f, 1.0f / 3}));
  EXPECT((-(b / a)).values<float>() == (Floats{-4, -2.5f, -2}));
  EXPECT((a < 2).view<bool>()[0] && !(a < 2).view<bool>()[1] && (3 >= a).view<bool>()[2]);
  EXPECT((a <= b).view<bool>()[0] && !(a > b).view<bool>()[0]);
  const Array bytes(std::vector<std::uint8_t>{1, 2, 3});
  EXPECT((bytes + 1).dtype() == Dtype::uint8 && (bytes * 0.5).dtype() == Dtype::float32);
  EXPECT(reason("add cannot take", [&] { a + Array(Floats{1, 2}); }) == "conflict");
}

int main() {
  Runtime runtime;
#define SCENARIO(name) \
  name();              \
  std::puts(#name)
  SCENARIO(a_program_is_written_with_operators);
  SCENARIO(numbers_take_the_dtype_of_what_they_meet);
  SCENARIO(constants_are_what_they_were);
  SCENARIO(loops_use_what_is_around_them);
  SCENARIO(a_body_may_give_a_value_twice_or_as_it_came);
  SCENARIO(shapes_of_a_state_may_be_expressions);
  SCENARIO(sequences_are_gone_through);
  SCENARIO(a_function_is_called_again);
  SCENARIO(operations_give_what_the_table_says);
  SCENARIO(what_is_wrong_is_told);
  SCENARIO(arrays_have_operators);
  return 0;
}

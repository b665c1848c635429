/* Programs as C++ writes them. See cow_mlx.hpp. */
#ifndef COW_MLX_PROGRAM_BUILDER_HPP
#define COW_MLX_PROGRAM_BUILDER_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attributes.hpp"
#include "graph.hpp"
#include "program.hpp"
#include "value.hpp"

namespace cowmlx {

using op::Value;
using Values = std::vector<Value>;

/** A function of a program, which may be called any number of times. */
class Function {
 private:
  friend class ProgramBuilder;

  std::shared_ptr<detail::Graph> graph_;
  std::string name_;
  detail::Ids captured_;
  std::size_t results_ = 0;
};

/**
 * Writes a program: its inputs, then operations of `op` on them, and at last its outputs.
 *
 *     cowmlx::ProgramBuilder builder;
 *     auto x = builder.input("x", cowmlx::Dtype::float32, {"rows", 3});
 *     auto w = builder.parameter("w", cowmlx::Dtype::float32, {3});
 *     builder.output("loss", mean(square(matmul(x, w) - 1)));
 *     cowmlx::Program program = builder.build();
 *
 * Bodies of control flow are lambdas, which may use any value around them. What is wrong with an
 * operation is an error of build(), or before, where the library is asked for a value's dtype or
 * shape: for a number beside it, and for what bodies take. The runtime has to run then. A builder
 * and its values are for one thread at a time.
 */
class ProgramBuilder {
 public:
  /** Declare an input. */
  Value input(const std::string& name, Dtype dtype, const Dims& shape) {
    return value(graph_->declare(name, type(dtype, shape), false));
  }

  /** Declare a parameter: an input after all inputs, which a training may change.
   *  @param init_json  how it begins, such as "\"glorot_uniform\"", or empty */
  Value parameter(const std::string& name, Dtype dtype, const Dims& shape,
                  const std::string& init_json = {}) {
    return value(graph_->declare(name, type(dtype, shape), true, init_json));
  }

  /** A number of a C++ type's dtype. */
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Value constant(T number) {
    return constant(number, dtype_of<T>);
  }

  /** A number of a dtype. */
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Value constant(T number, Dtype dtype) {
    return value(graph_->constant({detail::dtype_name(dtype), "[]"}, detail::json_number(number)));
  }

  /** Values in row-major order. Large arrays are inputs rather than constants. */
  template <typename T>
  Value constant(Span<const T> values, const Shape& shape, Dtype dtype = dtype_of<T>) {
    std::size_t count = 1;
    for (std::int64_t side : shape) count *= side < 0 ? 0 : static_cast<std::size_t>(side);
    if (count != values.size()) {
      detail::Graph::refuse("a constant of " + std::to_string(values.size()) +
                                " values has a shape of " + std::to_string(count),
                            "conflict");
    }
    const Dims dims(shape.begin(), shape.end());
    if (count == 0) { /* which lists of JSON cannot say */
      return op::Emitter::node("zeros", {}, Attributes().set("shape", dims).set("dtype", dtype), 1,
                               graph_)[0];
    }
    std::string json;
    const T* next = values.data();
    append_nested(json, next, shape, 0);
    return value(graph_->constant(type(dtype, dims), json));
  }
  template <typename T>
  Value constant(const std::vector<T>& values, const Shape& shape, Dtype dtype = dtype_of<T>) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> is no memory of bools");
    return constant(Span<const T>(values.data(), values.size()), shape, dtype);
  }

  /** Write a function of values of the types that these have: `body` takes Values and returns
   * Values. */
  template <typename Body>
  Function function(const Values& like, Body body) {
    auto written = graph_->body(graph_->types(ids(like)), [&](const detail::Ids& inputs) {
      return ids(body(values(inputs)));
    });
    Function made;
    made.graph_ = graph_;
    made.captured_ = graph_->captured({&written});
    made.results_ = written.outputs.size();
    made.name_ = graph_->function(written, made.captured_);
    return made;
  }

  /** The results of a function. */
  Values call(const Function& function, const Values& inputs) {
    if (function.graph_ != graph_) {
      detail::Graph::refuse("a function is of another program", "conflict");
    }
    return control("call", inputs, function.captured_, Attributes().set("function", function.name_),
                   function.results_);
  }

  /** The results of `then()` where a bool of shape () is true, or else of `otherwise()`: Values of
   * the same types. */
  template <typename Then, typename Otherwise>
  Values cond(const Value& predicate, Then then, Otherwise otherwise) {
    auto one = graph_->body({}, [&](const detail::Ids&) { return ids(then()); });
    auto other = graph_->body({}, [&](const detail::Ids&) { return ids(otherwise()); });
    const detail::Ids captured = graph_->captured({&one, &other});
    Attributes attributes;
    attributes.set("then", graph_->function(one, captured));
    attributes.set("else", graph_->function(other, captured));
    return control("cond", {predicate}, captured, attributes, one.outputs.size());
  }

  /** The state for which `condition(state)`, a bool of shape (), is false; `body(state)` returns
   * the next. A run that takes more rounds than max_iterations fails. */
  template <typename Condition, typename Body>
  Values while_loop(const Values& state, Condition condition, Body body,
                    std::int64_t max_iterations) {
    const std::vector<detail::Type> types = graph_->types(ids(state));
    auto test = graph_->body(
        types, [&](const detail::Ids& inputs) { return ids({condition(values(inputs))}); });
    auto next =
        graph_->body(types, [&](const detail::Ids& inputs) { return ids(body(values(inputs))); });
    const detail::Ids captured = graph_->captured({&test, &next});
    Attributes attributes;
    attributes.set("condition", graph_->function(test, captured));
    attributes.set("body", graph_->function(next, captured, true));
    attributes.set("max_iterations", max_iterations);
    Values found = control("while", state, captured, attributes, state.size() + captured.size());
    found.erase(found.begin() + static_cast<std::ptrdiff_t>(state.size()), found.end());
    return found;
  }

  /** Go through the first axis of sequences: `body(carries, elements)` returns the next carries,
   * then what is stacked. Returns the last carries and the stacks. */
  template <typename Body>
  Values scan(const Values& carries, const Values& sequences, Body body, bool reverse = false) {
    std::vector<detail::Type> types = graph_->types(ids(carries));
    for (const detail::Type& each : graph_->types(ids(sequences))) {
      const std::size_t comma = each.shape.find(", "); /* no dimension has one */
      const bool more = comma != std::string::npos;
      types.push_back({each.dtype, more ? "[" + each.shape.substr(comma + 2) : "[]"});
    }
    const auto split = static_cast<std::ptrdiff_t>(carries.size());
    auto step = graph_->body(types, [&](const detail::Ids& inputs) {
      return ids(body(values({inputs.begin(), inputs.begin() + split}),
                      values({inputs.begin() + split, inputs.end()})));
    });
    const detail::Ids captured = graph_->captured({&step});
    Attributes attributes;
    attributes.set("body", graph_->function(step, captured));
    attributes.set("carries", carries.size()).set("sequences", sequences.size());
    attributes.set("reverse", reverse);
    Values inputs = carries;
    inputs.insert(inputs.end(), sequences.begin(), sequences.end());
    return control("scan", inputs, captured, attributes, step.outputs.size());
  }

  /** Make a value the program's next output. */
  void output(const std::string& name, const Value& value) {
    require_own(value);
    graph_->output(name, value.id_);
  }

  /** The program as JSON: what cow_mlx_program_create() takes. */
  std::string json() const { return graph_->json(); }

  /** Make the program. */
  Program build() const { return Program(json()); }

 private:
  friend class op::Emitter;

  static detail::Type type(Dtype dtype, const Dims& shape) {
    return {detail::dtype_name(dtype),
            detail::json_list(shape, [](const Dim& each) { return each.json(); })};
  }

  template <typename T>
  static void append_nested(std::string& json, const T*& next, const Shape& shape,
                            std::size_t dimension) {
    if (dimension == shape.size()) {
      json += detail::json_number(*next++);
      return;
    }
    for (std::int64_t i = 0; i < shape[dimension]; i++) {
      json += i == 0 ? "[" : ", ";
      append_nested(json, next, shape, dimension + 1);
    }
    json += "]";
  }

  void require_own(const Value& value) const {
    if (value.graph_ != graph_) {
      detail::Graph::refuse("a value is of another program", "conflict");
    }
  }

  Value value(detail::Id id) const { return Value(graph_, id); }

  Values values(const detail::Ids& ids) const {
    Values found;
    for (detail::Id id : ids) found.push_back(value(id));
    return found;
  }

  detail::Ids ids(const Values& values) const {
    detail::Ids found;
    for (const Value& each : values) {
      require_own(each);
      found.push_back(each.id_);
    }
    return found;
  }

  Values control(const char* operation, const Values& inputs, const detail::Ids& captured,
                 const Attributes& attributes, std::size_t results) {
    detail::Ids all = ids(inputs);
    all.insert(all.end(), captured.begin(), captured.end());
    return values(graph_->node(operation, all, attributes.json(), results));
  }

  std::shared_ptr<detail::Graph> graph_ = std::make_shared<detail::Graph>();
};

inline const std::shared_ptr<detail::Graph>& op::Emitter::graph_of(const ProgramBuilder& builder) {
  return builder.graph_;
}

}  // namespace cowmlx

#endif /* COW_MLX_PROGRAM_BUILDER_HPP */

/* Values of programs, and operators between them. See cow_mlx.hpp. */
#ifndef COW_MLX_VALUE_HPP
#define COW_MLX_VALUE_HPP

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attributes.hpp"
#include "graph.hpp"
#include "element.hpp"

namespace cowmlx {

class ProgramBuilder;

/** The operations of the table, a function each, and the values that they take and give. */
namespace op {

/** A value of a program: an input, a constant or a result. It is copied freely. */
class Value {
 public:
  /** The type of its elements; the library infers that of a result. */
  Dtype dtype() const { return detail::dtype_of_name(graph_->types({id_})[0].dtype); }

 private:
  friend class cowmlx::ProgramBuilder;
  friend class Operand;
  friend class Emitter;

  Value(std::shared_ptr<detail::Graph> graph, detail::Id id) : graph_(std::move(graph)), id_(id) {}

  std::shared_ptr<detail::Graph> graph_;
  detail::Id id_;
};

/** What an operation takes: a value, nothing where an input may be left out, or, beside a value, a
 * number, which takes that value's dtype if it fits. */
class Operand {
 public:
  Operand(const Value& value) : value_(value) {}
  Operand(const std::optional<Value>& value) : value_(value) {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Operand(T number) : number_(Number(number)) {}

 private:
  friend class Emitter;

  std::optional<Value> value_;
  std::optional<Number> number_;
};

/* Adds nodes: what all functions of operations call. */
class Emitter {
 public:
  static std::vector<Value> node(const char* operation, const std::vector<Operand>& inputs,
                                 const Attributes& attributes, std::size_t results,
                                 std::shared_ptr<detail::Graph> graph = {}) {
    const Value* last = nullptr; /* the others are conditions, if they are of other dtypes */
    for (const Operand& input : inputs) {
      if (!input.value_) continue;
      if (graph && graph != input.value_->graph_) {
        detail::Graph::refuse(std::string(operation) + " has values of different programs",
                              "conflict");
      }
      graph = input.value_->graph_;
      last = &*input.value_;
    }
    if (!graph) {
      detail::Graph::refuse(std::string(operation) + " has no value among its inputs", "missing");
    }
    detail::Ids ids;
    for (const Operand& input : inputs) {
      if (input.value_) {
        ids.push_back(input.value_->id_);
      } else {
        ids.push_back(input.number_ ? scalar(*graph, *input.number_, *last) : detail::no_value);
      }
    }
    std::vector<Value> values;
    for (detail::Id id : graph->node(operation, ids, attributes.json(), results)) {
      values.push_back(Value(graph, id));
    }
    return values;
  }

  /* The same with a number of results that the operation always has. */
  template <std::size_t... At>
  static std::array<Value, sizeof...(At)> several(std::vector<Value> values,
                                                  std::index_sequence<At...>) {
    return {values[At]...};
  }

  static const std::shared_ptr<detail::Graph>& graph_of(const ProgramBuilder& builder);

 private:
  static detail::Id scalar(detail::Graph& graph, const Number& number, const Value& beside) {
    return graph.constant({detail::dtype_name(number.beside(beside.dtype())), "[]"}, number.json());
  }
};

/* Between values and numbers, one value at least: each is the operation of the table. equal() and
 * not_equal() have no operators, which compare identities. */
inline Value operator+(const Operand& a, const Operand& b) {
  return Emitter::node("add", {a, b}, {}, 1)[0];
}
inline Value operator-(const Operand& a, const Operand& b) {
  return Emitter::node("subtract", {a, b}, {}, 1)[0];
}
inline Value operator*(const Operand& a, const Operand& b) {
  return Emitter::node("multiply", {a, b}, {}, 1)[0];
}
inline Value operator/(const Operand& a, const Operand& b) {
  return Emitter::node("divide", {a, b}, {}, 1)[0];
}
inline Value operator-(const Value& a) { return Emitter::node("negative", {a}, {}, 1)[0]; }
inline Value operator<(const Operand& a, const Operand& b) {
  return Emitter::node("less", {a, b}, {}, 1)[0];
}
inline Value operator<=(const Operand& a, const Operand& b) {
  return Emitter::node("less_equal", {a, b}, {}, 1)[0];
}
inline Value operator>(const Operand& a, const Operand& b) {
  return Emitter::node("greater", {a, b}, {}, 1)[0];
}
inline Value operator>=(const Operand& a, const Operand& b) {
  return Emitter::node("greater_equal", {a, b}, {}, 1)[0];
}

}  // namespace op

}  // namespace cowmlx

#endif /* COW_MLX_VALUE_HPP */

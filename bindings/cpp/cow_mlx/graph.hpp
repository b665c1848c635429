/* What a ProgramBuilder has gathered: values, nodes and functions. See cow_mlx.hpp. */
#ifndef COW_MLX_GRAPH_HPP
#define COW_MLX_GRAPH_HPP

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attributes.hpp"
#include "base.hpp"
#include "program.hpp"

namespace cowmlx {
namespace detail {

/* Indices into Graph::values. */
using Id = std::size_t;
using Ids = std::vector<Id>;
inline constexpr Id no_value = static_cast<Id>(-1);

/* A dtype's name, and a shape as JSON; no dtype: not known yet. */
struct Type {
  std::string dtype, shape;
};

/* Graphs within graphs: scope 0 is the program, each other one the body of a function. */
class Graph {
 public:
  /* ---------------------------------------------------------------- Values */

  Id declare(const std::string& name, Type type, bool parameter, const std::string& init = {}) {
    require_name(name, parameter ? "a parameter" : "an input");
    const Id id = add(name, std::move(type));
    std::string entry = declaration(id);
    if (!init.empty()) entry.insert(entry.size() - 1, ", \"init\": " + init);
    (parameter ? parameters_ : inputs_).push_back(entry);
    scopes_[0].declared.push_back(id);
    return id;
  }

  Id constant(const Type& type, const std::string& value) {
    Scope& scope = scopes_[scope_];
    const auto found = scope.numbers.find({type.dtype + type.shape, value});
    if (found != scope.numbers.end()) return found->second;
    const Id id = add({}, type);
    scope.constants.push_back({id, value});
    if (type.shape == "[]") scope.numbers[{type.dtype + type.shape, value}] = id;
    return id;
  }

  Ids node(std::string operation, const Ids& inputs, std::string attributes, std::size_t results) {
    constexpr std::size_t most = 50000; /* nodes and results that the library takes */
    if (results > most) {
      refuse(operation + " has " + std::to_string(results) + " results, must have at most " +
                 std::to_string(most),
             "limit_exceeded");
    }
    Node made{std::move(operation), {}, std::move(attributes), {}};
    for (Id input : inputs) made.inputs.push_back(input == no_value ? input : here(input));
    std::vector<Node>& nodes = scopes_[scope_].nodes;
    for (std::size_t i = 0; i < results; i++) {
      made.outputs.push_back(add({}, {}));
      values_.back().node = nodes.size();
    }
    nodes.push_back(made);
    return made.outputs;
  }

  /* Give a result of the program its name. */
  void output(const std::string& name, Id value) {
    require_name(name, "an output");
    value = here(value);
    if (!values_[value].name.empty() || is_constant(value)) {
      value = node("contiguous", {value}, "{}", 1)[0];
    }
    values_[value].name = name;
    outputs_.push_back(value);
  }

  /* The types of values that the scope reaches; what is not known yet, the library infers. */
  std::vector<Type> types(Ids ids) {
    for (Id& id : ids) id = here(id);
    infer(scope_, ids);
    std::vector<Type> found;
    for (Id id : ids) found.push_back(values_[id].type);
    return found;
  }

  /* ---------------------------------------------------------------- Bodies */

  /* What a function's body is while it is written, and has been once it is. */
  struct Body {
    std::size_t scope;
    Ids inputs, outputs;
  };

  /* Write a body: `write` gives its results for its inputs. */
  template <typename Write>
  Body body(const std::vector<Type>& types, Write write) {
    Body made{scopes_.size(), {}, {}};
    scopes_.emplace_back();
    scopes_.back().parent = scope_;
    struct Enter {
      std::size_t& scope;
      std::size_t before;
      ~Enter() { scope = before; }
    } enter{scope_, scope_};
    scope_ = made.scope;
    for (const Type& type : types) {
      made.inputs.push_back(add({}, type));
      scopes_[scope_].declared.push_back(made.inputs.back());
    }
    for (Id id : write(made.inputs)) {
      id = here(id);
      if (std::count(made.outputs.begin(), made.outputs.end(), id) > 0 || is_constant(id)) {
        id = node("contiguous", {id}, "{}", 1)[0]; /* an output has one name, which no other has */
      }
      made.outputs.push_back(id);
    }
    return made;
  }

  /* What bodies use of the scope around them, each once, in order. */
  Ids captured(const std::vector<Body*>& bodies) const {
    Ids found;
    for (const Body* each : bodies) {
      for (const auto& [outer, inner] : scopes_[each->scope].captures) {
        if (std::find(found.begin(), found.end(), outer) == found.end()) found.push_back(outer);
      }
    }
    return found;
  }

  /* Close a body: a function of its inputs, then of what is captured, which a state passes on. */
  std::string function(Body& body, const Ids& captured, bool state = false) {
    Scope& scope = scopes_[body.scope];
    Ids inputs = body.inputs, outputs = body.outputs;
    for (Id outer : captured) {
      const Id inner = capture(body.scope, outer);
      inputs.push_back(inner);
      if (!state) continue;
      const bool twice = std::count(outputs.begin(), outputs.end(), inner) > 0;
      if (twice) {
        const Id copy = add_to(body.scope, values_[inner].type);
        scope.nodes.push_back({"contiguous", {inner}, "{}", {copy}});
        outputs.push_back(copy);
      } else {
        outputs.push_back(inner);
      }
    }
    const std::string name = "%f" + std::to_string(functions_.size());
    std::string json = "{\"name\": \"" + name + "\", \"inputs\": " + json_list(inputs, [&](Id id) {
                         return declaration(id);
                       });
    functions_.push_back(json + ", " + inside(body.scope, outputs) + "}");
    return name;
  }

  std::string json() const {
    if (outputs_.empty()) refuse("the program has no output", "missing");
    const auto same = [](const std::string& text) { return text; };
    return "{\"inputs\": " + json_list(inputs_, same) +
           ", \"parameters\": " + json_list(parameters_, same) +
           ", \"functions\": " + json_list(functions_, same) + ", " + inside(0, outputs_) + "}";
  }

  [[noreturn]] static void refuse(const std::string& sentence, const char* reason) {
    throw Error(COW_MLX_EINVAL, "ProgramBuilder: " + sentence, reason);
  }

 private:
  struct Value {
    std::size_t scope;
    std::string name; /* empty: the builder makes one */
    Type type;
    std::size_t node = no_value; /* of its scope, which makes it */
  };
  struct Constant {
    Id id;
    std::string value;
  };
  struct Node {
    std::string operation;
    Ids inputs;
    std::string attributes;
    Ids outputs;
  };
  struct Scope {
    std::size_t parent = 0;
    Ids declared;
    std::vector<Constant> constants;
    std::map<std::pair<std::string, std::string>, Id> numbers; /* those of constants */
    std::vector<Node> nodes;
    std::vector<std::pair<Id, Id>> captures; /* of the parent, and as an input here */
  };

  /* Names that begin with % are those of values that have none. */
  void require_name(const std::string& name, const std::string& kind) const {
    if (scope_ != 0) {
      refuse(kind + " is declared in a body, must be outside of all", "conflict");
    }
    if (name.empty() || name[0] == '%') {
      refuse("the name of " + kind + " is \"" + name + "\", must be one that does not begin with %",
             "out_of_range");
    }
  }

  Id add(std::string name, Type type) {
    values_.push_back({scope_, std::move(name), std::move(type), no_value});
    return values_.size() - 1;
  }

  Id add_to(std::size_t scope, const Type& type) {
    values_.push_back({scope, {}, type, no_value});
    return values_.size() - 1;
  }

  bool is_constant(Id id) const {
    const auto& all = scopes_[values_[id].scope].constants;
    return std::any_of(all.begin(), all.end(), [&](const Constant& each) { return each.id == id; });
  }

  /* The value as this scope has it. */
  Id here(Id id) { return within(scope_, id); }

  Id within(std::size_t scope, Id id) {
    if (values_[id].scope == scope) return id;
    if (scope == 0) refuse("a value of a body is used outside of it", "conflict");
    return capture(scope, within(scopes_[scope].parent, id));
  }

  Id capture(std::size_t scope, Id outer) {
    for (const auto& [known, inner] : scopes_[scope].captures) {
      if (known == outer) return inner;
    }
    infer(scopes_[scope].parent, {outer});
    const Id inner = add_to(scope, values_[outer].type);
    scopes_[scope].captures.push_back({outer, inner});
    scopes_[scope].declared.push_back(inner);
    return inner;
  }

  /* Ask the library for the types of values of a scope, by a program of the nodes that make them.
   */
  void infer(std::size_t scope, const Ids& ids) {
    const auto known = [&](Id id) { return !values_[id].type.dtype.empty(); };
    if (std::all_of(ids.begin(), ids.end(), known)) return;
    const std::vector<Node>& nodes = scopes_[scope].nodes;
    Ids given = scopes_[0].declared; /* their dimensions have values */
    std::set<Id> seen(given.begin(), given.end());
    std::set<std::size_t> needed;
    Ids waiting = ids;
    while (!waiting.empty()) {
      const Id id = waiting.back();
      waiting.pop_back();
      if (id == no_value || !seen.insert(id).second) continue;
      if (known(id)) {
        given.push_back(id);
      } else if (needed.insert(values_[id].node).second) {
        const Ids& inputs = nodes[values_[id].node].inputs;
        waiting.insert(waiting.end(), inputs.begin(), inputs.end());
      }
    }
    std::vector<const Node*> makers;
    for (std::size_t node : needed) makers.push_back(&nodes[node]);
    Ids results; /* of all nodes, to be remembered, if these are not too many */
    for (const Node* node : makers) {
      const auto is_asked = [&](Id id) { return std::count(ids.begin(), ids.end(), id) > 0; };
      const bool take = makers.size() <= 1000 ||
                        std::any_of(node->outputs.begin(), node->outputs.end(), is_asked);
      if (take) results.insert(results.end(), node->outputs.begin(), node->outputs.end());
    }
    const auto same = [](const std::string& text) { return text; };
    const std::string part =
        "{\"inputs\": " + json_list(given, [&](Id id) { return declaration(id); }) +
        ", \"functions\": " + json_list(functions_, same) + ", " + computed(makers, results) + "}";
    read_types(Program(part).info(), results);
  }

  /* From the "outputs" of a program's info, which come in this order. */
  void read_types(const std::string& info, const Ids& results) {
    std::size_t at = info.find("\"outputs\": [");
    for (Id id : results) {
      const std::size_t dtype = info.find("\"dtype\": \"", at) + 10;
      const std::size_t end = info.find('"', dtype);
      const std::size_t shape = info.find('[', end);
      at = info.find(']', shape) + 1;
      values_[id].type = {info.substr(dtype, end - dtype), info.substr(shape, at - shape)};
    }
  }

  std::string name(Id id) const {
    return values_[id].name.empty() ? "%" + std::to_string(id) : values_[id].name;
  }

  std::string quoted(Id id) const { return id == no_value ? "null" : json_text(name(id)); }

  std::string declaration(Id id) const {
    const Type& type = values_[id].type;
    return "{\"name\": " + quoted(id) + ", \"dtype\": \"" + type.dtype +
           "\", \"shape\": " + type.shape + "}";
  }

  /* What a program or a function has besides what is declared. */
  std::string inside(std::size_t scope, const Ids& outputs) const {
    const std::string constants = json_list(scopes_[scope].constants, [&](const Constant& each) {
      return "{\"name\": " + quoted(each.id) + ", \"dtype\": \"" + values_[each.id].type.dtype +
             "\", \"value\": " + each.value + "}";
    });
    std::vector<const Node*> nodes;
    for (const Node& node : scopes_[scope].nodes) nodes.push_back(&node);
    return "\"constants\": " + constants + ", " + computed(nodes, outputs);
  }

  std::string computed(const std::vector<const Node*>& nodes, const Ids& outputs) const {
    const auto quote = [&](Id id) { return quoted(id); };
    const std::string json = json_list(nodes, [&](const Node* each) {
      return "{\"outputs\": " + json_list(each->outputs, quote) +
             ", \"op\": " + json_text(each->operation) +
             ", \"inputs\": " + json_list(each->inputs, quote) +
             ", \"attributes\": " + each->attributes + "}";
    });
    return "\"nodes\": " + json + ", \"outputs\": " + json_list(outputs, quote);
  }

  std::vector<Value> values_;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  std::size_t scope_ = 0;
  std::vector<std::string> inputs_, parameters_, functions_;
  Ids outputs_;
};

}  // namespace detail
}  // namespace cowmlx

#endif /* COW_MLX_GRAPH_HPP */

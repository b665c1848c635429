package cowmlx;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Writes a program:
 *
 * <pre>{@code
 * var b = new ProgramBuilder();
 * var x = b.input("x", Dtype.FLOAT32, "rows", 2);
 * var w = b.parameter("w", Dtype.FLOAT32, "zeros", 2);
 * b.output("y", b.matmul(x, w)); // or b.node("matmul", x, w)
 * Program program = b.build();
 * }</pre>
 */
public final class ProgramBuilder implements Operations {
  private final List<Map<String, Object>> inputs = new ArrayList<>();
  private final List<Map<String, Object>> parameters = new ArrayList<>();
  private final List<Map<String, Object>> constants = new ArrayList<>();
  private final List<Map<String, Object>> functions = new ArrayList<>();
  private final List<Map<String, Object>> nodes = new ArrayList<>();
  private final List<String> outputs = new ArrayList<>();
  private final List<Node> unknown = new ArrayList<>();
  private int count;

  /** A value of a program that is being written. */
  public final class Node {
    private String name;
    private boolean isOwn; // made by a node, without a name of the host's
    private String dtype;
    private List<?> shape;

    private Node(String name) {
      this.name = name;
    }

    private Node typed(String itsDtype, List<?> itsShape) {
      dtype = itsDtype;
      shape = itsShape;
      return this;
    }

    /** Its dtype's name, such as "float32", which the library infers. */
    public String dtype() {
      if (dtype == null) infer();
      return dtype;
    }

    /** The size of each dimension, or its name. */
    public List<?> shape() {
      if (shape == null) infer();
      return shape;
    }

    @Override
    public String toString() {
      return name;
    }
  }

  /** An input; its shape is of sizes, and of names of those that vary. */
  public Node input(String name, Dtype dtype, Object... shape) {
    return declare(inputs, new LinkedHashMap<>(), name, dtype, shape);
  }

  /** A parameter, which trainings train; {@code init} is a text or a map, or null. */
  public Node parameter(String name, Dtype dtype, Object init, Object... shape) {
    Map<String, Object> entry = new LinkedHashMap<>();
    if (init != null) entry.put("init", init);
    return declare(parameters, entry, name, dtype, shape);
  }

  /** Numbers that are part of the program: one, or lists of them. */
  public Node constant(Object value, Dtype dtype) {
    Node made = new Node(fresh());
    constants.add(Map.of("name", made.name, "dtype", nameOf(dtype), "value", Given.given(value, "value")));
    List<Object> shape = new ArrayList<>();
    for (Object inner = value; inner instanceof List<?> list && !list.isEmpty(); inner = list.get(0)) {
      shape.add(list.size());
    }
    return made.typed(nameOf(dtype), shape);
  }

  /** Applies an operation without attributes; see the other. */
  public Node node(String operation, Object... operands) {
    return node(operation, Map.of(), operands);
  }

  /**
   * Applies an operation: its value. Operands are values; numbers, which take the dtype of the last
   * value beside them; and null for one that is left out.
   */
  @Override
  public Node node(String operation, Map<String, ?> attributes, Object... operands) {
    return nodes(operation, attributes, 1, operands).get(0);
  }

  /** The same for an operation that has several results. */
  @Override
  public List<Node> nodes(String operation, Map<String, ?> attributes, int results,
      Object... operands) {
    Given.given(operation, "operation");
    Given.given(attributes, "attributes");
    Node beside = null;
    for (Object each : Given.given(operands, "operands")) if (each instanceof Node value) beside = value;
    List<String> names = new ArrayList<>();
    for (Object each : operands) names.add(operand(operation, each, beside));
    List<Node> values = new ArrayList<>();
    for (int i = 0; i < results; i++) {
      Node value = new Node(fresh());
      value.isOwn = true;
      values.add(value);
    }
    Map<String, Object> node = new HashMap<>();
    node.put("op", operation);
    node.put("inputs", names);
    node.put("attributes", attributes);
    node.put("outputs", new ArrayList<>(values.stream().map(Node::toString).toList()));
    nodes.add(node);
    unknown.addAll(values);
    return values;
  }

  /** A function in JSON for operations that take one, such as while; its name is in it. */
  public void function(Map<String, Object> function) {
    functions.add(Given.given(function, "function"));
  }

  /** Names a result of the program. */
  public void output(String name, Node value) {
    requireName(name);
    Node own = Given.given(value, "value").isOwn ? value : node("contiguous", value);
    for (Map<String, Object> node : nodes) {
      for (String key : List.of("inputs", "outputs")) {
        names(node, key).replaceAll(each -> own.name.equals(each) ? name : each);
      }
    }
    own.name = name;
    own.isOwn = false;
    outputs.add(name);
  }

  /** The program's JSON. */
  public String json() {
    return json(outputs);
  }

  /** The program. */
  public Program build() {
    if (outputs.isEmpty()) {
      throw new CowMlxException(Status.EINVAL, "the program has no output; name one by output(name, value)",
          "missing");
    }
    return Program.of(json());
  }

  private String json(List<String> results) {
    return Json.write(Map.of("inputs", inputs, "parameters", parameters, "constants", constants,
        "functions", functions, "nodes", nodes, "outputs", results));
  }

  private Node declare(List<Map<String, Object>> to, Map<String, Object> entry, String name,
      Dtype dtype, Object... shape) {
    requireName(name);
    Given.given(shape, "shape");
    entry.putAll(Map.of("name", name, "dtype", nameOf(dtype), "shape", Arrays.asList(shape)));
    to.add(entry);
    return new Node(name).typed(nameOf(dtype), Arrays.asList(shape));
  }

  private String operand(String operation, Object operand, Node beside) {
    if (operand == null) return null;
    if (operand instanceof Node value) return value.name;
    if (!(operand instanceof Number number) || beside == null) {
      throw new CowMlxException(Status.EINVAL,
          "an input of \"" + operation + "\" is " + operand + ", must be a value", "wrong_type");
    }
    boolean isWhole = number.doubleValue() == Math.rint(number.doubleValue());
    boolean isFloat = beside.dtype().matches(".*(float|complex).*");
    Dtype fitting = isFloat || (isWhole && !beside.dtype().equals("bool"))
        ? Dtype.valueOf(beside.dtype().toUpperCase()) : isWhole ? Dtype.INT32 : Dtype.FLOAT32;
    return constant(isFloat || !isWhole ? number : (Object) number.longValue(), fitting).name;
  }

  /** Asks the library for all types that are not known. */
  private void infer() {
    try (Program asked = Program.of(json(unknown.stream().map(Node::toString).toList()))) {
      List<Map<String, Object>> inferred = Json.objects(asked.info(Map.of()).get("outputs"));
      for (int i = 0; i < inferred.size(); i++) {
        unknown.get(i).typed((String) inferred.get(i).get("dtype"), (List<?>) inferred.get(i).get("shape"));
      }
    }
    unknown.clear();
  }

  @SuppressWarnings("unchecked")
  private static List<String> names(Map<String, Object> node, String key) {
    return (List<String>) node.get(key);
  }

  private String fresh() {
    return "%" + count++;
  }

  private static String nameOf(Dtype dtype) {
    return Given.given(dtype, "dtype").name().toLowerCase();
  }

  private static void requireName(String name) {
    if (Given.given(name, "name").isEmpty() || name.startsWith("%")) {
      throw new CowMlxException(Status.EINVAL, "the name is \"" + name
          + "\", must be one that does not begin with %", "out_of_range");
    }
  }
}

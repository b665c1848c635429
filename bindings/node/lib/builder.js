// Programs written as calls: values, and the operations that make them.
import { CowMlxError, by, camel, checked, refuse } from "./errors.js";
import { Program } from "./program.js";

/** A value of a program that is being written. */
export class Value {
  /** Its name in the program; "%..." if it was given none. */
  name;
  type;

  /**
   * @param {ProgramBuilder} builder
   * @param {string} name
   * @param {{dtype: string, shape: (number | string)[]}} [type]
   */
  constructor(builder, name, type) {
    this.builder = builder;
    this.name = name;
    this.type = type;
  }

  /** Such as "float32"; the library infers it. */
  get dtype() {
    return this.builder.typeOf(this).dtype;
  }

  /** The size of each dimension, or its name. */
  get shape() {
    return this.builder.typeOf(this).shape;
  }
}

/**
 * Writes a program:
 *
 *     const b = new ProgramBuilder();
 *     const x = b.input("x", "float32", ["rows", 2]);
 *     const w = b.parameter("w", "float32", [2], { init: "zeros" });
 *     b.output("y", op.matmul(x, w)); // or b.node("matmul", [x, w])
 *     const program = b.build();
 */
export class ProgramBuilder {
  #inputs = [];
  #parameters = [];
  #constants = [];
  #functions = [];
  #nodes = [];
  #outputs = [];
  #own = new Set(); // names of values that can be renamed
  #unknown = [];
  #count = 0;

  /**
   * An input.
   * @param {string} name
   * @param {string} dtype
   * @param {(number | string)[]} shape  sizes, and names of those that vary
   */
  input(name, dtype, shape) {
    this.#inputs.push({ name: named(name, "input"), dtype, shape });
    return new Value(this, name, { dtype, shape });
  }

  /**
   * A parameter, which trainings train.
   * @param {string} name
   * @param {string} dtype
   * @param {(number | string)[]} shape
   * @param {{init?: string | object}} [options]
   */
  parameter(name, dtype, shape, options) {
    this.#parameters.push({ name: named(name, "parameter"), dtype, shape, ...options });
    return new Value(this, name, { dtype, shape });
  }

  /**
   * Numbers that are part of the program: one, or lists of them.
   * @param {number | any[]} value
   */
  constant(value, dtype = "float32") {
    const name = this.#fresh();
    this.#constants.push({ name, dtype, value });
    const shape = [];
    for (let inner = value; Array.isArray(inner); [inner] = inner) shape.push(inner.length);
    return new Value(this, name, { dtype, shape });
  }

  /**
   * Apply an operation: its value.
   * @param {string} operation
   * @param {(Value | number | null)[]} inputs  a number takes the dtype of the last value beside it;
   *     null stands for an input that is left out
   * @param {object} [attributes]
   * @returns {Value}
   */
  node(operation, inputs, attributes) {
    return this.nodes(operation, inputs, attributes, 1)[0];
  }

  /**
   * The same for an operation that has several results.
   * @param {string} operation
   * @param {(Value | number | null)[]} inputs
   * @param {object} [attributes]
   * @param {number} [results]
   * @returns {Value[]}
   */
  nodes(operation, inputs, attributes = {}, results = 1) {
    const beside = inputs.findLast?.((each) => each instanceof Value)
      ?? [...inputs].reverse().find((each) => each instanceof Value);
    const names = inputs.map((each) => this.#operand(operation, each, beside));
    const outputs = Array.from({ length: results }, () => this.#fresh());
    this.#nodes.push({ op: operation, inputs: names, attributes, outputs });
    const values = outputs.map((name) => new Value(this, name));
    this.#unknown.push(...values);
    outputs.forEach((name) => this.#own.add(name));
    return values;
  }

  /**
   * A function for operations that take one, such as while_loop: `write` is given a builder and a
   * value for each of `types`, and returns the results.
   * @param {{dtype: string, shape: (number | string)[]}[]} types
   * @param {(builder: ProgramBuilder, ...values: Value[]) => Value | Value[]} write
   * @returns {string}  its name, for an attribute
   */
  function(types, write) {
    const inner = new ProgramBuilder();
    inner.#functions = this.#functions; // so that each has a name of the program's
    const values = types.map(({ dtype, shape }, i) => inner.input(`x${i}`, dtype, shape));
    [write(inner, ...values)].flat().forEach((value, i) => inner.output(`y${i}`, value));
    const { parameters, functions, ...body } = inner.json();
    if (parameters.length) refuse("function", "a parameter", "inputs alone");
    const name = `%f${functions.length}`;
    functions.push({ name, ...body });
    return name;
  }

  /**
   * Name a result of the program.
   * @param {string} name
   * @param {Value} value
   */
  output(name, value) {
    named(name, "output");
    const own = this.#own.has(value.name) ? value : this.node("contiguous", [value]);
    for (const node of this.#nodes) {
      for (const list of [node.inputs, node.outputs]) list.splice(0, list.length, ...renamed(list, own.name, name));
    }
    this.#own.delete(own.name);
    own.name = name;
    this.#outputs.push(name);
  }

  /**
   * The program's JSON, as an object.
   * @returns {any}
   */
  json() {
    return {
      inputs: this.#inputs, parameters: this.#parameters, constants: this.#constants,
      functions: this.#functions, nodes: this.#nodes, outputs: this.#outputs,
    };
  }

  /** The program. */
  build() {
    if (this.#outputs.length === 0) {
      throw new CowMlxError("EINVAL", "the program has no output; name one by output(name, value)", "missing");
    }
    return Program.create(this.json());
  }

  /**
   * The dtype and shape of a value, as the library infers them.
   * @param {Value} value
   * @returns {{dtype: string, shape: (number | string)[]}}
   */
  typeOf(value) {
    if (!value.type) {
      const unknown = this.#unknown.splice(0);
      const asked = Program.create({ ...this.json(), outputs: unknown.map(({ name }) => name) });
      asked.info().outputs.forEach(({ dtype, shape }, i) => (unknown[i].type = { dtype, shape }));
      asked.close();
    }
    return value.type;
  }

  #fresh() {
    return `%${this.#count++}`;
  }

  #operand(operation, operand, beside) {
    if (operand === null || operand === undefined) return null;
    if (operand instanceof Value) {
      if (operand.builder !== this) refuse(`an input of "${operation}"`, operand.name, "a value of this program");
      return operand.name;
    }
    if (typeof operand !== "number" || !beside) refuse(`an input of "${operation}"`, operand, "a value");
    const { dtype } = this.typeOf(beside);
    const whole = Number.isInteger(operand);
    const isFloat = dtype.includes("float") || dtype.includes("complex");
    const fitting = isFloat || (whole && dtype !== "bool") ? dtype : whole ? "int32" : "float32";
    return this.constant(operand, fitting).name;
  }
}

const renamed = (list, from, to) => list.map((each) => (each === from ? to : each));

function named(name, kind) {
  if (typeof name !== "string" || name === "" || name[0] === "%") {
    refuse(`the name of an ${kind}`, name, "a text that does not begin with %");
  }
  return name;
}

/** @typedef {Value | number | null | undefined} Operand */

/** For the functions of operations: the builder is that of their values. */
export const addNode = (operation, inputs, attributes) => addNodes(operation, inputs, attributes, 1)[0];

/** The same for those with several results. */
export function addNodes(operation, inputs, attributes, results) {
  try {
    const value = Array.isArray(inputs) && inputs.find((each) => each instanceof Value);
    if (!value) refuse("inputs", inputs, "values of a program, one at least", "wrong_type");
    return value.builder.nodes(operation, inputs, attributes, results);
  } catch (error) {
    throw by(`op.${camel(operation)}`, error);
  }
}

/** The same where no value is taken. */
export function makeNode(operation, builder, inputs, attributes) {
  try {
    if (!(builder instanceof ProgramBuilder)) refuse("builder", builder, "a ProgramBuilder", "wrong_type");
    return builder.node(operation, inputs, attributes);
  } catch (error) {
    throw by(`op.${camel(operation)}`, error);
  }
}

checked(ProgramBuilder.prototype, "ProgramBuilder", {
  input: "value, dtype, shape", parameter: "value, dtype, shape, options?{init}", constant: "numbers, dtype?",
  node: "operation, list, attributes?", nodes: "operation, list, attributes?, results?",
  function: "types, write", output: "value, node", json: "", build: "", typeOf: "node",
});

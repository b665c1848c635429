// Adds a node with each operation's function, and says what the program has: operations.mjs, with a
// list of {name, inputs, attributes, results} on its standard input.
import { readFileSync } from "node:fs";
import { ProgramBuilder, op } from "cowmlx";

const camel = (name) => (name === "var" ? "var_" : name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase()));

const nodes = JSON.parse(readFileSync(0, "utf8")).map(({ name, inputs, attributes, results, variadic }) => {
  const builder = new ProgramBuilder();
  const given = inputs.map((each, i) => each && builder.input(`x${i}`, each, []));
  const operands = variadic ? [given] : inputs.length ? given : [builder];
  op[camel(name)](...operands, ...(attributes ? [attributes] : []), ...(results ? [results] : []));
  return builder.json().nodes[0];
});
console.log(JSON.stringify(nodes));

// Says as JSON what programs do in Node: programs.mjs LIBRARY
import * as cow from "cowmlx";
import { NDArray, Program, ProgramBuilder, Runtime, Training, op } from "cowmlx";

cow.useLibrary(process.argv[2]);
const runtime = new Runtime({ threads: 1 });
const said = {};
const failed = async (run) => {
  try {
    await run();
    return null;
  } catch (error) {
    return error.reason ?? error.name;
  }
};
const number = { dtype: "float32", shape: [] };
const arrays = () => cow.runtimeInfo().handles.array;
const taken = ([array]) => {
  const item = array.item();
  array.close();
  return item;
};

// Adds 1 below 3 and 2 above it, until the end is reached.
const builder = new ProgramBuilder();
const states = ["x", "end"].map((name) => builder.input(name, "float32", []));
const condition = builder.function([number, number], (_, x, end) => op.less(x, end));
const body = builder.function([number, number], (inner, x, end) => {
  const then = inner.function([number], (_, y) => op.add(y, 1));
  const other = inner.function([number], (_, y) => op.add(y, 2));
  return [inner.node("cond", [op.less(x, 3), x], { then, else: other }), end];
});
builder.output("y", builder.nodes("while", states, { condition, body, max_iterations: 2 ** 31 - 1 }, 2)[0]);
const program = builder.build();
said.nested = taken(program.runSync([0, 8]));

// A run that is aborted beside another one, and alone. Adding 2 in float32 never reaches its end.
const run = (end, signal) => program.run([NDArray.from(0), end], { donate: [0], signal });
const begun = async (before) => {
  while (arrays() > before) await new Promise(setImmediate); // a run that begins takes what is donated
};
for (const beside of [true, false]) {
  const controller = new AbortController(), before = arrays();
  const aborted = failed(() => run(1e9, controller.signal));
  const other = beside ? run(6001).then(taken, (error) => error.message) : null;
  await begun(before);
  controller.abort();
  said[beside ? "beside" : "alone"] = [await other, await aborted];
}

const line = Program.create({
  inputs: ["x", "y"].map((name) => ({ name, dtype: "float32", shape: [1] })),
  parameters: [{ name: "w", dtype: "float32", shape: [1], init: "zeros" }],
  nodes: [{ op: "multiply", inputs: ["x", "w"], outputs: ["z"] }, { op: "add", inputs: ["z", "y"], outputs: ["s"] },
    { op: "sum", inputs: ["s"], outputs: ["loss"] }],
  outputs: ["loss"],
});
const training = Training.create(line);
const closed = NDArray.from([1]);
closed.close();
for (const [name, second] of Object.entries({ twice: undefined, closed })) {
  const first = NDArray.from([1]), before = arrays();
  const reason = await failed(() => training.fit({ steps: 1, nextBatch: () => [first, second ?? first] }));
  first.close();
  said[name] = [reason, before - arrays()];
}

const start = (initial) => failed(() => Training.create(line, initial));
said.lists = [await start({ initialNames: [], initialArrays: [NDArray.from([1])] }),
  await start({ initialNames: ["w"], initialArrays: [] }), await start({ initialNames: ["w"] })];
runtime.close();
console.log(JSON.stringify(said));

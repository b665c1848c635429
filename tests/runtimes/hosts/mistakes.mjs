// Tells what mistakes give: mistakes.mjs LIBRARY MODEL. Each line is [call, argument given, error].
import * as cow from "cowmlx";

const { Context, CowMlxError, Media, Model, NDArray, Program, ProgramBuilder, Runtime, Training } = cow;
const [library, folder] = process.argv.slice(2);
const told = (call, given, error) => console.log(JSON.stringify([call, given, error === null ? null
  : error instanceof CowMlxError ? { status: error.status, reason: error.reason, operation: error.operation, message: error.message,
    argument: error.details.argument ?? null }
  : `${error?.constructor?.name}: ${error?.message}`]));
async function tried(call, given, run) {
  try {
    const result = await run();
    for await (const _ of result?.[Symbol.asyncIterator] ? result : []) break;
    told(call, given, null);
  } catch (error) {
    told(call, given, error);
  }
}

await tried("useLibrary", "5", () => cow.useLibrary(5));
await tried("useLibrary", "nothing", () => cow.useLibrary());
cow.useLibrary("/nope.so");
await tried("new Runtime", "/nope.so", () => new Runtime());
await tried("Model.load", "/nope.so", () => Model.load(folder));
cow.useLibrary("libc.so.6");
await tried("runtimeInfo", "libc", () => cow.runtimeInfo());
cow.useLibrary(library);
await tried("Model.load", "no runtime", () => Model.load(folder));
await tried("NDArray.from", "no runtime", () => NDArray.from([1]));
await tried("new Runtime", "5", () => new Runtime(5));
await tried("new Runtime", "{thread}", () => new Runtime({ thread: 5 }));
const runtime = new Runtime({ threads: 1 });
await tried("useLibrary", "/nope.so", () => cow.useLibrary("/nope.so"));
await tried("Model.load", "no folder", () => Model.load("/nope"));
const model = await Model.load(folder);
const messages = [{ role: "user", content: "Hi" }];
const few = { maxTokens: 1 };
const context = () => model.context();
const program = Program.create({ inputs: [{ name: "x", dtype: "float32", shape: [1] }], parameters: [],
  nodes: [{ op: "square", inputs: ["x"], outputs: ["y"] }], outputs: ["y"] });
const line = () => Program.create({ inputs: [{ name: "x", dtype: "float32", shape: [1] }],
  parameters: [{ name: "w", dtype: "float32", shape: [1], init: "zeros" }],
  nodes: [{ op: "multiply", inputs: ["x", "w"], outputs: ["y"] }, { op: "sum", inputs: ["y"], outputs: ["loss"] }],
  outputs: ["loss"] });
const builder = () => {
  const made = new ProgramBuilder();
  made.x = made.input("x", "float32", [1]);
  return made;
};
const array = NDArray.from([1, 2]), tokens = [1, 2, 3];

// A call of each method that is right; its arguments are then replaced, one at a time.
const CALLS = [
  [Model, "Model", { load: ["/nope", {}], loadSync: ["/nope", {}], inspect: [folder, {}] }],
  [() => model, "Model", { info: [], tokenize: ["a", {}], tokenizeAsync: ["a", {}], detokenize: [tokens, {}],
    isEnd: [1], chatPrompt: [messages, {}], embed: [["a"], {}], rank: ["a", ["b"], { prompt: "{query} {document}" }],
    classify: ["a"], infillPrompt: ["a", "b"], mediaTokens: [8, 8], sleep: [], context: [{}], contextAsync: [{}], adapter: ["/nope", 1] }],
  [context, "Context", { info: [], begin: [tokens, few], next: [{}], nextSync: [], generate: [tokens, few],
    generateText: [tokens, () => true, few], chat: [messages, few], chatEvents: [messages, () => true, few],
    poll: [0], pollSync: [0], wakeFd: [], cancel: [], fork: [], reset: [], tokens: [], trimEnd: [0, {}],
    trimFront: [0, {}], checkpoint: [], rewind: [context().checkpoint()], save: ["/nope/nope", {}],
    load: ["/nope", {}], setAdapter: [null], logprobs: [], logits: [], stats: [],
    beginEmbeddings: [[-1], array, few], saveArray: [{}], loadArray: [array, {}], promptLogprobs: [tokens, { top: 1 }],
    promptLogits: [tokens, [0], {}], hiddenStates: [tokens, {}], perplexity: ["a", {}] }],
  [NDArray, "NDArray", { from: [[1], {}], apply: ["add", [array, array], {}] }],
  [() => NDArray.from([1, 2]), "NDArray", { wait: [0], read: [new Float32Array(2)], values: [], view: [() => 1], item: [] }],
  [Program, "Program", { create: [{}], load: ["/nope", {}] }],
  [Media, "Media", { fromPixels: [new Uint8Array(3), { width: 1, height: 1 }], fromFile: [new Uint8Array(3)] }],
  [() => Media.fromPixels(new Uint8Array(3), { width: 1, height: 1 }), "Media", { info: [] }],
  [() => line(), "Program", { info: [{}], derive: [{}], gradient: ["loss", ["w"], {}], vectorize: [{ x: 0 }, "rows"],
    bind: [{ w: NDArray.from([1]) }], run: [[[1], [1]], {}], runSync: [[[1], [1]], {}], submit: [[[1], [1]], {}],
    cancel: [] }],
  [Training, "Training", { create: [line(), {}], forModel: [model, {}] }],
  [() => Training.create(line(), {}), "Training", { step: [[[1]], {}], stepSync: [[[1]]], fit: [{ steps: 1 }],
    evaluate: [{}], parameter: ["w"], info: [], save: ["/nope/nope"], load: ["/nope"], adapter: [],
    export: ["/nope/nope", {}], cancel: [] }],
  [builder, "ProgramBuilder", { input: ["y", "float32", [1]], parameter: ["y", "float32", [1], {}],
    constant: [1, "float32"], node: ["square", [], {}], nodes: ["square", [], {}, 1], function: [[], () => []],
    output: ["y", null], json: [], build: [], typeOf: [null] }],
  [cow, "", { loadArrays: ["/nope", ["a"]], saveArrays: ["/nope/nope", { array }], arraysInfo: ["/nope"],
    runtimeInfo: [], trimMemory: [], version: [], abiVersion: [], operationsInfo: [] }],
];
// Methods of every object take nothing; those of Value are an op's.
const OTHERS = new Set(["constructor", "close", "closeAsync", "release"]);
for (const [name, made] of Object.entries(cow)) {
  const tried = new Set(CALLS.filter(([, noun]) => noun === name).flatMap(([, , calls]) => Object.keys(calls)));
  const methods = [made, made?.prototype].flatMap((each) => (each && tried.size ? Object.getOwnPropertyNames(each) : []));
  const missing = methods.filter((each) => !OTHERS.has(each) && !tried.has(each)
    && typeof Object.getOwnPropertyDescriptor(made.prototype, each)?.value === "function");
  for (const each of missing) told(`${name}.${each}`, "not tried", "no call of it is made");
}
const closed = model.context();
closed.close();
const cycle = {};
cycle.cycle = cycle;
const WRONG = [null, 5, -1.5, NaN, "=", "a\0b", true, [5], [null], {}, { nope: 1 }, cycle, 7n, () => 0, Symbol("s"),
  closed, new Date(), new DataView(new ArrayBuffer(8))];
const names = (value) => (typeof value === "symbol" ? "symbol" : typeof value === "bigint" ? "7n" : value === cycle
  ? "cycle" : value === closed ? "closed" : typeof value === "function" ? "function" : value?.constructor?.name === "Object"
    || Array.isArray(value) || typeof value !== "object" ? `${JSON.stringify(value)}` : value?.constructor?.name ?? "null");
const isOwn = (owner, name) => owner === cow || Object.hasOwn(owner, name);
for (const [owner, noun, calls] of CALLS) {
  for (const [name, right] of Object.entries(calls)) {
    const call = noun ? `${noun}.${name}` : name;
    // A class with static methods, a module, or what makes an object.
    const subject = () => (isOwn(owner, name) ? owner : owner());
    const made = (given) => tried(call, given.map(names).join(), async () => subject()[name](...given));
    await made([...right, "more"]);
    for (let at = 0; at < right.length; at += 1) {
      for (const wrong of WRONG) {
        const given = [...right];
        given[at] = wrong;
        await made(given);
      }
    }
    if (!isOwn(owner, name)) {
      const gone = owner();
      if (gone !== model && gone.close) {
        gone.close();
        await tried(call, "closed", async () => gone[name](...right));
      }
    }
  }
}

const made = builder();
for (const [name, run] of Object.entries(cow.op)) { // those that take a builder, and those that take values
  const call = `op.${name}`;
  for (const wrong of [null, 5, "x", {}, []]) await tried(call, names(wrong), () => run(wrong));
  await tried(call, "attributes", () => run(made.x, made.x, made.x, made.x, made.x, made.x));
}

// What users have tried, in words.
const c = context();
const said = async (run) => {
  try {
    const result = await run();
    for await (const _ of result?.[Symbol.asyncIterator] ? result : []) break;
    return null;
  } catch (error) {
    return error;
  }
};
const USERS = {
  stop: () => c.begin(tokens, { stop: "=" }), embed: () => model.embed("text"),
  tools: () => c.chat(messages, { tools: [] }), third: () => c.chat(messages, {}, { tools: [] }),
  topP: () => c.begin(tokens, { topP: 2 }), topQ: () => c.begin(tokens, { topQ: 2 }),
  progress: () => Model.load(folder, { progress: 5 }), inspect: () => Model.inspect(folder, { kvbits: 4 }),
  closed: () => closed.info(), signal: () => c.next({ signal: 5 }), adapter: () => c.setAdapter(model),
  nan: () => NDArray.from([1, "a"]), missing: () => program.run({}), extra: () => program.run({ x: [1], y: [1] }),
};
for (const [name, run] of Object.entries(USERS)) told(name, "", await said(run));
runtime.close();

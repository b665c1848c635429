// Says as JSON what each kind of call gives: everything.mjs LIBRARY MODEL FOLDER
import * as cow from "cowmlx";
import { Media, Model, NDArray, Program, ProgramBuilder, Runtime, Training, op } from "cowmlx";

const [library, folder, scratch] = process.argv.slice(2);
cow.useLibrary(library);
const said = {};
const close = (number) => Math.round(number * 1e4) / 1e4;
const caught = async (run) => {
  try {
    await run();
    return "nothing";
  } catch (error) {
    return error;
  }
};

const logged = [];
const runtime = new Runtime({ log: (level, message) => logged.push([level, message]) });
said.versions = [cow.version() === cow.VERSION, cow.abiVersion(), cow.runtimeInfo().device];

const stages = new Set();
const model = await Model.load(folder, { progress: (_, stage) => stages.add(stage) });
said.stages = stages.has("weights");
said.inspected = (await Model.inspect(folder)).architecture === model.info().architecture;
const prompt = model.tokenize("Once upon a time", { addSpecial: true });
said.tokens = [...prompt];
said.text = model.detokenize(prompt, { skipSpecial: true });
said.ends = [model.isEnd(prompt[0]), model.isEnd(model.info().end_tokens[0].id)];
const vectors = await model.embed(["fox", "frog"], { normalize: false, pooling: "last" });
said.embedded = vectors.map((vector) => [vector.length, close(vector[0])]);
said.none = (await model.embed([])).length;
const asked = { prompt: "{query} {document}", yes: "a", no: "b", normalize: false };
const scores = await model.rank("a fox", ["fox", "frog"], asked);
said.ranked = scores.map((row) => [row.length, close(row[0])]);

const context = model.context({ maxTokens: 512 });
const sampling = { maxTokens: 24, temperature: 0.8, seed: 7n, logprobs: 2, 
  biasTokens: [prompt[1]], biasValues: [-1], stop: ["\n\n", "zebra"] };
const pieces = [];
for await (const piece of context.generate(prompt, sampling)) {
  pieces.push(piece);
  if (pieces.length === 1) said.candidates = context.logprobs().length;
}
said.generated = pieces.map((piece) => piece.token);
said.finish = context.finish;
said.logprob = close(pieces[0].logprob);
said.logits = context.logits().length === model.info().vocabulary_size;
const fresh = model.context();
const scored = await fresh.promptLogprobs(prompt, { top: 2 });
const logits = await fresh.promptLogits(prompt, [1, 0]);
const states = await fresh.hiddenStates(prompt);
const whole = await fresh.perplexity("Once upon a time");
const width = model.info().embedding_width;
const zeros = NDArray.from({ data: new Float32Array(width), shape: [1, width] });
await fresh.beginEmbeddings([-1, ...prompt.slice(1)], zeros, { maxTokens: 0 });
said.scored = [Array.from(fresh.tokens()), scored.length, scored[1].length, close(scored[1][0].logprob),
  logits.length * logits[0].length, states.length * states[0].length,
  close(whole.perplexity / 1e4), whole.scored];
const parts = [];
const stats = await context.generateText(prompt, (part) => parts.push(part), { maxTokens: 24 });
said.greedy = parts.join("");
said.stats = [stats.promptTokens, stats.generatedTokens, context.stats().generatedTokens];

const messages = [{ role: "user", content: "What is 3 + 4?" }];
said.prompt = [...model.chatPrompt(messages)];
const events = [];
for await (const event of context.chat(messages, { maxTokens: 40 })) events.push(event);
said.answer = events.filter((each) => each.kind === "text").map((each) => each.text).join("");
said.end = events.at(-1).finish;

await context.begin(prompt, { maxTokens: 4 });
said.polled = [await context.poll(), context.pollSync(), context.wakeFd() > 0, context.nextSync().token > 0];
context.reset();
await context.begin(prompt, { maxTokens: 0 });
const held = context.checkpoint(), fork = context.fork();
said.trimmed = [await context.trimEnd(2), await context.trimFront(1), context.tokens().length];
context.rewind(held);
await context.save(`${scratch}/context.safetensors`);
await fork.load(`${scratch}/context.safetensors`);
said.held = [context.tokens().length, fork.tokens().length, context.info().tokens];
for (const each of [held, fork]) each.close();

const refused = await caught(() => context.begin(prompt, { topP: 1.5 }));
said.refused = [refused.status, refused.reason, refused.details.accepted];
said.unknown = (await caught(() => context.begin(prompt, { topQ: 1 }))).reason;
said.thrown = (await caught(() => context.generateText(prompt, () => { throw new Error("mine"); }))).message;
const controller = new AbortController();
said.canceled = (await caught(async () => {
  for await (const _ of context.generate(prompt, { signal: controller.signal })) controller.abort();
})).name;

const array = NDArray.from([[1, 2, 3], [4, 5, 6]]);
const [sum] = NDArray.apply("add", [array, array]);
const turned = NDArray.from({ data: Int32Array.of(1, 2, 3, 4, 5, 6), shape: [3, 2], strides: [1, 3] });
await cow.saveArrays(`${scratch}/arrays.safetensors`, { sum, turned });
const loaded = await cow.loadArrays(`${scratch}/arrays.safetensors`);
said.arrays = [sum.dtype, sum.shape, [...(await sum.values())], [...loaded.turned.read()], loaded.turned.dtype];
said.file = Object.keys((await cow.arraysInfo(`${scratch}/arrays.safetensors`)).tensors).sort();
said.viewed = sum.view((elements) => [...elements]);
said.strides = (await caught(() => NDArray.from({ data: Int32Array.of(1), shape: [1, 1], strides: [1] }))).reason;
said.operations = cow.operationsInfo().length;

const builder = new ProgramBuilder();
const x = builder.input("x", "float32", ["rows", 3]);
const y = builder.input("y", "float32", ["rows"]);
const w = builder.parameter("w", "float32", [3], { init: "zeros" });
const error = op.subtract(builder.node("matmul", [x, w]), y);
builder.output("loss", op.mean(op.multiply(op.square(error), 2), { axis: [0] }));
const program = builder.build();
const gradient = program.gradient("loss", ["w"], { value: true });
const numbers = { x: array, y: Float32Array.of(1, -1), w: Float32Array.of(0.5, 0, -0.5) };
const slopes = await gradient.run(numbers);
said.gradient = Object.values(slopes).map((each) => [...each.read()].map(close)).flat();
const bound = program.bind({ w: NDArray.from(numbers.w) });
const submitted = bound.submit([numbers.x, numbers.y]);
said.bound = [await submitted[0].wait(), close(submitted[0].item())];
said.program = program.info().outputs[0].shape;
said.shape = (await caught(() => program.run([array, Float32Array.of(1), numbers.w]))).reason;

const line = Program.create({
  inputs: [{ name: "x", dtype: "float32", shape: ["rows", 1] }, { name: "y", dtype: "float32", shape: ["rows"] }],
  parameters: [{ name: "w", dtype: "float32", shape: [1], init: "zeros" }],
  nodes: [{ name: "z", op: "matmul", inputs: ["x", "w"] }, { name: "loss", op: "mse_loss", inputs: ["z", "y"] }],
  outputs: ["loss"],
});
const training = Training.create(line, { optimizer: { name: "sgd", learning_rate: 0.2 } });
const step = await training.step([{ data: [1, 2], shape: [2, 1] }, Float32Array.of(3, 6)]);
said.step = [step.kind, step.step, step.loss];
const kinds = [];
const nextBatch = (at) => {
  const far = at % 3;
  return [NDArray.from({ data: [1, far], shape: [2, 1] }), NDArray.from([3, 3 * far])];
};
await training.fit({ steps: 40, nextBatch, onEvent: (event) => kinds.push(event.kind) });
said.fit = [kinds.length, kinds.at(-1), Math.abs(training.parameter("w").item() - 3) < 0.01];
await training.save(`${scratch}/training`);
await training.load(`${scratch}/training`);
said.resumed = training.info().step;
said.evaluated = (await training.evaluate({ inputs: [NDArray.from({ data: [1], shape: [1, 1] }), NDArray.from([3])] })).validationLoss < 0.01;

const tuning = await Training.forModel(model, { fineTune: { rank: 2, num_layers: 1 } });
await tuning.fit({ steps: 1, lines: '{"text": "The fox is red."}', batchSize: 1 });
const adapter = tuning.adapter();
context.setAdapter(adapter);
await tuning.export(`${scratch}/adapter`);
context.setAdapter(model.adapter(`${scratch}/adapter`, 0.5));
said.adapted = context.info().adapter !== null;
const image = Media.fromPixels(new Uint8Array([1, 2, 3, 4, 5, 6]), { width: 2, height: 1 });
const about = image.info();
said.image = [about.width, about.height, about.channels, /^[0-9a-f]{32}$/.test(about.hash)];
try {
  Media.fromPixels(new Uint8Array([1, 2]), { width: 2, height: 1 });
} catch (error) {
  said.image.push(error.reason);
}
image.close();
context.setAdapter(null);

cow.trimMemory();
said.logged = logged.every(([level]) => level === "info" || level === "warning");
said.closed = (model.close(), (await caught(() => model.info())).status);
runtime.close();
said.stopped = (await caught(() => context.info())).reason;
console.log(JSON.stringify(said));

// Ends the process, or a worker thread in it, while a call runs: leaving.mjs LIBRARY MODEL WHERE
import { Worker } from "node:worker_threads";
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, folder, where] = process.argv.slice(2);

async function leave() {
  useLibrary(library);
  new Runtime();
  const model = await Model.load(folder);
  const prompt = model.tokenize("Once upon a time", { addSpecial: true });
  const ends = model.info().end_tokens.map((token) => token.id);
  const endless = { maxTokens: Infinity, biasTokens: ends, biasValues: ends.map(() => -1000) };
  const context = model.context({ overflow: "roll" });
  let began;
  const beginning = new Promise((resolve) => (began = resolve));
  const hear = () => (where === "callback" ? process.exit(3) : began());
  context.generateText(prompt, where === "worker" ? undefined : hear, endless).catch(() => {});
  if (where === "worker") {
    while (!context.info().generating) await new Promise(setImmediate);
  } else {
    process.on("exit", () => process.stdout.write("left\n")); // behind the binding's own
    await beginning;
  }
  if (where !== "exception") process.exit(3);
  throw new Error("thrown");
}

if (where === "thread") {
  const worker = new Worker(new URL(import.meta.url), { argv: [library, folder, "worker"] });
  worker.on("exit", (code) => {
    console.log("left");
    process.exitCode = code;
  });
} else {
  await leave();
}

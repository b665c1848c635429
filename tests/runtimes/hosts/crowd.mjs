// So many calls with callbacks, of which all wait for the event loop at once: crowd.mjs LIBRARY MODEL COUNT
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, folder, count] = process.argv.slice(2);
useLibrary(library);
const runtime = new Runtime();
const model = await Model.load(folder);
const prompt = model.tokenize("Once upon a time", { addSpecial: true });
const contexts = Array.from({ length: Number(count) }, () => model.context());
let texts = 0;
const all = contexts.map((context) => context.generateText(prompt, () => { texts += 1; }, { maxTokens: 5 }));
const canceler = new AbortController(); // of one that waits for its turn
const given = { maxTokens: 5, signal: canceler.signal };
const last = model.context().generateText(prompt, () => { texts += 1000; }, given).catch((error) => error.name);
canceler.abort();
console.log(await last);
for (let ended = false; !ended;) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500); // the loop does something else
  ended = await Promise.race([Promise.all(all).then(() => true), new Promise((resolve) => setTimeout(resolve, 300))]);
}
console.log(texts);
runtime.close();

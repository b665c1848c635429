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
// The loop does something else meanwhile: each of these steps gives all contexts a turn.
const ends = model.info().end_tokens.map((token) => token.id);
const pace = model.context({ overflow: "roll" });
await pace.begin(prompt, { maxTokens: Infinity, biasTokens: ends, biasValues: ends.map(() => -1000) });
let ended = false;
Promise.all(all).then(() => (ended = true));
while (!ended) {
  for (let step = 0; step < 200; step++) pace.nextSync();
  await new Promise(setImmediate);
}
pace.close();
console.log(texts);
runtime.close();

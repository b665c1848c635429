// Ends the process while a call runs: leaving.mjs LIBRARY MODEL WHERE
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, folder, where] = process.argv.slice(2);
useLibrary(library);
new Runtime();
const model = await Model.load(folder);
const prompt = model.tokenize("Once upon a time", { addSpecial: true });
const ends = model.info().end_tokens.map((token) => token.id);
const endless = { maxTokens: Infinity, biasTokens: ends, biasValues: ends.map(() => -1000) };
let began;
const beginning = new Promise((resolve) => (began = resolve));
const leave = () => (where === "callback" ? process.exit(3) : began());
model.context({ overflow: "roll" }).generateText(prompt, leave, endless).catch(() => {});
await beginning;
if (where === "loop") process.exit(3);
throw new Error("thrown");

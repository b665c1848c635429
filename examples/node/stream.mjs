// Stream the continuation of a text, then again and stop half-way:
//   npm ci && node stream.mjs LIBRARY MODEL TEXT
// LIBRARY is what `python -m cowmlx library` prints, or that of `make install`.
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, folder, text] = process.argv.slice(2);
if (text === undefined) {
  console.error("usage: node stream.mjs LIBRARY MODEL TEXT");
  process.exit(2);
}

useLibrary(library);
const runtime = new Runtime();
const model = await Model.load(folder);
const context = model.context();
const prompt = model.tokenize(text, { addSpecial: true });

for await (const piece of context.generate(prompt)) process.stdout.write(piece.text);
console.log("\n[ended]");

let received = 0;
for await (const piece of context.generate(prompt)) {
  process.stdout.write(piece.text);
  received += piece.text.length;
  if (received >= 20) context.cancel();
}
console.log(context.finish === "canceled" ? "\n[canceled]" : "\n[ended]");
runtime.close();

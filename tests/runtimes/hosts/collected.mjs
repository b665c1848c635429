// Contexts that no one closes, and one that the end of the runtime has: collected.mjs LIBRARY MODEL
import { setTimeout } from "node:timers/promises";
import { Model, Runtime, runtimeInfo, useLibrary } from "cowmlx";

const [library, folder] = process.argv.slice(2);
useLibrary(library);
const runtime = new Runtime();
const model = await Model.load(folder);
for (let i = 0; i < 20; i++) model.context();
console.log(runtimeInfo().handles.context);
while (runtimeInfo().handles.context > 0) {
  globalThis.gc();
  await setTimeout(10);
}
console.log(runtimeInfo().handles.context);
const context = model.context();
runtime.close();
try {
  context.cancel();
} catch (error) {
  console.log(error.message);
}

// A conversation with a tool, and Ctrl-C that ends an answer and nothing else:
//   npm ci && node chat.mjs LIBRARY MODEL [QUESTION...]
// Without questions it reads them, one a line.
import readline from "node:readline/promises";
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, path, ...questions] = process.argv.slice(2);
if (path === undefined) {
  console.error("usage: node chat.mjs LIBRARY MODEL [QUESTION...]");
  process.exit(2);
}

const tools = [{
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather in a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
}];
const call = { get_weather: ({ city }) => ({ city, weather: "sunny", temperature: 21 }) };

useLibrary(library);
const runtime = new Runtime();
const model = await Model.load(path);
const context = model.context();
const messages = [];

// Ask until the model has no more calls to make.
async function answer(question, signal) {
  messages.push({ role: "user", content: question });
  for (;;) {
    let content = "";
    const calls = [];
    try {
      for await (const event of context.chat(messages, { chat: { tools }, signal })) {
        if (event.kind === "tool_call") calls.push(event);
        if (event.kind !== "text") continue;
        process.stdout.write(event.text);
        content += event.text;
      }
    } catch (error) {
      messages.push({ role: "assistant", content }); // templates want that roles take turns
      throw error;
    }
    const tool_calls = calls.map(({ name, text }) => (
      { type: "function", function: { name, arguments: JSON.parse(text) } }));
    messages.push({ role: "assistant", content, ...(calls.length && { tool_calls }) });
    if (!calls.length) return;
    for (const { name, text } of calls) {
      console.log(`[${name} ${text}]`);
      const result = call[name]?.(JSON.parse(text)) ?? { error: `there is no tool ${name}` };
      messages.push({ role: "tool", name, content: JSON.stringify(result) });
    }
  }
}

async function ask(question) {
  const canceler = new AbortController();
  const cancel = () => canceler.abort();
  process.once("SIGINT", cancel);
  try {
    await answer(question, canceler.signal);
    console.log();
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    console.log("\n[canceled]");
  } finally {
    process.off("SIGINT", cancel);
  }
}

if (questions.length) {
  for (const question of questions) await ask(question);
} else {
  const lines = readline.createInterface({ input: process.stdin });
  for await (const line of lines) await ask(line);
}
runtime.close();

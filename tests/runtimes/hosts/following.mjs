// Says as JSON what comes in the event loop, and how it ends: following.mjs LIBRARY MODEL
import fs from "node:fs";
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, folder] = process.argv.slice(2);
useLibrary(library);
const runtime = new Runtime();
const said = {};
const caught = async (run) => {
  try {
    await run();
    return ["nothing"];
  } catch (error) {
    return [error.status ?? error.name, error.reason ?? error.message, error.operation ?? ""];
  }
};
const open = () => fs.readdirSync("/dev/fd").length;
const first = async (context, tokens, options) => {
  for await (const piece of context.generate(tokens, options)) return piece;
};

// Models: several at once, one that is not there, one that is given up.
const loaded = await Promise.all([folder, folder].map((each) => Model.load(each)));
const [model] = loaded;
await loaded[1].closeAsync();
said.missing = await caught(() => Model.load(`${folder}/none`));
said.given = await caught(() => Model.load(folder, { signal: AbortSignal.abort(new Error("mine")) }));
const leaving = new AbortController();
const loading = caught(() => Model.load(folder, { signal: leaving.signal }));
leaving.abort();
said.left = await loading;
said.refused = await caught(() => Model.load(folder, { progress: () => false }));
said.thrown = await caught(() => Model.load(folder, { progress: () => { throw new Error("mine"); } }));

// Many contexts in one thread, each with what it gets alone.
const ends = model.info().end_tokens.map((token) => token.id);
const endless = { maxTokens: Infinity, biasTokens: ends, biasValues: ends.map(() => -1000) };
const prompt = await model.tokenizeAsync("Once upon a time", { addSpecial: true });
const contexts = await Promise.all(Array.from({ length: 8 }, () => model.contextAsync({ overflow: "roll" })));
for (const each of contexts) each.wakeFd();
const descriptors = open();
said.tokens = await Promise.all(contexts.map(async (context, seed) => {
  const tokens = [];
  const options = { maxTokens: 16, temperature: 0.9, seed: BigInt(seed) };
  for await (const piece of context.generate(prompt, options)) tokens.push(piece.token);
  said.length = context.finish;
  return tokens;
}));
const messages = [{ role: "user", content: "What is 3 + 4?" }];
said.answers = await Promise.all(contexts.map(async (context) => {
  let answer = "";
  for await (const event of context.chat(messages)) answer += event.text;
  return answer;
}));
const [context, other] = contexts;
const parts = [];
await context.chatEvents(messages, ({ kind, text, finish }) => {
  parts.push(kind === "end" ? finish : text);
});
said.at_once = parts.join("");

// What ends them: signals, leaving, other calls, freeing, callbacks.
const canceler = new AbortController();
said.canceled = await caught(async () => {
  for await (const _ of context.generate(prompt, { ...endless, signal: canceler.signal })) canceler.abort();
});
const early = new AbortController();
const chatting = caught(async () => {
  for await (const _ of context.chat(messages, { signal: early.signal })) throw new Error("an event");
});
early.abort(new Error("mine"));
said.early = await chatting;
await first(context, prompt, endless);
said.finish = context.finish;
const before = context.generate(prompt, endless);
await before.next();
said.again = (await first(context, prompt, { maxTokens: 4 })).token;
said.before = await caught(() => before.next());
const busy = context.chat(messages, endless);
const event = busy.next();
said.busy = await caught(() => context.chat(messages).next());
said.event = (await event).value.text;
await busy.return();
let events = 0;
for await (const _ of context.chat(messages, endless)) {
  if (++events === 1) said.beside = await caught(() => context.begin(prompt));
  if (events === 3) break;
}
said.events = events;
const replaced = context.generate(prompt, endless);
await replaced.next();
let stopped;
const stop = () => (stopped ??= replaced.return()) && true;
const stats = await context.generateText(prompt, stop, { ...endless, maxTokens: 20 });
said.replaced = stats.generatedTokens;
await stopped;
said.progress = await caught(() => first(context, prompt, { promptProgress: () => { throw new Error("mine"); } }));
said.option = await caught(() => first(context, prompt, { topQ: 1 }));
said.range = await caught(() => first(context, prompt, { topP: 1.5 }));
const only = (tokens, logits) => {
  logits.fill(-Infinity);
  logits[40 + tokens.length - prompt.length] = 0;
};
said.forced = (await first(context, prompt, { logitsFn: only })).token;
said.begun = await caught(() => context.begin(prompt, { logitsFn: only }));
said.usable = (await first(context, prompt)).token;
said.descriptors = open() - descriptors;
const endlessly = other.generate(prompt, endless);
await endlessly.next();
const pending = caught(async () => { for (;;) await endlessly.next(); });
other.close();
said.freed = await pending;
said.closed = await caught(() => first(other, prompt));

// A signal that comes when its context is closed.
const late = new AbortController();
let hear;
const heard = new Promise((resolve) => (hear = resolve));
const texts = caught(() => contexts[2].generateText(prompt, () => hear(), { ...endless, signal: late.signal }));
await heard;
contexts[2].close();
late.abort();
said.late = await texts;
said.stopped = await caught(async () => {
  for await (const _ of context.generate(prompt, endless)) runtime.close();
});
console.log(JSON.stringify(said));

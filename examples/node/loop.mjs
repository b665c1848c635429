// How long the event loop is blocked while contexts generate, and what libuv's pool has left:
//   npm ci && node loop.mjs LIBRARY MODEL [CONTEXTS] [SECONDS]
// Prints JSON, times in milliseconds. "late" is how late a timer of 1 ms comes; "idle" the same of
// a loop that does nothing else, the machine's own delay. "work" is the processor time
// that the loop's thread has had from one timer to the next: what other processes do does not count.
import fs from "node:fs/promises";
import { performance } from "node:perf_hooks";
import koffi from "koffi";
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, path, count = "8", seconds = "5"] = process.argv.slice(2);
if (path === undefined) {
  console.error("usage: node loop.mjs LIBRARY MODEL [CONTEXTS] [SECONDS]");
  process.exit(2);
}

const percentile = (sorted, part) =>
  +sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))].toFixed(3);
const summary = (times) => {
  const sorted = times.toSorted((a, b) => a - b);
  return { median: percentile(sorted, 0.5), p99: percentile(sorted, 0.99),
           longest: percentile(sorted, 1), count: sorted.length };
};

// The processor time of this thread. Node reports only that of the whole process.
const isMac = process.platform === "darwin";
const clock = koffi.load(isMac ? "libSystem.dylib" : "libc.so.6")
  .func("int clock_gettime(int clock, _Out_ int64_t* time)");
function threadTime() {
  const time = new BigInt64Array(2); // seconds, nanoseconds
  clock(isMac ? 16 : 3, time);
  return Number(time[0]) * 1000 + Number(time[1]) / 1e6;
}

// How late a timer is, again and again, while work goes on, and the thread's processor time.
async function watched(work) {
  const late = [], worked = [];
  let last = performance.now(), before = threadTime();
  const timer = setInterval(() => {
    const now = performance.now(), spent = threadTime();
    late.push(Math.max(0, now - last - 1));
    worked.push(spent - before);
    [last, before] = [now, spent];
  }, 1);
  const result = await work();
  clearInterval(timer);
  return [result, { late: summary(late), work: summary(worked) }];
}

// Milliseconds that tasks of libuv's pool take, one after the other.
async function poolTimes(until) {
  const times = [];
  while (performance.now() < until) {
    const began = performance.now();
    await fs.stat(path);
    times.push(performance.now() - began);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return times;
}

useLibrary(library);
const runtime = new Runtime();
const model = await Model.load(path);
const prompt = await model.tokenizeAsync("Once upon a time", { addSpecial: true });
const contexts = await Promise.all(Array.from({ length: +count }, () => model.contextAsync()));

async function generate(context, until) {
  let pieces = 0;
  for (let seed = 0; performance.now() < until; seed++) {
    for await (const _ of context.generate(prompt, { maxTokens: 200, temperature: 1, seed })) {
      pieces++;
      if (performance.now() >= until) break;
    }
  }
  return pieces;
}

const time = +seconds * 1000;
const [idlePool, idle] = await watched(() => poolTimes(performance.now() + time / 2));
const [[pool, pieces], generating] = await watched(() => {
  const until = performance.now() + time;
  const all = Promise.all(contexts.map((context) => generate(context, until)));
  return Promise.all([poolTimes(until), all]);
});
console.log(JSON.stringify({
  contexts: contexts.length,
  seconds: +seconds,
  pieces_per_second: Math.round(pieces.reduce((sum, each) => sum + each, 0) / +seconds),
  idle: { ...idle, pool: summary(idlePool) },
  generating: { ...generating, pool: summary(pool) },
}, null, 2));
for (const context of contexts) await context.closeAsync();
runtime.close();

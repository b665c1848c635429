// Threads that make calls that take time, so that the event loop stays free. An error message belongs
// to its thread, and is read there.
import { Worker, isMainThread } from "node:worker_threads";
import koffi from "koffi";
import { libraryPath } from "./native.js";

// Calls with callbacks at a time; further ones wait for their turn. koffi holds at most 256 callbacks
// that wait for the event loop, for all its users, and ends the process beyond that.
const MOST_HEARD = 128;

const idle = [];
const running = new Set(); // the calls, with their cancels
const waiting = [];
let heard = 0;

/**
 * Make a call on another thread.
 * @param {string} name
 * @param {unknown[]} args  numbers and addresses
 * @param {{cancel?: () => void, isHeard?: boolean, signal?: AbortSignal}} [options]  its cancel,
 *     and before its turn the signal; whether it has callbacks
 * @returns {Promise<{status: number, failure: object | null}>}
 */
export async function onWorker(name, args, { cancel = () => {}, isHeard = false, signal } = {}) {
  if (!isHeard) return send(name, args, cancel);
  if (heard === MOST_HEARD) await turn(signal);
  else heard += 1;
  try {
    return await send(name, args, cancel);
  } finally {
    if (waiting.length) waiting.shift()();
    else heard -= 1;
  }
}

function turn(signal) {
  return new Promise((resolve, reject) => {
    waiting.push(resolve);
    signal?.addEventListener("abort", () => {
      const at = waiting.indexOf(resolve);
      if (at >= 0) waiting.splice(at, 1);
      reject(signal.reason); // ignored if its turn has come
    }, { once: true });
  });
}

function send(name, args, cancel) {
  const worker = idle.pop() ?? start();
  const call = { cancel };
  worker.ref();
  running.add(call);
  return new Promise((resolve, reject) => {
    const finish = () => {
      running.delete(call);
      worker.off("message", answered).off("error", failed).unref();
    };
    const answered = (answer) => {
      finish();
      idle.push(worker);
      resolve(answer);
    };
    const failed = (error) => {
      finish();
      reject(error);
    };
    worker.on("message", answered).on("error", failed);
    worker.postMessage({ name, args });
  });
}

function start() {
  if (!registered) {
    registered = true;
    process.on("uncaughtExceptionMonitor", (error) => (uncaught = { error }));
    process.on("exit", isMainThread ? leave : leaveThread);
  }
  return new Worker(new URL("./worker.js", import.meta.url), { workerData: libraryPath() });
}

let registered = false;
let uncaught;

// At its end Node waits for its threads, and these wait for callbacks, which no longer run. So while a
// call runs, the process ends at once with its status, after the other listeners of the event.
// (Node would report an uncaught exception after this.)
function leave(code) {
  if (running.size === 0) return;
  const listeners = process.rawListeners("exit");
  for (const listener of listeners.slice(listeners.indexOf(leave) + 1)) listener.call(process, code);
  if (uncaught) console.error("Uncaught", uncaught.error);
  koffi.load(null).func("void _exit(int code)")(process.exitCode ?? code);
}

// A worker of the host's ends when its calls have ended.
function leaveThread() {
  for (const { cancel } of running) cancel();
}

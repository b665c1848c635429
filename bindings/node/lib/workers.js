// Threads that wait: a call that takes time is made on one, so that the event loop stays free, and
// its error message, which belongs to the thread, is read there.
import { Worker } from "node:worker_threads";
import koffi from "koffi";
import { libraryPath } from "./native.js";

const idle = [];
let busy = 0;

/**
 * Make a call on another thread.
 * @param {string} name
 * @param {unknown[]} args  numbers and addresses
 * @returns {Promise<{status: number, failure: object | null}>}
 */
export function onWorker(name, args) {
  const worker = idle.pop() ?? start();
  worker.ref();
  busy += 1;
  return new Promise((resolve, reject) => {
    const finish = () => {
      busy -= 1;
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
    process.on("exit", leave);
  }
  return new Worker(new URL("./worker.js", import.meta.url), { workerData: libraryPath() });
}

let registered = false;
let uncaught;

// Node would wait for its threads as it ends, and they for callbacks, which run here no more: so
// while a call runs the process ends at once, with the status that it has. (Node would tell of an
// exception that nobody caught after this.)
function leave(code) {
  if (busy === 0) return;
  if (uncaught) console.error("Uncaught", uncaught.error);
  koffi.load(null).func("void _exit(int code)")(code);
}

// A thread that makes calls, one at a time.
import { parentPort, workerData } from "node:worker_threads";
import { failure, native, useLibrary } from "./native.js";

useLibrary(workerData);
parentPort.on("message", ({ name, args }) => {
  const status = native()[name](...args);
  parentPort.postMessage({ status, failure: status < 0 ? failure(status) : null });
});

// Results of calls that return at once, taken in the event loop as they come.
import fs from "node:fs";
import net from "node:net";
import { call, isThere, wait } from "./calls.js";
import { CALLS } from "./generated/declarations.js";
import { CowMlxError, by } from "./errors.js";
import { Listener } from "./listeners.js";

const { O_NONBLOCK, O_RDONLY } = fs.constants;
const following = new WeakMap(); // by context: the wait for its descriptor

/** Another call begins on a context: the iteration of an earlier one ends with an error. */
export function leave(context) {
  following.get(context)?.close();
  following.delete(context);
}

/**
 * Follow the results of a call on a context until its end; a caller that leaves early cancels it.
 * @template T
 * @param {import("./context.js").Context} context
 * @param {string} name  of the call
 * @param {object} given  what it takes
 * @param {() => {value: T | undefined, ended: boolean}} take  takes one thing that is there
 * @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<T, void, void>}
 */
export async function* follow(context, name, given, take, signal) {
  signal?.throwIfAborted();
  const listener = new Listener();
  let wake, begun = false, ended = false;
  const isNext = (hears) => {
    if (following.get(context) !== wake) throw left(context, name);
    return isThere("context_poll", context, hears);
  };
  const cancel = () => attempt(() => context.cancel());
  try {
    call(name, { context, ...given }, { listener });
    begun = true;
    leave(context);
    signal?.addEventListener("abort", cancel, { once: true });
    wake = new Wake(context.wakeFd());
    following.set(context, wake);
    while (!ended) {
      while (!isNext(listener)) await wake.raised();
      const { value, ended: last } = take();
      ended = last;
      if (value) yield value;
    }
    signal?.throwIfAborted();
  } catch (error) {
    if (error.status === "ECANCELED") signal?.throwIfAborted();
    throw by(CALLS[name], error);
  } finally {
    signal?.removeEventListener("abort", cancel);
    listener.close();
    if (begun && !ended && following.get(context) === wake) {
      await attempt(async () => { // it is busy until then
        isNext(); // fails if another call has begun, and not ended yet
        cancel();
        do {
          while (!isNext()) await (wake ? wake.raised() : wait("context_poll", { context }));
        } while (!take().ended);
      });
    }
    wake?.close();
  }
}

function left(context, name) {
  return context.isClosed
    ? new CowMlxError("ECANCELED", "the context was freed", "freed", {}, CALLS[name])
    : new CowMlxError("ESTATE", "another call has begun on this context", "context_busy", {}, CALLS[name]);
}

// Ignores errors of the library: the caller has one already, or has left.
async function attempt(run) {
  try {
    await run();
  } catch (error) {
    if (!(error instanceof CowMlxError)) throw error;
  }
}

/**
 * Waits for one descriptor of the library, which is readable when there is something to take. Only a
 * wait keeps the process alive.
 */
export class Wake {
  #socket;
  #tell = () => {};

  /** @param {number} descriptor  of a context or a model that is open */
  constructor(descriptor) {
    // The loop waits by reading: the library puts back what is still needed. A socket closes what
    // it reads, so it needs a copy of the descriptor.
    const fd = opened(`/dev/fd/${descriptor}`);
    this.#socket = new net.Socket({ fd, readable: true, writable: false }).unref();
    for (const event of ["data", "error", "close"]) this.#socket.on(event, () => this.raise());
  }

  /** Ends when the library or raise() reports a result, or the library has freed the object. */
  raised() {
    if (this.#socket.destroyed) return Promise.resolve();
    this.#socket.ref();
    return new Promise((resolve) => (this.#tell = resolve));
  }

  /** End the wait. */
  raise() {
    this.#socket.unref();
    this.#tell();
  }

  close() {
    this.#socket.destroy();
    this.raise();
  }
}

function opened(path) {
  try {
    return fs.openSync(path, O_RDONLY | O_NONBLOCK);
  } catch (error) {
    const message = `no descriptor can be opened: ${error.message}`;
    throw new CowMlxError("EIO", message, "no_descriptors");
  }
}

// Objects of the library, which are numbers there; each is freed once.
import { call, wait } from "./calls.js";
import { CowMlxError } from "./errors.js";

// Objects that no one closes are freed when they are collected: arrays at once, since that never
// waits, and others on another thread, one after the other.
let freeing = Promise.resolve();
const forgotten = new FinalizationRegistry(([kind, handle]) => {
  if (kind === "array") free([kind, handle]);
  else freeing = freeing.then(() => freeLater(kind, handle));
});

/** Free an object by its handle, on another thread. */
export async function freeLater(kind, handle) {
  try {
    await wait(`${kind}_free`, { [kind]: handle });
  } catch (error) {
    if (!(error instanceof CowMlxError)) throw error;
  }
}

function free([kind, handle]) {
  try {
    call(`${kind}_free`, { [kind]: handle });
  } catch (error) {
    if (!(error instanceof CowMlxError)) throw error;
    // The runtime was stopped, or its owner was freed, which freed it.
  }
}

/** An object of the library. `using`, or `close()`, frees it. */
export class Handle {
  #kind;
  #handle;

  /**
   * @param {string} kind
   * @param {number} handle
   */
  constructor(kind, handle) {
    this.#kind = kind;
    this.#handle = handle;
    forgotten.register(this, [kind, handle], this);
  }

  /** The kind of object, such as "context". */
  get kind() {
    return this.#kind;
  }

  /**
   * The number that the library knows it by.
   * @returns {number}
   */
  get handle() {
    if (this.#handle === 0) {
      throw new CowMlxError("EHANDLE", `the ${this.#kind} is closed`, "unknown_handle", { kind: this.#kind });
    }
    return this.#handle;
  }

  /** Whether it was closed, or taken over. */
  get isClosed() {
    return this.#handle === 0;
  }

  /** Free it. A second time does nothing. */
  close() {
    if (!this.isClosed) free([this.#kind, this.release()]);
  }

  /** The same without waiting on this thread, which may last a turn of others. */
  async closeAsync() {
    if (!this.isClosed) await freeLater(this.#kind, this.release());
  }

  /** Its handle; the caller frees it. */
  release() {
    const { handle } = this;
    forgotten.unregister(this);
    this.#handle = 0;
    return handle;
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close();
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.closeAsync();
  }
}

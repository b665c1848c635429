// Descriptors of the library in the event loop: each is readable when there is something to take.
import fs from "node:fs";
import net from "node:net";
import { CowMlxError } from "./errors.js";

const { O_NONBLOCK, O_RDONLY } = fs.constants;

/** Waits for one descriptor. What waits keeps the process alive, and nothing else here does. */
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

  /** Ends when the library, or raise(), says that something may be there; or it has freed it. */
  raised() {
    if (this.#socket.destroyed) return Promise.resolve();
    this.#socket.ref();
    return new Promise((resolve) => (this.#tell = resolve));
  }

  /** Let who waits look. */
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

// The pieces of a context, one after the other, in separate memory: there may be thousands of
// them in a second.
import koffi from "koffi";
import { call } from "./calls.js";
import { STATUSES, STRUCTS } from "./generated/declarations.js";
import { CowMlxError } from "./errors.js";
import { readStruct, write } from "./memory.js";
import { failure, native } from "./native.js";

const ROOM = 256;

/** Takes pieces on this thread. */
export class Pieces {
  #text = Buffer.alloc(ROOM);
  #length = new BigUint64Array(1);
  #piece = new DataView(new ArrayBuffer(STRUCTS.piece.size));
  #outputs;

  constructor() {
    write(this.#piece, 0, "size_t", BigInt(STRUCTS.piece.size));
    const [text, length, piece] = [this.#text, this.#length, this.#piece.buffer].map(koffi.address);
    this.#outputs = [text, ROOM, length, piece];
  }

  /**
   * The next piece of a context, and the status; waits for it if need be.
   * @param {import("./context.js").Context} context
   */
  next(context) {
    const status = native().context_next(context.handle, ...this.#outputs);
    if (status === STATUSES.EBUFFER) {
      return call("context_next", { context }, { capacity: Number(this.#length[0]) });
    }
    if (status < 0) throw CowMlxError.from(failure(status));
    const text = this.#text.toString("utf8", 0, Number(this.#length[0]));
    return { status, text, piece: readStruct("piece", this.#piece) };
  }
}

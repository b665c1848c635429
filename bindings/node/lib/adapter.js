// LoRA and DoRA adapters.
import { Handle } from "./handle.js";

/** An adapter of one model, which contexts use by `context.setAdapter()`. */
export class Adapter extends Handle {
  /** @param {number} handle */
  constructor(handle) {
    super("adapter", handle);
  }
}

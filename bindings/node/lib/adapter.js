// LoRA and DoRA adapters.
import { Handle } from "./handle.js";

/** An adapter of one model, which contexts use by `context.setAdapter()`. */
export class Adapter extends Handle {
  constructor(handle) {
    super("adapter", handle);
  }
}

// Callbacks: one trampoline of each kind, which finds the listener by the call's user_data.
import koffi from "koffi";
import { CALLBACKS, ENUMERATIONS, STRUCTS } from "./generated/declarations.js";
import { CowMlxError, refuse } from "./errors.js";
import { readStruct } from "./memory.js";

const listeners = new Map();
let last = 0n;

const text = (address, length) => (address ? koffi.decode.string(address, length) : "");
const struct = (name) => (address) => {
  const bytes = koffi.decode(address, "uint8_t", STRUCTS[name].size);
  return [readStruct(name, new DataView(bytes.buffer, bytes.byteOffset, bytes.length))];
};
const levels = Object.keys(ENUMERATIONS.LOG);

// The arguments of a host's function, from those of C.
const FORMS = {
  log_fn: (level, message) => [levels[level] ?? level, koffi.decode.string(message)],
  progress_fn: (fraction, stage) => [fraction, koffi.decode.string(stage)],
  prompt_fn: (processed, total) => [Number(processed), Number(total)],
  logits_fn: (tokens, count, logits, vocabulary) => [
    Int32Array.from(koffi.decode(tokens, "int32_t", Number(count))),
    Float32Array.from(koffi.decode(logits, "float", Number(vocabulary))),
  ],
  text_fn: (address, length) => [text(address, Number(length))],
  event_fn: struct("event"),
  training_fn: struct("training_event"),
  batch_fn: (step) => [Number(step)],
};

const trampolines = new Map();

function trampoline(kind) {
  if (!trampolines.has(kind)) {
    const type = koffi.pointer(koffi.proto(CALLBACKS[kind]));
    trampolines.set(kind, koffi.register((...args) => heard(kind, args), type));
  }
  return trampolines.get(kind);
}

function heard(kind, args) {
  const listener = listeners.get(args.at(-1));
  if (!listener) return false; // the listener has left
  try {
    const given = FORMS[kind](...args);
    const answer = listener.functions[kind](...given);
    if (typeof answer?.then === "function") {
      refuse(`the result of ${listener.names[kind]}`, answer, "a value that is there at once, not a promise");
    }
    if (kind === "logits_fn") koffi.encode(args[2], "float", given[1], given[1].length);
    return kind === "batch_fn" ? batch(answer, args[1], Number(args[2])) : answer !== false;
  } catch (error) {
    listener.thrown ??= { error };
    return false;
  }
}

// The training takes the arrays over.
function batch(arrays, address, count) {
  if (arrays === null || arrays === undefined || arrays === false) return false;
  if (!Array.isArray(arrays) || arrays.length !== count || arrays.some((each) => each?.kind !== "array")) {
    const value = Array.isArray(arrays) ? `a list of ${arrays.length}` : arrays;
    refuse("the result of nextBatch", value, `a list of ${count} NDArrays, or null for no more`, "wrong_type");
  }
  const handles = arrays.map(({ handle }) => handle); // all are open
  if (new Set(handles).size !== count) {
    throw new CowMlxError("EINVAL", "nextBatch gave an array twice, must give different ones", "conflict");
  }
  koffi.encode(address, "int64_t", handles, count);
  for (const array of arrays) array.release();
  return true;
}

/** Hears the callbacks of one call. What a function throws cancels the call, and waits here. */
export class Listener {
  id = ++last;
  functions = {};
  names = {};
  thrown = undefined;

  /** The address that C calls; it answers with the result of `listen`, or continues unless false. */
  hear(type, listen, name) {
    const kind = type.replace("cow_mlx_", "");
    if (typeof listen !== "function") refuse(name, listen, "a function", "wrong_type");
    this.names[kind] = name;
    this.functions[kind] = listen;
    listeners.set(this.id, this);
    return trampoline(kind);
  }

  /** Whether there are callbacks to hear. */
  get isHeard() {
    return listeners.has(this.id);
  }

  /** The call has ended. */
  close() {
    listeners.delete(this.id);
  }
}

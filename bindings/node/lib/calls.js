// Calls by their names: arguments are converted to C and results are read by the roles of the
// parameters, which are generated from the header.
import { PARAMETERS, ROLES, STATUSES, STRUCTS } from "./generated/declarations.js";
import { CowMlxError, ofCallback, ownParameter, refuse } from "./errors.js";
import { Listener } from "./listeners.js";
import { Arena, number, read, readStruct, write, writeValues } from "./memory.js";
import { failure, native } from "./native.js";
import { onWorker } from "./workers.js";

const BYTES = { char: 1, int32_t: 4, float: 4, int64_t: 8 };
const CAPACITY = { char: 4096, int32_t: 1024, float: 1024, int64_t: 4 };
const SUBJECTS = ["context", "program", "training"];

// How many runs each program has, by its handle. C cancels all of them, so a signal waits until one is alone.
const runs = new Map();

// Each role sets its parameters in `call.raw`, and the readers of its results in `call.reads`.
const LOWER = {
  handle: (call, { names: [name] }) => (call.raw[name] = handleOf(call.given[name])),
  scalar: (call, { names: [name], type }) => {
    const value = number(type, call.given[name], call.named(name));
    call.raw[name] = type === "float" || type === "double" ? value
      : type.includes("64") || type === "size_t" ? value : Number(value);
  },
  string: (call, { names: [name] }) => {
    const value = call.given[name];
    call.raw[name] = value === undefined ? null : call.arena.string(value, call.named(name));
  },
  text: (call, { names: [name, length] }) => {
    const text = call.arena.text(call.given[name], call.named(name));
    Object.assign(call.raw, { [name]: text.address, [length]: text.length });
  },
  tokens: (call, { names: [name, count] }) => {
    call.raw[name] = call.arena.numbers("int32_t", call.given[name], call.named(name));
    call.raw[count] = call.given[name].length;
  },
  texts: (call, { names: [name, count] }) => {
    const texts = call.given[name], { size, members } = STRUCTS.text;
    const { view, address } = call.arena.allocate(size * texts.length);
    texts.forEach((each, i) => {
      const text = call.arena.text(each, call.named(`${name}[${i}]`));
      view.setBigUint64(size * i + members.data[0], text.address ?? 0n, true);
      view.setBigUint64(size * i + members.length[0], text.length, true);
    });
    Object.assign(call.raw, { [name]: address, [count]: texts.length });
  },
  strings: (call, { names: [name, count] }) => {
    call.raw[name] = call.arena.strings(call.given[name], call.named(name));
    call.raw[count] = call.given[name].length;
  },
  handles: (call, { names: [name, count] }) => {
    const list = call.given[name].map((each, i) => BigInt(arrayOf(each, `${call.named(name)}[${i}]`)));
    call.raw[name] = call.arena.numbers("int64_t", BigInt64Array.from(list), call.named(name));
    call.raw[count] = list.length;
  },
  values: (call, { names: [name, count] }) => {
    call.raw[name] = writeValues(call.arena, call.given[name], call.named(name)).address;
    call.raw[count] = call.given[name].length;
  },
  params: (call, { names: [name], type }) => {
    const params = call.given[name];
    call.raw[name] = params === undefined ? null : call.arena.struct(type, params, call.listener);
  },
  callback: (call, { names: [name, user], type }) => {
    const listen = call.given[name];
    const isHeard = listen !== undefined && listen !== null;
    call.raw[name] = isHeard ? call.listener.hear(type, listen, call.named(name)) : null;
    call.raw[user] = isHeard ? call.listener.id : null;
  },
  value_out: (call, { names: [name], type }) => {
    const { view, address } = call.arena.allocate(8);
    call.raw[name] = address;
    call.reads[name] = () => read(view, 0, type);
  },
  struct_out: (call, { names: [name], type }) => {
    const { view, address } = call.arena.allocate(STRUCTS[type].size);
    write(view, 0, "size_t", BigInt(STRUCTS[type].size));
    call.raw[name] = address;
    call.reads[name] = () => readStruct(type, view);
  },
  handles_out: (call, { names: [name, count] }) => {
    const handles = new BigInt64Array(Math.max(call.raw[count], 1));
    call.raw[name] = call.arena.keep(handles);
    call.reads[name] = () => Array.from(handles.subarray(0, call.raw[count]), Number);
  },
  values_out: (call, { names: [name, count] }) => {
    const { size, members } = STRUCTS.value, many = call.given[name];
    const { view, address } = call.arena.allocate(size * many);
    Object.assign(call.raw, { [name]: address, [count]: many });
    call.reads[name] = () =>
      Array.from({ length: many }, (_, i) => read(view, size * i + members.array[0], "int64_t"));
  },
  buffers_out: (call, { names, types }) => {
    const [capacity, length] = names.slice(-2);
    const room = call.capacity ?? CAPACITY[types[0]];
    const needed = call.arena.allocate(8);
    call.needed = () => read(needed.view, 0, "size_t");
    Object.assign(call.raw, { [capacity]: room, [length]: needed.address });
    types.forEach((type, i) => {
      const { view, address } = call.arena.allocate(BYTES[type] * room);
      call.raw[names[i]] = address;
      call.reads[names[i]] = () => elements(type, view.buffer, call.more);
    });
    call.reads[length] = call.needed;
  },
};

// Null stands for an input that is left out.
function arrayOf(each, name) {
  if (each === null || each === undefined) return 0;
  if (typeof each === "number") return each;
  return each.kind === "array" ? each.handle : refuse(name, each, "an NDArray", "wrong_type");
}

function elements(type, buffer, length) {
  if (type === "char") return Buffer.from(buffer, 0, length).toString("utf8");
  if (type === "float") return new Float32Array(buffer, 0, length).slice();
  if (type === "int32_t") return new Int32Array(buffer, 0, length).slice();
  return Array.from(new BigInt64Array(buffer, 0, length), Number);
}

/** The handle of an object. */
export function handleOf(object) {
  if (typeof object === "number") return object;
  return object?.kind ? object.handle : refuse("an object", object, "one of the library's", "wrong_type");
}

class Call {
  raw = {};
  reads = {};
  arena = new Arena();

  constructor(name, given, { capacity, listener = new Listener() }) {
    Object.assign(this, { name, given, capacity, listener });
    for (const role of ROLES[name]) LOWER[role.kind](this, role);
    this.args = PARAMETERS[name].map((parameter) => this.raw[parameter]);
  }

  named(parameter) {
    return ownParameter(parameter);
  }

  /** The results of the call; undefined if its buffers were too small. */
  end(status, failed, options) {
    if (!options.listener) this.listener.close();
    if (this.listener.thrown) throw ofCallback(this.listener.thrown.error);
    if (status === STATUSES.EBUFFER && this.needed) return undefined;
    if (status < 0 && !options.accepts?.includes(status)) throw CowMlxError.from(failed());
    const read = Object.entries(this.reads).map(([name, value]) => [name, value()]);
    return { status, ...Object.fromEntries(status < 0 ? [] : read) };
  }

  /** The elements that its buffers need; a call with rows tells those of one row. */
  get more() {
    return this.needed() * (this.given.rows ?? 1);
  }
}

/**
 * Make a call on this thread.
 * @param {string} name  without "cow_mlx_"
 * @param {object} [given]  its inputs by their names
 * @param {{capacity?: number, accepts?: number[], listener?: Listener}} [options]  elements that its
 *     buffers have at first; statuses that are no errors; the listener of callbacks that outlive the call
 * @returns {any}  the status, and outputs by their names
 */
export function call(name, given = {}, options = {}) {
  for (let { capacity } = options; ;) {
    const made = new Call(name, given, { ...options, capacity });
    const status = native()[name](...made.args);
    const result = made.end(status, () => failure(status), options);
    if (result) return result;
    capacity = made.more;
  }
}

/**
 * Make a call on another thread: the same, as a promise.
 * @param {string} name
 * @param {object} [given]
 * @param {{capacity?: number, accepts?: number[], signal?: AbortSignal}} [options]  a signal cancels
 *     the call, whose promise then fails with the signal's reason
 */
export async function wait(name, given = {}, options = {}) {
  const { signal } = options;
  signal?.throwIfAborted();
  const cancel = canceling(name, given);
  const program = name === "program_run" ? handleOf(given.program) : undefined;
  const cancelOne = program ? () => runs.get(program) === 1 && cancel() : cancel;
  const stopListening = signal && cancel ? cancelOn(signal, cancelOne) : undefined;
  if (program) countRun(program, 1);
  try {
    for (let { capacity } = options; ;) {
      const made = new Call(name, given, { capacity });
      const { status, failure: failed } = await onWorker(
        name, made.args, { cancel, isHeard: made.listener.isHeard, signal });
      if (status === STATUSES.ECANCELED) signal?.throwIfAborted();
      const result = made.end(status, () => failed, options);
      if (result) return result;
      capacity = made.more;
    }
  } finally {
    stopListening?.();
    if (program) countRun(program, -1);
  }
}

function countRun(program, change) {
  const count = (runs.get(program) ?? 0) + change;
  if (count) runs.set(program, count);
  else runs.delete(program);
}

/**
 * Whether a call that returned at once has a result; does not wait.
 * @param {"context_poll" | "model_poll"} name
 * @param {any} object  the context, or the model
 * @param {Listener} [listener]  hears of progress
 */
export function isThere(name, object, listener) {
  const status = native()[name](handleOf(object), 0);
  if (listener?.thrown) throw ofCallback(listener.thrown.error);
  if (status < 0 && status !== STATUSES.ETIMEDOUT) throw CowMlxError.from(failure(status));
  return status !== STATUSES.ETIMEDOUT;
}

/**
 * Cancel what runs on an object; never waits. A cancel leaves the message of its thread alone.
 * @param {"context_cancel" | "program_cancel" | "training_cancel"} name
 * @param {import("./handle.js").Handle} object
 */
export function cancelRunning(name, object) {
  if (native()[name](object.handle) >= 0) return;
  const { kind } = object;
  throw new CowMlxError("EHANDLE", `the ${kind} is closed`, "unknown_handle", { kind });
}

// The cancel of the context, program or training of a call; it ignores a closed one.
function canceling(name, given) {
  const subject = SUBJECTS.find((each) => name.startsWith(`${each}_`) && each in given);
  if (!subject) return undefined;
  const handle = handleOf(given[subject]);
  return () => native()[`${subject}_cancel`](handle);
}

// A cancel that comes before the call has begun on its thread does nothing, so it is repeated until
// the call has ended.
function cancelOn(signal, cancel) {
  let timer;
  const begin = () => {
    cancel();
    timer = setInterval(cancel, 10);
  };
  signal.addEventListener("abort", begin, { once: true });
  return () => {
    signal.removeEventListener("abort", begin);
    clearInterval(timer);
  };
}

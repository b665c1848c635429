// Memory that C reads and writes: numbers, texts and structs by their layouts, and elements.
import koffi from "koffi";
import { DTYPES, ENUMERATIONS, STRUCTS } from "./generated/declarations.js";
import { CowMlxError, camel, checkKeys, refuse, snake } from "./errors.js";
import { native } from "./native.js";

const SIZE_MAX = 2n ** 64n - 1n;
const WHOLE = {
  int32_t: [-(2n ** 31n), 2n ** 31n - 1n],
  uint32_t: [0n, 2n ** 32n - 1n],
  int64_t: [-(2n ** 63n), 2n ** 63n - 1n],
  uint64_t: [0n, SIZE_MAX],
  size_t: [0n, SIZE_MAX],
};
const WRITE = {
  bool: (view, at, value) => view.setUint8(at, value ? 1 : 0),
  float: (view, at, value) => view.setFloat32(at, value, true),
  double: (view, at, value) => view.setFloat64(at, value, true),
  int32_t: (view, at, value) => view.setInt32(at, Number(value), true),
  uint32_t: (view, at, value) => view.setUint32(at, Number(value), true),
  int64_t: (view, at, value) => view.setBigInt64(at, value, true),
  uint64_t: (view, at, value) => view.setBigUint64(at, value, true),
  size_t: (view, at, value) => view.setBigUint64(at, value, true),
};
const READ = {
  bool: (view, at) => view.getUint8(at) !== 0,
  float: (view, at) => view.getFloat32(at, true),
  double: (view, at) => view.getFloat64(at, true),
  int32_t: (view, at) => view.getInt32(at, true),
  uint32_t: (view, at) => view.getUint32(at, true),
  int64_t: (view, at) => Number(view.getBigInt64(at, true)),
  uint64_t: (view, at) => Number(view.getBigUint64(at, true)),
  size_t: (view, at) => Number(view.getBigUint64(at, true)),
};
const ELEMENTS = { int32_t: Int32Array, float: Float32Array, int64_t: BigInt64Array };

/** The number of a type that C is given; `Infinity` is the most that a size can be. */
export function number(type, value, name) {
  if (value !== null && typeof value === "object" && "handle" in value) value = value.handle;
  if (type === "bool") return typeof value === "boolean" ? value : refuse(name, value, "true or false");
  if (type === "float" || type === "double") {
    return typeof value === "number" ? value : refuse(name, value, "a number");
  }
  if (value === Infinity && type === "size_t") return SIZE_MAX;
  const [least, most] = WHOLE[type];
  const isWhole = typeof value === "bigint" || Number.isInteger(value);
  if (!isWhole || value < least || value > most) {
    refuse(name, value, `a whole number from ${least} to ${most}`);
  }
  return BigInt(value);
}

/** The memory of one call. It stays in place as long as the arena is referenced. */
export class Arena {
  #kept = [];

  /** Memory of zeros. */
  allocate(bytes) {
    const view = new DataView(new ArrayBuffer(Math.max(bytes, 1)));
    return { view, address: this.keep(view.buffer) };
  }

  /** The address of a buffer or typed array, which C uses as it is. */
  keep(memory) {
    this.#kept.push(memory);
    return koffi.address(memory);
  }

  /** UTF-8 and its length, of a string or of bytes. */
  text(value, name) {
    if (typeof value !== "string" && !(value instanceof Uint8Array)) refuse(name, value, "a text");
    const bytes = Buffer.from(value);
    return { address: bytes.length ? this.keep(bytes) : null, length: BigInt(bytes.length) };
  }

  /** A text that ends at its NUL; an object stands for its JSON. */
  string(value, name) {
    const text = typeof value === "object" ? jsonOf(value, name) : value;
    if (typeof text !== "string" || text.includes("\0")) refuse(name, value, "a text without NUL");
    return this.keep(Buffer.from(`${text}\0`));
  }

  /** Pointers to texts. */
  strings(values, name) {
    if (!Array.isArray(values)) refuse(name, values, "a list of texts", "wrong_type");
    const { view, address } = this.allocate(8 * values.length);
    values.forEach((value, i) => view.setBigUint64(8 * i, this.string(value, `${name}[${i}]`), true));
    return address;
  }

  /** Numbers of a type; a typed array of it is used as it is. */
  numbers(type, values, name) {
    const Typed = ELEMENTS[type];
    if (!Array.isArray(values) && !ArrayBuffer.isView(values)) refuse(name, values, "a list of numbers", "wrong_type");
    if (values instanceof Typed) return values.length ? this.keep(values) : null;
    const list = Array.from(values, (value, i) => number(type, value, `${name}[${i}]`));
    return this.keep(Typed.from(list, type === "int32_t" ? Number : undefined));
  }

  /**
   * A struct of parameters: its defaults, and `given`, whose keys are members in camel case.
   * @param listener  hears the callbacks among them
   */
  struct(name, given, listener) {
    const { size, members } = STRUCTS[name];
    const { view, address } = this.allocate(size);
    native()[`${name}_init`](address, size);
    const lengths = new Map(); // of lists, by the members that count them
    for (const [key, value] of Object.entries(given ?? {})) {
      if (value === undefined || value === null) continue;
      const member = Object.hasOwn(members, snake(key)) ? snake(key) : "";
      if (!member || hidden(member)) unknown(name, key);
      this.#member(view, members, member, value, key, { listener, lengths });
    }
    return address;
  }

  #member(view, members, member, value, name, { listener, lengths }) {
    const [at, kind, type, count, group] = members[member];
    if (kind === "scalar") {
      WRITE[type](view, at, group ? constant(group, value, name) : number(type, value, name));
    } else if (kind === "callback") {
      const user = member === "log" ? "log_user_data" : "user_data";
      view.setBigUint64(at, listener.hear(type, value, name), true);
      view.setBigUint64(members[user][0], listener.id, true);
    } else if (kind === "string") {
      view.setBigUint64(at, this.string(value, name), true);
    } else {
      const pointer = kind === "strings" ? this.strings(value, name) : this.numbers(type, value, name);
      const length = lengths.get(count) ?? value.length;
      if (length !== value.length) {
        throw new CowMlxError("EINVAL", `${name} has ${value.length} elements, must have ${length}`, "conflict",
          { argument: name });
      }
      lengths.set(count, length);
      view.setBigUint64(at, pointer ?? 0n, true);
      view.setBigUint64(members[count][0], BigInt(length), true);
    }
  }
}

// Options that model.chatPrompt() and chat: {...} take, and chat() itself does not.
const TEMPLATE = /^(tools?|tool_?choice|enable_?thinking|add_?generation_?prompt|continue_?final_?message|reasoning\w*)$/i;

/** The JSON of a host's value. */
export function jsonOf(value, name) {
  try {
    const text = JSON.stringify(value);
    if (text !== undefined) return text;
  } catch { /* it has no JSON: a cycle, or a BigInt */ }
  return refuse(name, value, "what JSON can hold", "wrong_type");
}

function hidden(member) {
  return member === "struct_size" || member.endsWith("user_data") || member.endsWith("_count");
}

function unknown(name, key) {
  const known = Object.keys(STRUCTS[name].members).filter((each) => !hidden(each)).map(camel);
  const details = { argument: key, value: key, accepted: known.join(", ") };
  const template = name === "generation_params" && TEMPLATE.test(key)
    ? `; what the chat's template takes is given as { chat: { ${snake(key)} } }` : "";
  throw new CowMlxError("EINVAL", `there is no option ${key}${template}; the options are ${known.join(", ")}`,
    "unknown_option", details);
}

/** The number of a constant by its text, such as "json_schema". */
export function constant(group, value, name) {
  const values = ENUMERATIONS[group];
  if (typeof value === "string" && Object.hasOwn(values, value)) return values[value];
  if (Object.values(values).includes(value)) return value;
  return refuse(name, value, Object.keys(values).map((each) => JSON.stringify(each)).join(", "));
}

/** Write a number where C reads it. */
export const write = (view, at, type, value) => WRITE[type](view, at, value);
/** Read a number that C has written. */
export const read = (view, at, type) => READ[type](view, at);

/** A struct that C has filled, as an object whose keys are in camel case. */
export function readStruct(name, view) {
  if (!readers.has(name)) readers.set(name, readersOf(STRUCTS[name].members));
  const found = {};
  for (const [key, readMember] of readers.get(name)) found[key] = readMember(view);
  return found;
}

const readers = new Map();

// The reader of each member.
function readersOf(members) {
  const hasText = "length" in members && "text" in members;
  return Object.entries(members)
    .filter(([member]) => member !== "struct_size" && !(hasText && member === "length"))
    .map(([member, [at, kind, type, , group]]) => [camel(member), readerOf(member, at, kind, type, group)]);

  function readerOf(member, at, kind, type, group) {
    if (kind === "string" && hasText && member === "text") {
      const [counted] = members.length;
      return (view) => koffi.decode.string(view.getBigUint64(at, true), READ.size_t(view, counted));
    }
    if (kind === "string") return (view) => koffi.decode.string(view.getBigUint64(at, true));
    if (!group) return (view) => READ[type](view, at);
    const names = new Map(Object.entries(ENUMERATIONS[group]).map(([text, value]) => [value, text]));
    return (view) => names.get(READ[type](view, at)) ?? READ[type](view, at);
  }
}

// The typed array of each dtype. 16-bit floats are their bits, complex numbers are pairs.
const TYPED = {
  bool: Uint8Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  complex64: Float32Array,
};
const NAMES = Object.fromEntries(Object.entries(DTYPES).map(([name, [value]]) => [value, name]));

/** The dtype of a value of C's. */
export const dtypeName = (value) => NAMES[value];

/** How many elements a shape has. */
export const sizeOf = (shape) => shape.reduce((product, each) => product * each, 1);

/** A typed array for elements of a dtype and shape. */
export function elementsOf(dtype, shape) {
  return new TYPED[dtype](sizeOf(shape) * (dtype === "complex64" ? 2 : 1));
}

/**
 * Elements as {data, shape, dtype}: of a number (float32), of lists of numbers (float32, nested as
 * the shape), of a typed array (its own dtype and one dimension), or of such an object.
 */
export function asTensor(value, name = "data") {
  if (typeof value === "number") return { data: Float32Array.of(value), shape: [], dtype: "float32" };
  if (Array.isArray(value)) return nested(value, name);
  const given = ArrayBuffer.isView(value) ? { data: value } : value;
  if (typeof given !== "object" || given === null || !("data" in given)) {
    refuse(name, value, "an NDArray, a typed array, a list, a number or an object with data", "wrong_type");
  }
  checkKeys(name, given, ["data", "shape", "dtype", "strides", "offset"]);
  for (const key of ["shape", "strides"]) if (given[key] !== undefined) checkSizes(`${name}.${key}`, given[key]);
  if (given.offset !== undefined) checkSizes(`${name}.offset`, [given.offset]);
  if (typeof given.data === "number" || Array.isArray(given.data)) {
    const list = asTensor(given.data, `${name}.data`);
    return asTensor({ ...list, ...without(given, "data") }, name);
  }
  const dtype = given.dtype ?? ownDtype(given.data, name);
  if (!(dtype in DTYPES)) refuse(`${name}.dtype`, dtype, Object.keys(DTYPES).join(", "));
  const width = dtype === "complex64" ? 2 : 1;
  return { offset: 0, ...given, dtype, shape: given.shape ?? [given.data.length / width] };
}

const without = (object, key) => Object.fromEntries(Object.entries(object).filter(([k]) => k !== key));

function nested(list, name) {
  const shape = [];
  for (let inner = list; Array.isArray(inner); [inner] = inner) shape.push(inner.length);
  const flat = [list].flat(Infinity);
  const odd = flat.find((each) => typeof each !== "number" && typeof each !== "boolean");
  if (odd !== undefined) refuse(`an element of ${name}`, odd, "a number", "wrong_type");
  if (flat.length !== sizeOf(shape)) refuse(name, list, "lists of one length in each dimension");
  return { data: Float32Array.from(flat), shape, dtype: "float32" };
}

function ownDtype(data, name) {
  const found = Object.keys(TYPED).find((dtype) => data instanceof TYPED[dtype] && dtype !== "bool");
  return found ?? refuse(`${name}.data`, data, "a typed array of numbers", "wrong_type");
}

function checkSizes(name, sizes) {
  const isWhole = (each) => typeof each === "bigint" || Number.isSafeInteger(each);
  if (!Array.isArray(sizes) || !sizes.every(isWhole)) refuse(name, sizes, "whole numbers", "wrong_type");
}

/** The struct of a tensor; its offset and strides are in elements of its data. */
export function writeTensor(arena, value, name) {
  const { data, shape, strides, offset, dtype } = asTensor(value, name);
  const [code, bytes] = DTYPES[dtype];
  if (strides && strides.length !== shape.length) {
    throw new CowMlxError("EINVAL",
      `${name}: strides has ${strides.length} elements, must have ${shape.length}`, "conflict");
  }
  const { size, members } = STRUCTS.tensor;
  const { view, address } = arena.allocate(size);
  const set = (member, given) => write(view, members[member][0], members[member][2], given);
  const point = (member, pointer) => view.setBigUint64(members[member][0], pointer ?? 0n, true);
  const list = (numbers) => BigInt64Array.from(numbers, BigInt);
  set("struct_size", BigInt(size));
  point("data", data.byteLength ? arena.keep(data) : null);
  set("bytes", BigInt(data.byteLength));
  set("offset", BigInt((offset ?? 0) * bytes));
  set("dtype", code);
  set("rank", shape.length);
  point("shape", shape.length ? arena.keep(list(shape)) : null);
  point("strides", strides?.length ? arena.keep(list(strides)) : null);
  return address;
}

/** The structs of values: arrays of the library's, or elements of the host's. */
export function writeValues(arena, values, name) {
  const { size, members } = STRUCTS.value;
  const memory = arena.allocate(size * values.length);
  values.forEach((value, i) => {
    const isArray = typeof value === "object" && value !== null && "handle" in value;
    write(memory.view, size * i + members.array[0], "int64_t", BigInt(isArray ? value.handle : 0));
    const host = isArray ? 0n : writeTensor(arena, value, `${name}[${i}]`);
    memory.view.setBigUint64(size * i + members.host[0], host, true);
  });
  return memory;
}

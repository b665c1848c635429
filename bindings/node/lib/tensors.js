// Elements in the host's memory: typed arrays, and the strided views that C is given of them.
import { DTYPES, STRUCTS } from "./generated/declarations.js";
import { checkKeys } from "./checks.js";
import { CowMlxError, refuse } from "./errors.js";
import { write } from "./memory.js";

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

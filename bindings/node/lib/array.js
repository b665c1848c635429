// Arrays of numbers, which live in the library.
import { call, handleOf, wait } from "./calls.js";
import { DTYPES, MAX_RANK, STATUSES, STRUCTS } from "./generated/declarations.js";
import { CowMlxError, checked, checkedCall, refuse } from "./errors.js";
import { Handle } from "./handle.js";
import { Arena, asTensor, dtypeName, elementsOf, read, sizeOf, writeTensor } from "./memory.js";
import { failure, native } from "./native.js";
import koffi from "koffi";

const UNBOUNDED = 2 ** 32 - 1;

function check(status) {
  if (status < 0) throw CowMlxError.from(failure(status));
}

/** An array: a value, which nothing changes. */
export class NDArray extends Handle {
  #type;

  /** @param {number} handle */
  constructor(handle) {
    super("array", handle);
  }

  /**
   * Make an array of elements, which are copied.
   * @param {number | any[] | ArrayBufferView | {data: object, shape?: number[], dtype?: string,
   *     strides?: number[], offset?: number}} value  strides and offset are in elements
   * @param {{shape?: number[], dtype?: string}} [options]
   */
  static from(value, options) {
    const arena = new Arena();
    const out = arena.allocate(8);
    const tensor = options ? { ...asTensor(value), ...options } : value;
    check(native().array_create(writeTensor(arena, tensor, "array"), out.address));
    return new NDArray(read(out.view, 0, "int64_t"));
  }

  #described() {
    if (!this.#type) {
      const arena = new Arena();
      const dtype = arena.allocate(4), shape = arena.allocate(8 * MAX_RANK), rank = arena.allocate(8);
      check(native().array_type(this.handle, dtype.address, shape.address, MAX_RANK, rank.address));
      const length = read(rank.view, 0, "size_t");
      this.#type = {
        dtype: dtypeName(read(dtype.view, 0, "int32_t")),
        shape: Array.from({ length }, (_, i) => read(shape.view, 8 * i, "int64_t")),
      };
    }
    return this.#type;
  }

  /**
   * Such as "float32".
   * @returns {string}
   */
  get dtype() {
    return this.#described().dtype;
  }

  /**
   * The size of each dimension.
   * @returns {number[]}
   */
  get shape() {
    return [...this.#described().shape];
  }

  /** Wait until the elements are there. @returns {Promise<boolean>}  false: not within the time */
  async wait(milliseconds = UNBOUNDED) {
    const accepts = [STATUSES.ETIMEDOUT];
    const given = { array: this, timeout_ms: milliseconds };
    return (await wait("array_wait", given, { accepts })).status === STATUSES.OK;
  }

  /**
   * The elements, copied, once they are computed; this thread waits for that.
   * @param {ArrayBufferView | {data: ArrayBufferView, shape?: number[], strides?: number[]}} [into]
   * @returns {any}  the typed array
   */
  read(into) {
    const { dtype, shape } = this.#described();
    const tensor = { shape, dtype, ...(into && asTensor({ dtype, shape, ...dataOf(into) })) };
    tensor.data ??= elementsOf(dtype, shape);
    const arena = new Arena();
    check(native().array_read(this.handle, writeTensor(arena, tensor, "read")));
    return tensor.data;
  }

  /**
   * The same, once they are there; this thread does not wait.
   * @returns {Promise<any>}
   */
  async values() {
    await this.wait();
    return this.read();
  }

  /**
   * Look at the elements where they are, without a copy: `look` is given a typed array, which is
   * empty afterwards. Not in Electron, whose memory is apart.
   * @template T
   * @param {(elements: any) => T} look
   * @returns {T}
   */
  view(look) {
    const { dtype, shape } = this.#described();
    const arena = new Arena();
    const pointer = arena.allocate(8), layout = arena.allocate(STRUCTS.tensor.size);
    layout.view.setBigUint64(0, BigInt(STRUCTS.tensor.size), true);
    check(native().array_view(this.handle, pointer.address, layout.address));
    const bytes = sizeOf(shape) * DTYPES[dtype][1];
    const Typed = elementsOf(dtype, [0]).constructor;
    if (bytes === 0) return look(new Typed(0));
    const memory = koffi.view(pointer.view.getBigUint64(0, true), bytes);
    try {
      return look(new Typed(memory));
    } finally {
      structuredClone(memory, { transfer: [memory] });
    }
  }

  /**
   * The element of an array that has one.
   * @returns {any}
   */
  item() {
    if (sizeOf(this.shape) !== 1) refuse("the shape", `[${this.shape}]`, "of one element");
    return this.read()[0];
  }

  /**
   * Apply an operation to arrays: see cow_mlx_array_apply().
   * @param {string} operation
   * @param {(NDArray | null)[]} inputs
   * @param {object} [attributes]
   * @returns {NDArray[]}
   */
  static apply(operation, inputs, attributes) {
    const given = { operation, inputs, attributes_json: attributes };
    return call("array_apply", given).outputs.map((handle) => new NDArray(handle));
  }
}

function dataOf(into) {
  const given = ArrayBuffer.isView(into) ? { data: into } : into;
  if (!ArrayBuffer.isView(given.data)) refuse("into", into, "a typed array, or an object with one as data", "wrong_type");
  return given;
}

/**
 * Load arrays of a safetensors file by their names, all of them if none are given.
 * @param {string} path
 * @param {string[]} [names]
 * @returns {Promise<Record<string, NDArray>>}
 */
async function load(path, names) {
  const wanted = names ?? Object.keys((await arraysInfo(path)).tensors);
  const { arrays } = await wait("arrays_load", { path, names: wanted });
  return Object.fromEntries(wanted.map((name, i) => [name, new NDArray(arrays[i])]));
}

/**
 * Save arrays by their names as a safetensors file.
 * @param {string} path
 * @param {Record<string, NDArray>} arrays
 */
async function save(path, arrays) {
  const names = Object.keys(arrays);
  await wait("arrays_save", { path, names, arrays: Object.values(arrays).map(handleOf) });
}

/**
 * The contents of a safetensors file: see cow_mlx_arrays_info().
 * @param {string} path
 * @returns {Promise<any>}
 */
async function info(path) {
  return JSON.parse((await wait("arrays_info", { path })).buffer);
}

export const loadArrays = checkedCall("loadArrays", "path, names?", load);
export const saveArrays = checkedCall("saveArrays", "path, arrays", save);
export const arraysInfo = checkedCall("arraysInfo", "path", info);

checked(NDArray, "NDArray", { from: "value, options?{shape dtype}", apply: "operation, list, attributes?" });
checked(NDArray.prototype, "NDArray", { wait: "milliseconds?", read: "value?", values: "", view: "look", item: "" });

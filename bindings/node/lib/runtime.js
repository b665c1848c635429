// The runtime: it is started before all else, and stopped.
import { call } from "./calls.js";
import { by, checked, checkedCall, refuse } from "./errors.js";
import { Listener } from "./listeners.js";
import { native } from "./native.js";

/** The runtime runs as long as one of these is open. */
export class Runtime {
  #isOpen = true;

  /**
   * Start the runtime, or count one start more.
   * @param {import("./generated/types.js").RuntimeParams} [params]  members of cow_mlx_runtime_params in camel
   *     case; `log` is given level and message
   */
  constructor(params) {
    try {
      if (params !== undefined && (typeof params !== "object" || params === null || Array.isArray(params))) {
        refuse("params", params, "an object of options", "wrong_type");
      }
      call("runtime_start", { params }, { listener: new Listener() });
    } catch (error) {
      throw by("new Runtime", error);
    }
  }

  /** Undo the start. The last one frees all that is open. */
  close() {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    call("runtime_stop");
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close();
  }
}

/**
 * Versions, paths, the device, memory, open handles: see cow_mlx_runtime_info().
 * @returns {any}
 */
export const runtimeInfo = checkedCall("runtimeInfo", "", () => JSON.parse(call("runtime_info").buffer));

/** Give memory that is kept for reuse back to the system. */
export const trimMemory = checkedCall("trimMemory", "", () => void call("memory_trim"));

/**
 * The library's version.
 * @returns {string}
 */
export const version = checkedCall("version", "", /** @returns {string} */ () => native().version());

/**
 * The library's ABI; useLibrary() has compared it.
 * @returns {number}
 */
export const abiVersion = checkedCall("abiVersion", "", /** @returns {number} */ () => native().abi_version());

/**
 * All operations of programs: see cow_mlx_operations_info().
 * @returns {any}
 */
export const operationsInfo = checkedCall("operationsInfo", "",
  () => JSON.parse(call("operations_info", {}, { capacity: 1 << 19 }).buffer));

checked(Runtime.prototype, "Runtime", { close: "" });

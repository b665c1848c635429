// Programs: computations on arrays, checked once and run many times.
import { NDArray } from "./array.js";
import { call, cancelRunning, wait } from "./calls.js";
import { Handle } from "./handle.js";
import { jsonOf } from "./memory.js";
import { CowMlxError, checked } from "./errors.js";

/** A program. */
export class Program extends Handle {
  #names;

  /** @param {number} handle */
  constructor(handle) {
    super("program", handle);
  }

  /**
   * Make a program of its JSON, as an object or a text: see cow_mlx_program_create().
   * @param {string | object} json
   */
  static create(json) {
    const text = typeof json === "string" ? json : jsonOf(json, "json");
    return new Program(call("program_create", { json: text }).out);
  }

  /**
   * The program of a file: see cow_mlx_program_load().
   * @param {string} path
   * @param {import("./generated/types.js").ProgramParams} [params]
   * @returns {Promise<Program>}
   */
  static async load(path, params) {
    return new Program((await wait("program_load", { path, params })).out);
  }

  /**
   * See cow_mlx_program_info().
   * @param {Record<string, number>} [dimensions]
   * @returns {any}
   */
  info(dimensions) {
    const given = { program: this, dimensions };
    return JSON.parse(call("program_info", given, { capacity: 1 << 16 }).buffer);
  }

  /**
   * Make another program of this one: see cow_mlx_program_derive().
   * @param {object} spec
   */
  derive(spec) {
    return new Program(call("program_derive", { program: this, spec_json: jsonOf(spec, "spec") }).out);
  }

  /**
   * The program of the gradients of an output; `value`: with the output itself in front.
   * @param {string} of
   * @param {string[]} withRespectTo
   */
  gradient(of, withRespectTo, { value = false } = {}) {
    return this.derive({ gradient: { of, with_respect_to: withRespectTo, value } });
  }

  /**
   * The program for many rows at a time: `axes` of inputs by their names.
   * @param {Record<string, number | null>} axes
   * @param {string} [dimension]
   */
  vectorize(axes, dimension) {
    return this.derive({ vectorize: axes, ...(dimension === undefined ? {} : { dimension }) });
  }

  /**
   * The program with inputs that are given once and for all.
   * @param {Record<string, NDArray>} arrays
   */
  bind(arrays) {
    const handles = Object.entries(arrays).map(([name, array]) => [name, array.handle]);
    return this.derive({ bind: Object.fromEntries(handles) });
  }

  /**
   * The names of the inputs and parameters that a run takes, and of its outputs.
   * @returns {{inputs: string[], outputs: string[]}}
   */
  get names() {
    if (!this.#names) {
      const { inputs, parameters, outputs } = this.info();
      const named = (list) => list.map(({ name }) => name);
      this.#names = { inputs: named([...inputs, ...parameters]), outputs: named(outputs) };
    }
    return this.#names;
  }

  /**
   * Run the program. Inputs are arrays, typed arrays (used as they are, so leave them alone until
   * the run has ended), numbers or {data, shape, dtype}; in a list, or by their names. A signal
   * cancels the run if the program has no other one, and submitted runs with it. While others run,
   * it is not cancelled: the promise waits for its end, then fails with the signal's reason.
   * @param {any[] | Record<string, any>} inputs
   * @param {import("./generated/types.js").RunParams & {signal?: AbortSignal}} [options]
   * @returns {Promise<any>}  arrays: in a list, or by their names, as the inputs were
   */
  async run(inputs, { signal, ...params } = {}) {
    const { outputs } = await wait("program_run", this.#given(inputs, params), { signal });
    if (signal?.aborted) {
      for (const handle of outputs) new NDArray(handle).close();
      signal.throwIfAborted();
    }
    return this.#results(inputs, outputs);
  }

  /**
   * The same on this thread, which waits.
   * @param {any[] | Record<string, any>} inputs
   * @param {import("./generated/types.js").RunParams} [params]
   * @returns {any}
   */
  runSync(inputs, params) {
    return this.#results(inputs, call("program_run", this.#given(inputs, params)).outputs);
  }

  /**
   * Begin a run, and return its arrays at once: `array.wait()` waits for its end.
   * @param {any[] | Record<string, any>} inputs
   * @param {import("./generated/types.js").RunParams} [params]
   * @returns {any}
   */
  submit(inputs, params) {
    return this.runSync(inputs, { ...params, submit: true });
  }

  #given(inputs, params) {
    const { names } = this;
    const list = Array.isArray(inputs) ? inputs : names.inputs.map((name) => named(inputs, name, names.inputs));
    const unknown = Array.isArray(inputs) ? undefined : Object.keys(inputs).find((key) => !names.inputs.includes(key));
    if (unknown !== undefined) {
      throw new CowMlxError("EINVAL", `inputs has ${unknown}, but the program takes ${names.inputs.join(", ")}`,
        "unknown_option", { argument: `inputs.${unknown}`, value: unknown });
    }
    return { program: this, inputs: list, outputs: names.outputs.length, params };
  }

  #results(inputs, handles) {
    const arrays = handles.map((handle) => new NDArray(handle));
    if (Array.isArray(inputs)) return arrays;
    return Object.fromEntries(this.names.outputs.map((name, i) => [name, arrays[i]]));
  }

  /** End the runs that have begun or wait. */
  cancel() {
    cancelRunning("program_cancel", this);
  }
}

function named(inputs, name, names) {
  if (inputs[name] !== undefined) return inputs[name];
  throw new CowMlxError("EINVAL", `inputs has no ${name}, but the program takes ${names.join(", ")}`, "missing",
    { argument: `inputs.${name}` });
}

checked(Program, "Program", { create: "json", load: "path, params?" });
checked(Program.prototype, "Program", {
  info: "dimensions?", derive: "spec", gradient: "of, withRespectTo, options?{value}",
  vectorize: "axes, dimension?", bind: "arrays", run: "inputs, options?", runSync: "inputs, params?",
  submit: "inputs, params?", cancel: "",
});

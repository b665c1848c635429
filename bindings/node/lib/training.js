// Trainings of programs and language models.
import { NDArray } from "./array.js";
import { call, cancelRunning, wait } from "./calls.js";
import { checked, refuse } from "./errors.js";
import { Handle } from "./handle.js";
import { Adapter } from "./model.js";

/**
 * A training. Its params are members of cow_mlx_training_params in camel case, those of a fit of
 * cow_mlx_fit_params; what is JSON there may be an object. Events are members of
 * cow_mlx_training_event: {kind: "step", step: 10, loss: 0.5, ...}.
 */
export class Training extends Handle {
  /** @param {number} handle */
  constructor(handle) {
    super("training", handle);
  }

  /**
   * Make a training of a program.
   * @param {import("./program.js").Program} program
   * @param {import("./generated/types.js").TrainingParams & {initial?: Record<string, NDArray>}} [params]  `initial`: arrays
   *     by the names of parameters
   */
  static create(program, { initial, ...params } = {}) {
    if (initial !== undefined && initial !== null) {
      if (typeof initial !== "object" || Object.values(initial).some((each) => each?.kind !== "array")) {
        refuse("initial", initial, "an object of NDArrays by the names of parameters", "wrong_type");
      }
      params.initialNames = Object.keys(initial);
      params.initialArrays = Object.values(initial);
    }
    return new Training(call("training_create", { program, params }).out);
  }

  /**
   * Make a training of a language model: LoRA, DoRA or all weights, as `fineTune` says.
   * @param {import("./model.js").Model} model
   * @param {import("./generated/types.js").TrainingParams} [params]
   */
  static async forModel(model, params) {
    return new Training((await wait("training_create_for_model", { model, params })).out);
  }

  /**
   * Make a step on a batch: the program's inputs, in their order.
   * @param {any[]} inputs
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<import("./generated/types.js").TrainingEvent>}
   */
  async step(inputs, { signal } = {}) {
    return (await wait("training_step", { training: this, inputs }, { signal })).event;
  }

  /**
   * The same on this thread, which waits.
   * @param {any[]} inputs
   * @returns {import("./generated/types.js").TrainingEvent}
   */
  stepSync(inputs) {
    return call("training_step", { training: this, inputs }).event;
  }

  /**
   * Make steps until an end that params tell.
   * @param {import("./generated/types.js").FitParams & {onEvent?: (event: import("./generated/types.js").TrainingEvent) => unknown,
   *     signal?: AbortSignal}} params  also `onEvent(event)`, which ends the fit by returning false; and
   *     `nextBatch(step)`, which returns arrays, taken over by the training, or null for no more
   */
  async fit({ onEvent, signal, ...params }) {
    await wait("training_fit", { training: this, params, on_event: onEvent }, { signal });
  }

  /**
   * Loss, accuracy and perplexity on data.
   * @param {import("./generated/types.js").FitParams & {signal?: AbortSignal}} params
   * @returns {Promise<import("./generated/types.js").TrainingEvent>}
   */
  async evaluate({ signal, ...params }) {
    return (await wait("training_evaluate", { training: this, params }, { signal })).event;
  }

  /**
   * A parameter as it is now.
   * @param {string} name
   */
  parameter(name) {
    return new NDArray(call("training_parameter", { training: this, name }).out);
  }

  /**
   * See cow_mlx_training_info().
   * @returns {any}
   */
  info() {
    return JSON.parse(call("training_info", { training: this }, { capacity: 1 << 16 }).buffer);
  }

  /**
   * Save the training, to continue later.
   * @param {string} folder
   */
  async save(folder) {
    await wait("training_save", { training: this, folder });
  }

  /**
   * Continue a saved training.
   * @param {string} folder
   */
  async load(folder) {
    await wait("training_load", { training: this, folder });
  }

  /** The layers of a language model trained so far, as an adapter. */
  adapter() {
    return new Adapter(call("training_adapter", { training: this }).out);
  }

  /**
   * Write the trained layers of a language model as mlx-lm reads them.
   * @param {string} folder
   * @param {object} [options]
   */
  async export(folder, options) {
    await wait("training_export", { training: this, folder, options_json: options });
  }

  /** End the call that runs. */
  cancel() {
    cancelRunning("training_cancel", this);
  }
}

checked(Training, "Training", { create: "program, params?", forModel: "model, params?" });
checked(Training.prototype, "Training", {
  step: "list, options?{signal}", stepSync: "list", fit: "options", evaluate: "options", parameter: "name",
  info: "", save: "folder", load: "folder", adapter: "", export: "folder, options?", cancel: "",
});

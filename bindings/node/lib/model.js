// Models: weights, tokenizer and chat template of one folder. LoRA and DoRA adapters of them.
import { call, isThere, wait } from "./calls.js";
import { Context } from "./context.js";
import { ENUMERATIONS } from "./generated/declarations.js";
import { checked } from "./errors.js";
import { Handle, freeLater } from "./handle.js";
import { Listener } from "./listeners.js";
import { jsonOf } from "./memory.js";
import { Wake } from "./follow.js";

const { add_special: ADD, parse_special: PARSE, skip_special: SKIP } = ENUMERATIONS.FLAGS;

/** An adapter of one model, which contexts use by `context.setAdapter()`. */
export class Adapter extends Handle {
  /** @param {number} handle */
  constructor(handle) {
    super("adapter", handle);
  }
}

/** A loaded model. */
export class Model extends Handle {
  /** @param {number} handle */
  constructor(handle) {
    super("model", handle);
  }

  /**
   * Load a model's folder. Members of cow_mlx_model_params come in camel case. No thread waits for
   * it.
   * @param {string} path
   * @param {import("./generated/types.js").ModelParams & {signal?: AbortSignal}} [params]  `progress` is given
   *     the part that is done and the stage, and returns false to end the loading
   * @returns {Promise<Model>}
   */
  static async load(path, { signal, ...params } = {}) {
    return new Model(await loaded(path, params, signal));
  }

  /**
   * The same on this thread, which waits.
   * @param {string} path
   * @param {import("./generated/types.js").ModelParams} [params]
   */
  static loadSync(path, params) {
    return new Model(call("model_load", { path, params }).out);
  }

  /**
   * Describe a model's folder without loading it: see cow_mlx_model_inspect().
   * @param {string} path
   * @param {{kvBits?: number}} [options]
   * @returns {Promise<any>}
   */
  static async inspect(path, { kvBits = 0 } = {}) {
    return JSON.parse((await wait("model_inspect", { path, kv_bits: kvBits })).buffer);
  }

  /**
   * See cow_mlx_model_info().
   * @returns {any}
   */
  info() {
    return JSON.parse(call("model_info", { model: this }, { capacity: 1 << 14 }).buffer);
  }

  /**
   * Turn text into tokens.
   * @param {string | Uint8Array} text
   * @param {{addSpecial?: boolean, parseSpecial?: boolean}} [options]
   * @returns {Int32Array}
   */
  tokenize(text, options) {
    return call("model_tokenize", this.#tokenizing(text, options), { capacity: text.length + 16 }).tokens;
  }

  /**
   * The same without waiting on this thread, which may last a turn of others.
   * @param {string | Uint8Array} text
   * @param {{addSpecial?: boolean, parseSpecial?: boolean}} [options]
   * @returns {Promise<Int32Array>}
   */
  async tokenizeAsync(text, options) {
    const given = this.#tokenizing(text, options);
    return (await wait("model_tokenize", given, { capacity: text.length + 16 })).tokens;
  }

  #tokenizing(text, { addSpecial = false, parseSpecial = false } = {}) {
    return { model: this, text, flags: (addSpecial ? ADD : 0) | (parseSpecial ? PARSE : 0) };
  }

  /**
   * Turn tokens into text.
   * @param {Int32Array | number[]} tokens
   * @param {{skipSpecial?: boolean}} [options]
   * @returns {string}
   */
  detokenize(tokens, { skipSpecial = false } = {}) {
    return call("model_detokenize", { model: this, tokens, flags: skipSpecial ? SKIP : 0 }).buffer;
  }

  /**
   * Whether a token ends a generation.
   * @param {number} token
   * @returns {boolean}
   */
  isEnd(token) {
    return call("model_is_end", { model: this, token }).out;
  }

  /**
   * The tokens of a conversation, by the model's chat template.
   * @param {object[]} messages  such as {role: "user", content: "Hello"}
   * @param {object} [options]  as cow_mlx_model_chat_prompt() names them: tools, enable_thinking, ...
   * @returns {Int32Array}
   */
  chatPrompt(messages, options) {
    const given = { model: this, messages_json: jsonOf(messages, "messages"), options_json: options };
    return call("model_chat_prompt", given).tokens;
  }

  /**
   * The prompt behind which a model of code generates the text between a prefix and a suffix.
   * @param {string} prefix
   * @param {string} [suffix]
   * @returns {Int32Array}
   */
  infillPrompt(prefix, suffix = "") {
    return call("model_infill_prompt", { model: this, prefix, suffix }).tokens;
  }

  /**
   * Free the weights, and the caches of the model's contexts. What needs them next reads them again.
   */
  sleep() {
    call("model_sleep", { model: this });
  }

  /**
   * Turn texts into vectors. Members of cow_mlx_embed_params come in camel case.
   * @param {string[]} texts
   * @param {import("./generated/types.js").EmbedParams} [params]
   * @returns {Promise<Float32Array[]>}
   */
  async embed(texts, params) {
    const given = { model: this, texts, params, rows: texts.length };
    const { out, dims } = await wait("model_embed", given, { capacity: texts.length });
    return texts.map((_, i) => out.slice(i * dims, (i + 1) * dims));
  }

  /**
   * Tell how well each document fits a query: the higher a score, the better; a row for each document
   * has one, or one for each label. Members of cow_mlx_rank_params come in camel case.
   * @param {string} query
   * @param {string[]} documents
   * @param {import("./generated/types.js").RankParams} [params]
   * @returns {Promise<Float32Array[]>}
   */
  async rank(query, documents, params) {
    const given = { model: this, query, documents, params, rows: documents.length };
    const { scores, labels } = await wait("model_rank", given, { capacity: documents.length });
    return documents.map((_, i) => scores.slice(i * labels, (i + 1) * labels));
  }

  /**
   * Find the labels of a text, or the entities in it.
   * @param {string} text
   * @returns {Promise<object>}
   */
  async classify(text) {
    return JSON.parse((await wait("model_classify", { model: this, text })).buffer);
  }

  /**
   * Open a context. Members of cow_mlx_context_params come in camel case.
   * @param {import("./generated/types.js").ContextParams} [params]
   */
  context(params) {
    return new Context(call("context_create", { model: this, params }).out);
  }

  /**
   * The same without waiting on this thread, which may last a turn of others.
   * @param {import("./generated/types.js").ContextParams} [params]
   */
  async contextAsync(params) {
    return new Context((await wait("context_create", { model: this, params })).out);
  }

  /**
   * How many tokens an image of a size takes in a prompt.
   * @param {number} width
   * @param {number} height
   * @returns {number}
   */
  mediaTokens(width, height) {
    return call("model_media_tokens", { model: this, width, height, detail: 0 }).tokens;
  }

  /**
   * Load a LoRA or DoRA adapter, which applies `scale` times.
   * @param {string} path
   */
  adapter(path, scale = 1) {
    return new Adapter(call("adapter_load", { model: this, path, scale }).out);
  }
}

// The handle of a model that is loaded while the event loop turns.
async function loaded(path, params, signal) {
  signal?.throwIfAborted();
  const listener = new Listener();
  const model = call("model_load_async", { path, params }, { listener }).out;
  let wake;
  const look = () => wake?.raise();
  signal?.addEventListener("abort", look, { once: true });
  try {
    wake = new Wake(call("model_wake_fd", { model }).out);
    while (!isThere("model_poll", model, listener)) {
      await wake.raised();
      signal?.throwIfAborted();
    }
    return model;
  } catch (error) {
    await freeLater("model", model);
    throw error;
  } finally {
    signal?.removeEventListener("abort", look);
    wake?.close();
    listener.close();
  }
}

checked(Model, "Model", {
  load: "path, options?", loadSync: "path, params?", inspect: "path, options?{kvBits}",
});
const READING = "text, options?{addSpecial parseSpecial}";
checked(Model.prototype, "Model", {
  info: "", tokenize: READING, tokenizeAsync: READING, detokenize: "tokens, options?{skipSpecial}",
  isEnd: "token", chatPrompt: "messages, options?", infillPrompt: "prefix, suffix?", sleep: "", embed: "texts, params?",
  rank: "query, documents, params?", classify: "text", context: "params?", contextAsync: "params?", adapter: "path, scale?",
  mediaTokens: "width, height",
});

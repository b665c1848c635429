// Contexts: sequences of tokens with their caches.
import koffi from "koffi";
import { NDArray } from "./array.js";
import { call, cancelRunning, handleOf, wait } from "./calls.js";
import { STATUSES, STRUCTS } from "./generated/declarations.js";
import { CowMlxError, checked, refuse } from "./errors.js";
import { follow, leave } from "./follow.js";
import { Handle } from "./handle.js";
import { jsonOf, readStruct, write } from "./memory.js";
import { failure, native } from "./native.js";

const ROOM = 256;

/** @typedef {{text: string} & import("./generated/types.js").Piece} Piece */
/** @typedef {import("./generated/types.js").GenerationParams & {signal?: AbortSignal}} Options */

/**
 * @typedef {object} ChatEvent
 * @property {"text" | "reasoning" | "tool_call" | "thinking_cut" | "end"} kind
 * @property {string} text
 * @property {string} name
 * @property {string} finish
 */

/** The tokens and the cache that a context held at one moment. */
export class Checkpoint extends Handle {
  /** @param {number} handle */
  constructor(handle) {
    super("checkpoint", handle);
  }
}

/**
 * A context. Options of a generation are members of cow_mlx_generation_params in camel case, such as
 * {temperature: 0.7, stop: ["\n"], grammar: schema, grammarKind: "json_schema"}, and a signal, which
 * cancels it. One call at a time runs on a context.
 */
export class Context extends Handle {
  #pieces;

  /** @param {number} handle */
  constructor(handle) {
    super("context", handle);
  }

  /**
   * See cow_mlx_context_info().
   * @returns {any}
   */
  info() {
    return JSON.parse(call("context_info", { context: this }).buffer);
  }

  /**
   * Process a prompt, and be ready to generate: see cow_mlx_context_begin().
   * @param {Int32Array | number[]} tokens
   * @param {Options} [options]
   */
  async begin(tokens, { signal, ...params } = {}) {
    refuseLogits(params);
    await wait("context_begin", { context: this, tokens, params }, { signal });
    leave(this);
  }

  /**
   * The same with rows of embeddings, floats of [rows, width], in the places of tokens of -1.
   * @param {Int32Array | number[]} tokens
   * @param {NDArray} array  a row for each of these places
   * @param {Options} [options]
   */
  async beginEmbeddings(tokens, array, { signal, ...params } = {}) {
    refuseLogits(params);
    const given = { context: this, tokens, embeddings: handleOf(array), params };
    await wait("context_begin_embeddings", given, { signal });
    leave(this);
  }

  /**
   * The next piece: {text, token, logprob, finish}; undefined at the end, where `finish` is the reason.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Piece | undefined>}
   */
  async next({ signal } = {}) {
    const found = await wait("context_next", { context: this }, { signal, capacity: 256 });
    return this.#piece(found);
  }

  /**
   * The same on this thread, which waits.
   * @returns {Piece | undefined}
   */
  nextSync() {
    return this.#piece((this.#pieces ??= new Pieces()).next(this));
  }

  #piece({ status, text, piece }) {
    this.finish = piece.finish;
    return status === STATUSES.DONE ? undefined : { text, ...piece };
  }

  /**
   * Why the last generation ended, such as "stop" or "length"; "none" before its end.
   * @type {string}
   */
  finish = "none";

  /**
   * Process a prompt and generate: pieces, one after the other. No thread waits for them, whatever
   * the number of contexts. A loop that is left early cancels the generation.
   * @param {Int32Array | number[]} tokens
   * @param {Options} [options]
   * @returns {AsyncGenerator<Piece, void, void>}
   */
  generate(tokens, { signal, ...params } = {}) {
    this.finish = "none";
    const take = () => {
      const piece = this.nextSync();
      return { value: piece, ended: !piece };
    };
    return follow(this, "context_begin_async", { tokens, params }, take, signal);
  }

  /**
   * Process a prompt and generate to the end in one call, which is quicker, on a thread that waits.
   * @param {Int32Array | number[]} tokens
   * @param {(text: string) => unknown} [onText]  false cancels
   * @param {Options} [options]
   * @returns {Promise<import("./generated/types.js").Stats>}  sizes and times
   */
  async generateText(tokens, onText, { signal, ...params } = {}) {
    const given = { context: this, tokens, params, on_text: onText };
    const { stats } = await wait("context_generate", given, { signal });
    leave(this);
    return stats;
  }

  /**
   * Answer a conversation: events {kind: "text" | "reasoning" | "tool_call" | "thinking_cut" | "end",
   * text, name, finish}, one after the other. No thread waits for them. A loop that is left early cancels the
   * answer.
   * @param {object[]} messages
   * @param {Options & {chat?: object}} [options]  of the generation, and `chat`: options of the
   *     template, as cow_mlx_model_chat_prompt() names them
   * @returns {AsyncGenerator<ChatEvent, void, void>}
   */
  chat(messages, { chat, signal, ...params } = {}) {
    const take = () => {
      const { status, event } = call("context_next_event", { context: this });
      return { value: event, ended: status === STATUSES.DONE };
    };
    const given = conversation(messages, chat, params);
    return follow(this, "context_chat_async", given, take, signal);
  }

  /**
   * The same in one call, on a thread that waits.
   * @param {object[]} messages
   * @param {(event: ChatEvent) => unknown} [onEvent]  false cancels
   * @param {Options & {chat?: object}} [options]
   * @returns {Promise<import("./generated/types.js").Stats>}  sizes and times
   */
  async chatEvents(messages, onEvent, { chat, signal, ...params } = {}) {
    const all = { context: this, ...conversation(messages, chat, params), on_event: onEvent };
    const { stats } = await wait("context_chat", all, { signal });
    leave(this);
    return stats;
  }

  /** Wait until next() would not block. @returns {Promise<boolean>}  false: not within the time */
  async poll(milliseconds = 2 ** 32 - 1) {
    const accepts = [STATUSES.ETIMEDOUT];
    const given = { context: this, timeout_ms: milliseconds };
    return (await wait("context_poll", given, { accepts })).status === STATUSES.OK;
  }

  /** The same on this thread, which waits; with 0 it does not. */
  pollSync(milliseconds = 0) {
    const accepts = [STATUSES.ETIMEDOUT];
    const given = { context: this, timeout_ms: milliseconds };
    return call("context_poll", given, { accepts }).status === STATUSES.OK;
  }

  /**
   * A file descriptor that is readable while next() would not block.
   * @returns {number}
   */
  wakeFd() {
    return call("context_wake_fd", { context: this }).out;
  }

  /** Free it. A generation on it ends with a CowMlxError "ECANCELED". */
  release() {
    const handle = super.release();
    leave(this);
    return handle;
  }

  /** End the call that runs on the context, which stays usable. */
  cancel() {
    cancelRunning("context_cancel", this);
  }

  /** Open a copy of the context, with its tokens and cache. */
  fork() {
    return new Context(call("context_fork", { context: this }).out);
  }

  /** Forget every token. */
  reset() {
    call("context_reset", { context: this });
  }

  /**
   * The tokens that the cache holds.
   * @returns {Int32Array}
   */
  tokens() {
    return call("context_tokens", { context: this }).tokens;
  }

  /**
   * Drop the last tokens.
   * @param {number} count
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<number>}  how many were dropped
   */
  async trimEnd(count, { signal } = {}) {
    return (await wait("context_trim_end", { context: this, count }, { signal })).trimmed;
  }

  /**
   * Drop the first tokens.
   * @param {number} count
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<number>}  how many were dropped
   */
  async trimFront(count, { signal } = {}) {
    return (await wait("context_trim_front", { context: this, count }, { signal })).trimmed;
  }

  /** Keep the context's tokens and cache, to come back to them. */
  checkpoint() {
    return new Checkpoint(call("context_checkpoint", { context: this }).out);
  }

  /**
   * Restore the tokens of a checkpoint.
   * @param {Checkpoint} checkpoint
   */
  rewind(checkpoint) {
    call("context_rewind", { context: this, checkpoint });
  }

  /**
   * Write the context's tokens and cache to a file.
   * @param {string} path
   * @param {{signal?: AbortSignal}} [options]
   */
  async save(path, { signal } = {}) {
    await wait("context_save", { context: this, path }, { signal });
  }

  /**
   * Load the tokens and the cache that a context has saved.
   * @param {string} path
   * @param {{signal?: AbortSignal}} [options]
   */
  async load(path, { signal } = {}) {
    await wait("context_load", { context: this, path }, { signal });
  }

  /**
   * Save the context's tokens and cache to an array of bytes.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<NDArray>}
   */
  async saveArray({ signal } = {}) {
    return new NDArray((await wait("context_save_array", { context: this }, { signal })).out);
  }

  /**
   * Load the tokens and the cache that a context has saved to an array of bytes.
   * @param {NDArray} array
   * @param {{signal?: AbortSignal}} [options]
   */
  async loadArray(array, { signal } = {}) {
    await wait("context_load_array", { context: this, array: handleOf(array) }, { signal });
  }

  /**
   * Use an adapter from now on, or none (null).
   * @param {import("./model.js").Adapter | null} adapter
   */
  setAdapter(adapter) {
    call("context_set_adapter", { context: this, adapter: adapter ? handleOf(adapter) : 0 });
  }

  /**
   * The most probable tokens where the last piece was chosen.
   * @returns {{token: number, logprob: number}[]}
   */
  logprobs() {
    const { tokens, logprobs } = call("context_logprobs", { context: this }, { capacity: 32 });
    return Array.from(tokens, (token, i) => ({ token, logprob: logprobs[i] }));
  }

  /** The model's logits after the last token. @returns {Float32Array} */
  logits() {
    return call("context_logits", { context: this }, { capacity: 1 << 18 }).logits;
  }

  /**
   * The log probability of each token given those before it, behind those that the context holds: a
   * row of the token itself and of the `top` most probable ones. Behind an empty context the first
   * token has none: NaN.
   * @param {ArrayLike<number>} tokens
   * @param {{top?: number, signal?: AbortSignal}} [options]
   * @returns {Promise<{token: number, logprob: number}[][]>}
   */
  async promptLogprobs(tokens, { top = 0, signal } = {}) {
    const width = 1 + top;
    const given = { context: this, tokens, top };
    const room = { signal, capacity: width > 0 ? tokens.length * width : 1 };
    const { candidates, logprobs } = await wait("context_prompt_logprobs", given, room);
    const pairs = Array.from(candidates, (token, i) => ({ token, logprob: logprobs[i] }));
    return Array.from({ length: tokens.length }, (_, i) => pairs.slice(i * width, (i + 1) * width));
  }

  /**
   * The model's logits behind the tokens at some positions of a prompt that follows those that the
   * context holds.
   * @param {ArrayLike<number>} tokens
   * @param {ArrayLike<number>} positions
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Float32Array[]>}
   */
  async promptLogits(tokens, positions, { signal } = {}) {
    const given = { context: this, tokens, positions };
    const { logits } = await wait("context_prompt_logits", given, { signal });
    return rows(logits, positions.length);
  }

  /**
   * The hidden states of a prompt's tokens, behind those that the context holds.
   * @param {ArrayLike<number>} tokens
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<Float32Array[]>}
   */
  async hiddenStates(tokens, { signal } = {}) {
    const given = { context: this, tokens };
    const { states } = await wait("context_hidden_states", given, { signal });
    return rows(states, tokens.length);
  }

  /**
   * The perplexity of a text, its standard error, and the number of scored tokens. Windows of so many
   * tokens are scored from an empty state each; 0: as many as the context may hold.
   * @param {string} text
   * @param {{window?: number, signal?: AbortSignal}} [options]
   * @returns {Promise<{perplexity: number, deviation: number, scored: number}>}
   */
  async perplexity(text, { window = 0, signal } = {}) {
    const given = { context: this, text, window };
    const { perplexity, deviation, scored } = await wait("context_perplexity", given, { signal });
    return { perplexity, deviation, scored };
  }

  /**
   * Sizes and times of the last generation, so far.
   * @returns {import("./generated/types.js").Stats}
   */
  stats() {
    return call("context_stats", { context: this }).stats;
  }
}

/** Takes pieces on this thread, in memory that stays: there may be thousands of them in a second. */
class Pieces {
  #text = Buffer.alloc(ROOM);
  #length = new BigUint64Array(1);
  #piece = new DataView(new ArrayBuffer(STRUCTS.piece.size));
  #outputs;

  constructor() {
    write(this.#piece, 0, "size_t", BigInt(STRUCTS.piece.size));
    const [text, length, piece] = [this.#text, this.#length, this.#piece.buffer].map(koffi.address);
    this.#outputs = [text, ROOM, length, piece];
  }

  /**
   * The next piece of a context, and the status; waits for it if need be.
   * @param {Context} context
   */
  next(context) {
    const status = native().context_next(context.handle, ...this.#outputs);
    if (status === STATUSES.EBUFFER) {
      return call("context_next", { context }, { capacity: Number(this.#length[0]) });
    }
    if (status < 0) throw CowMlxError.from(failure(status));
    const text = this.#text.toString("utf8", 0, Number(this.#length[0]));
    return { status, text, piece: readStruct("piece", this.#piece) };
  }
}

// Refuse a function that the library would call after the call that it is given to.
function refuseLogits({ logitsFn }) {
  if (logitsFn === undefined || logitsFn === null) return;
  const message = "logitsFn goes with generate, generateText, chat and chatEvents";
  throw new CowMlxError("EUNSUPPORTED", message, "conflict", { argument: "logitsFn" });
}

// Arguments of a chat: `chat` has options of the template, which are JSON.
function conversation(messages, chat, params) {
  if (chat !== undefined && (typeof chat !== "object" || chat === null || Array.isArray(chat))) {
    refuse("chat", chat, "an object, such as { tools }", "wrong_type");
  }
  return { messages_json: jsonOf(messages, "messages"), options_json: chat, params };
}

// Rows of a buffer.
function rows(flat, count) {
  const width = flat.length / count;
  return Array.from({ length: count }, (_, i) => flat.slice(i * width, (i + 1) * width));
}

const WAITING = "options?{signal}";
checked(Context.prototype, "Context", {
  info: "", begin: "tokens, options?", beginEmbeddings: "tokens, array, options?", next: WAITING, nextSync: "", generate: "tokens, options?",
  generateText: "tokens, onText?, options?", chat: "messages, options?",
  chatEvents: "messages, onEvent?, options?", poll: "milliseconds?", pollSync: "milliseconds?", wakeFd: "",
  cancel: "", fork: "", reset: "", tokens: "", trimEnd: `count, ${WAITING}`, trimFront: `count, ${WAITING}`,
  checkpoint: "", rewind: "checkpoint", save: `path, ${WAITING}`, load: `path, ${WAITING}`,
  saveArray: WAITING, loadArray: `array, ${WAITING}`,
  setAdapter: "adapter", logprobs: "", logits: "", stats: "",
  promptLogprobs: "tokens, options?{top signal}", promptLogits: `tokens, positions, ${WAITING}`,
  hiddenStates: `tokens, ${WAITING}`, perplexity: "text, options?{window signal}",
});

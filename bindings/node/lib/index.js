// libcowmlx in Node.js: models, contexts and their generations.
import koffi from "koffi";
import { bundledLibrary } from "./bundled.js";

const DONE = 1, ADD_SPECIAL = 1;
const FINISHES = ["none", "stop", "stop_text", "length", "context", "canceled", "timeout"];
const Piece = koffi.struct("cow_mlx_piece", {
  struct_size: "size_t", token: "int32_t", logprob: "float", finish: "int32_t",
});
const PROTOTYPES = {
  version: "const char* cow_mlx_version()",
  error_message: "const char* cow_mlx_error_message()",
  error_details: "int32_t cow_mlx_error_details(_Out_ uint8_t* json, size_t size, _Out_ size_t* length)",
  status_name: "const char* cow_mlx_status_name(int32_t status)",
  runtime_start: "int32_t cow_mlx_runtime_start(void* params)",
  runtime_stop: "int32_t cow_mlx_runtime_stop()",
  model_load: "int32_t cow_mlx_model_load(const char* path, void* params, _Out_ int32_t* model)",
  model_free: "int32_t cow_mlx_model_free(int32_t model)",
  model_tokenize: `int32_t cow_mlx_model_tokenize(int32_t model, const char* text, size_t length,
    uint32_t flags, _Out_ int32_t* tokens, size_t capacity, _Out_ size_t* count)`,
  model_chat_prompt: `int32_t cow_mlx_model_chat_prompt(int32_t model, const char* messages,
    size_t length, const char* options, _Out_ int32_t* tokens, size_t capacity, _Out_ size_t* count)`,
  context_create: "int32_t cow_mlx_context_create(int32_t model, void* params, _Out_ int32_t* context)",
  context_free: "int32_t cow_mlx_context_free(int32_t context)",
  context_begin: `int32_t cow_mlx_context_begin(int32_t context, const int32_t* tokens, size_t count,
    void* params)`,
  context_next: `int32_t cow_mlx_context_next(int32_t context, _Out_ uint8_t* text, size_t capacity,
    _Out_ size_t* length, _Inout_ cow_mlx_piece* piece)`,
  context_cancel: "int32_t cow_mlx_context_cancel(int32_t context)",
  context_info: "int32_t cow_mlx_context_info(int32_t context, _Out_ uint8_t* json, size_t size, _Out_ size_t* length)",
};

let path, functions;

/**
 * Name the shared library, before the first call. Otherwise it is that of the environment's
 * COWMLX_LIBRARY, or the one that npm installed for this platform.
 * @param {string} file
 */
export function useLibrary(file) {
  path = file;
}

/**
 * The library's file.
 * @returns {string}
 */
export function libraryPath() {
  path ??= process.env.COWMLX_LIBRARY || bundledLibrary();
  if (!path) {
    throw new CowMlxError("ENOENT", `no library: npm has no package cowmlx-${process.platform}-`
      + `${process.arch}; call useLibrary() or set COWMLX_LIBRARY`, "missing");
  }
  return path;
}

function native() {
  if (!functions) {
    const library = koffi.load(libraryPath());
    functions = Object.fromEntries(
      Object.entries(PROTOTYPES).map(([name, prototype]) => [name, library.func(prototype)]));
  }
  return functions;
}

/** Why a call failed: a status such as "ENOENT", a message for people, a reason for programs. */
export class CowMlxError extends Error {
  /**
   * @param {string} status
   * @param {string} message
   * @param {string} [reason]
   * @param {object} [details]
   */
  constructor(status, message, reason, details) {
    super(message);
    this.name = "CowMlxError";
    this.status = status;
    this.reason = reason;
    this.details = details;
  }
}

const text = (buffer, length) => buffer.toString("utf8", 0, Number(length[0]));

function check(status) {
  if (status >= 0) return status;
  const json = Buffer.alloc(4096), length = [0];
  native().error_details(json, json.length, length);
  const { reason, details } = JSON.parse(text(json, length));
  throw new CowMlxError(native().status_name(status), native().error_message(), reason, details);
}

// A call that waits, made on a thread of koffi's. The error message belongs to that thread; the
// context tells it to this one.
async function wait(name, context, ...rest) {
  const held = [context, ...rest]; // koffi uses the memory of arrays itself, until the call ends
  const status = await new Promise((resolve, reject) =>
    native()[name].async(...held, (error, status) => (error ? reject(error) : resolve(status))));
  if (status >= 0) return status;
  const json = Buffer.alloc(16384), length = [0];
  check(native().context_info(context, json, json.length, length));
  const { message, reason, details } = JSON.parse(text(json, length)).error ?? {};
  throw new CowMlxError(native().status_name(status), message, reason, details);
}

/** The library's version. */
export const version = () => native().version();

/** The runtime runs as long as one of these is open. */
export class Runtime {
  constructor() {
    check(native().runtime_start(null));
  }

  /** Undo the start. The last one frees all that is open. */
  close() {
    check(native().runtime_stop());
  }
}

/** A loaded model. */
export class Model {
  #handle = [0];

  /** @param {string} path */
  static async load(path) {
    const model = new Model();
    check(native().model_load(path, null, model.#handle));
    return model;
  }

  /**
   * Turn text into tokens.
   * @param {string} text
   * @param {{addSpecial?: boolean}} [options]
   * @returns {Int32Array}
   */
  tokenize(text, { addSpecial = false } = {}) {
    const flags = addSpecial ? ADD_SPECIAL : 0, size = Buffer.byteLength(text);
    return this.#tokens(size + 16, (...room) =>
      native().model_tokenize(this.#handle[0], text, size, flags, ...room));
  }

  /**
   * The tokens of a conversation, by the model's chat template.
   * @param {object[]} messages  such as {role: "user", content: "Hello"}
   * @param {object} [options]  as cow_mlx_model_chat_prompt() names them
   * @returns {Int32Array}
   */
  chatPrompt(messages, options) {
    const json = JSON.stringify(messages), given = options ? JSON.stringify(options) : null;
    return this.#tokens(4096, (...room) => native().model_chat_prompt(
      this.#handle[0], json, Buffer.byteLength(json), given, ...room));
  }

  #tokens(capacity, call) {
    const count = [0];
    let tokens = new Int32Array(capacity), status = call(tokens, capacity, count);
    if (status < 0 && Number(count[0]) > capacity) {
      tokens = new Int32Array(Number(count[0]));
      status = call(tokens, tokens.length, count);
    }
    check(status);
    return tokens.slice(0, Number(count[0]));
  }

  /** A new context. */
  context() {
    const handle = [0];
    check(native().context_create(this.#handle[0], null, handle));
    return new Context(handle[0]);
  }

  /** Free the model; its contexts go on. */
  close() {
    check(native().model_free(this.#handle[0]));
  }
}

/** A sequence of tokens with its cache; Model.context() makes one. One call at a time runs on it. */
export class Context {
  #handle;

  /** Why the last generation ended, such as "stop" or "length"; "none" before its end. */
  finish = "none";

  /** @param {number} handle */
  constructor(handle) {
    this.#handle = handle;
  }

  /**
   * Process a prompt and generate: pieces, one after the other. A loop may be left early.
   * @param {Int32Array | number[]} tokens
   * @returns {AsyncGenerator<{text: string, token: number}, void, void>}
   */
  async *generate(tokens) {
    await wait("context_begin", this.#handle, Int32Array.from(tokens), tokens.length, null);
    const buffer = Buffer.alloc(1024), length = [0];
    const piece = { struct_size: koffi.sizeof(Piece), token: -1, logprob: 0, finish: 0 };
    let ended = false;
    try {
      while ((await wait("context_next", this.#handle, buffer, buffer.length, length, piece)) !== DONE) {
        yield { text: text(buffer, length), token: piece.token };
      }
      ended = true;
      this.finish = FINISHES[piece.finish] ?? "none";
    } finally {
      if (!ended) this.cancel();
    }
  }

  /** End the generation under way. */
  cancel() {
    check(native().context_cancel(this.#handle));
  }

  /** Free the context. */
  close() {
    check(native().context_free(this.#handle));
  }
}

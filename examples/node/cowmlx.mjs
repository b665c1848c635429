// libcowmlx for an event loop: no call here waits on the loop's thread, and none keeps a thread of
// libuv's pool while a model thinks. Calls return at once; what comes lies ready, and a descriptor
// tells the loop of it.
import fs from "node:fs";
import net from "node:net";
import koffi from "koffi";

const DONE = 1, TIMED_OUT = -12, NUL = -1n, TEXT = 1, REASONING = 2, TOOL_CALL = 3;
const ADD_SPECIAL = 1;
const FINISHES = ["none", "stop", "stop_text", "length", "context", "canceled", "timeout"];

const Piece = koffi.struct("cow_mlx_piece", {
  struct_size: "size_t", token: "int32_t", logprob: "float", finish: "int32_t",
});
const Event = koffi.struct("cow_mlx_event", {
  struct_size: "size_t", kind: "int32_t", text: "const char*", length: "size_t",
  name: "const char*", finish: "int32_t",
});
// The first members of cow_mlx_generation_params: the library takes a shorter struct, too.
const Params = koffi.struct("cow_mlx_generation_params", {
  struct_size: "size_t", max_tokens: "size_t", temperature: "float", top_p: "float",
});

const declare = (library, result, names) => Object.fromEntries(Object.entries(names).map(
  ([name, parameters]) => [name, library.func(`${result} cow_mlx_${name}(${parameters})`)]));

const STATUSES = {
  runtime_start: "void* params", runtime_stop: "",
  error_details: "_Out_ uint8_t* json, size_t capacity, _Out_ size_t* length",
  model_load_async: "const char* path, void* params, _Out_ int32_t* model",
  model_poll: "int32_t model, uint32_t timeout_ms",
  model_wake_fd: "int32_t model, _Out_ int32_t* fd",
  model_tokenize: "int32_t model, const char* text, size_t length, uint32_t flags, " +
    "_Out_ int32_t* tokens, size_t capacity, _Out_ size_t* count",
  model_free: "int32_t model",
  context_create: "int32_t model, void* params, _Out_ int32_t* context",
  context_free: "int32_t context",
  context_begin_async: "int32_t context, const int32_t* tokens, size_t count, " +
    "cow_mlx_generation_params* params",
  context_chat_async: "int32_t context, const char* messages, uint64_t length, " +
    "cow_mlx_generation_params* params, const char* options",
  context_poll: "int32_t context, uint32_t timeout_ms",
  context_wake_fd: "int32_t context, _Out_ int32_t* fd",
  context_next: "int32_t context, _Out_ uint8_t* text, size_t capacity, _Out_ size_t* length, " +
    "_Inout_ cow_mlx_piece* piece",
  context_next_event: "int32_t context, _Inout_ cow_mlx_event* event",
  context_cancel: "int32_t context",
};

// Why a call failed: for people a message, for programs a status, a reason and its details.
export class CowMlxError extends Error {
  constructor(status, message, { reason, details }) {
    super(message);
    Object.assign(this, { status, reason, details });
  }
}

export class Runtime {
  constructor(path) {
    const library = koffi.load(path);
    this.calls = declare(library, "int32_t", STATUSES);
    this.message = library.func("const char* cow_mlx_error_message()");
    this.statusName = library.func("const char* cow_mlx_status_name(int32_t status)");
    this.defaults = library.func(
      "void cow_mlx_generation_params_init(_Out_ cow_mlx_generation_params* params, size_t size)");
    this.check(this.calls.runtime_start(null));
  }

  stop() {
    this.check(this.calls.runtime_stop());
  }

  // The failure of the call that this thread has just made.
  check(status) {
    if (status >= 0) return status;
    const json = Buffer.alloc(4096), length = [0];
    this.calls.error_details(json, json.length, length);
    const told = JSON.parse(json.toString("utf8", 0, Number(length[0])));
    throw new CowMlxError(this.statusName(status), this.message(), told);
  }

  // A call that waits for a turn of the library's, some milliseconds: on a thread of the pool. Its
  // message stays there, so that only the status is known here.
  brief(name, ...values) {
    return new Promise((resolve, reject) => this.calls[name].async(...values, (error, status) => {
      if (!error && status >= 0) return resolve(status);
      const name_ = error ? "" : this.statusName(status);
      reject(error ?? new CowMlxError(name_, `${name}: ${name_}`, { reason: "", details: {} }));
    }));
  }

  // {maxTokens, temperature, topP} as C has them.
  params(options) {
    const params = {};
    this.defaults(params, koffi.sizeof(Params));
    params.max_tokens = options.maxTokens ?? params.max_tokens;
    params.temperature = options.temperature ?? params.temperature;
    params.top_p = options.topP ?? params.top_p;
    return params;
  }

  // Calls take() whenever a descriptor says that there is something, until it returns true. The
  // loop can only wait by reading: the library puts back what it still needs. It reads by a
  // descriptor of its own, since a socket closes what it has.
  watch(fd, take) {
    return new Promise((resolve, reject) => {
      const own = fs.openSync(`/dev/fd/${fd}`, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
      const socket = new net.Socket({ fd: own, readable: true, writable: false });
      const end = (settle, value) => { socket.destroy(); settle(value); };
      const look = () => {
        try {
          if (take()) end(resolve);
        } catch (error) {
          end(reject, error);
        }
      };
      socket.on("data", look);
      socket.on("error", (error) => end(reject, error));
      socket.on("end", look); // what was waited for is freed
      look();
    });
  }

  async load(path) {
    const model = [0], fd = [0];
    this.check(this.calls.model_load_async(path, null, model));
    try {
      this.check(this.calls.model_wake_fd(model[0], fd));
      await this.watch(fd[0], () => this.isThere(this.calls.model_poll(model[0], 0)));
    } catch (error) {
      await this.brief("model_free", model[0]);
      throw error;
    }
    return new Model(this, model[0]);
  }

  isThere(status) {
    return status !== TIMED_OUT && this.check(status) >= 0;
  }
}

class Model {
  constructor(runtime, handle) {
    Object.assign(this, { runtime, handle });
  }

  async context() {
    const context = [0];
    await this.runtime.brief("context_create", this.handle, null, context);
    return new Context(this.runtime, context[0]);
  }

  async tokenize(text) {
    const tokens = new Int32Array(Buffer.byteLength(text) + 8), count = [0];
    await this.runtime.brief("model_tokenize", this.handle, text, Buffer.byteLength(text),
                             ADD_SPECIAL, tokens, tokens.length, count);
    return tokens.subarray(0, Number(count[0]));
  }

  free() {
    return this.runtime.brief("model_free", this.handle);
  }
}

class Context {
  constructor(runtime, handle) {
    Object.assign(this, { runtime, handle, text: Buffer.alloc(1024), length: [0] });
  }

  cancel() {
    this.runtime.calls.context_cancel(this.handle);
  }

  free() {
    return this.runtime.brief("context_free", this.handle);
  }

  // The texts of a generation; the iterator returns why it ended. options: maxTokens,
  // temperature, topP, signal (an AbortSignal).
  generate(tokens, options = {}) {
    const { calls } = this.runtime;
    const params = this.runtime.params(options);
    this.runtime.check(calls.context_begin_async(this.handle, tokens, tokens.length, params));
    return this.#stream(() => this.#next(), options.signal);
  }

  // The events of an answer, {kind: "text" | "reasoning" | "tool_call", text, name}. options: also
  // tools, toolChoice.
  chat(messages, options = {}) {
    const { tools, toolChoice: tool_choice } = options;
    const told = JSON.stringify(tools ? { tools, tool_choice } : {});
    const params = this.runtime.params(options);
    this.runtime.check(this.runtime.calls.context_chat_async(
      this.handle, JSON.stringify(messages), NUL, params, told));
    return this.#stream(() => this.#nextEvent(), options.signal);
  }

  #next() {
    const { calls } = this.runtime;
    const piece = { struct_size: koffi.sizeof(Piece), token: -1, logprob: 0, finish: 0 };
    const status = this.runtime.check(
      calls.context_next(this.handle, this.text, this.text.length, this.length, piece));
    if (status === DONE) return { done: true, value: FINISHES[piece.finish] };
    return { done: false, value: this.text.toString("utf8", 0, Number(this.length[0])) };
  }

  #nextEvent() {
    const event = { struct_size: koffi.sizeof(Event), kind: 0, text: null, length: 0, name: null,
                    finish: 0 };
    const status = this.runtime.check(
      this.runtime.calls.context_next_event(this.handle, event));
    if (status === DONE) return { done: true, value: FINISHES[event.finish] };
    const kind = { [TEXT]: "text", [REASONING]: "reasoning", [TOOL_CALL]: "tool_call" }[event.kind];
    return { done: false, value: { kind, text: event.text, name: event.name } };
  }

  // What next() gives, as soon as the descriptor says that there is some. Leaving the loop, and the
  // signal, cancel.
  async *#stream(next, signal) {
    const { calls } = this.runtime;
    const fd = [0], ready = [];
    let wake = () => {}, failure, ended = false;
    this.runtime.check(calls.context_wake_fd(this.handle, fd));
    const cancel = () => this.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) cancel();
    const watched = this.runtime.watch(fd[0], () => {
      while (!ended && this.runtime.isThere(calls.context_poll(this.handle, 0))) {
        ready.push(next());
        ended = ready.at(-1).done;
      }
      wake();
      return ended;
    }).catch((error) => { failure = error; ended = true; wake(); });
    try {
      for (;;) {
        while (ready.length) {
          const { done, value } = ready.shift();
          if (done) return value;
          yield value;
        }
        if (failure) throw failure;
        await new Promise((resolve) => { wake = resolve; if (ready.length || failure) resolve(); });
      }
    } finally {
      signal?.removeEventListener("abort", cancel);
      if (!ended) cancel();
      await watched; // so that the context is idle again
    }
  }
}

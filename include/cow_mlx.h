/*
 * libcowmlx: language models on mlx, for any program that can dlopen.
 * Copyright (c) 2026 the libcowmlx authors. MIT licence.
 *
 * INTRODUCTION
 *
 * A host starts the runtime, loads a model folder, opens a context on it and
 * asks for text:
 *
 *     cow_mlx_runtime_start(NULL);
 *     cow_mlx_model_load("models/calf", NULL, &model);
 *     cow_mlx_context_create(model, NULL, &context);
 *     cow_mlx_model_chat_prompt(model, messages, COW_MLX_NUL, NULL, tokens, 512, &count);
 *     cow_mlx_context_generate(context, tokens, count, NULL, on_text, NULL, NULL);
 *     cow_mlx_runtime_stop();
 *
 * Behind these calls one dispatch thread owns a Python interpreter, mlx and
 * mlx-lm. The host never sees any of them and may call from any thread.
 *
 * CONVENTIONS
 *
 *  1. Every call that can fail returns a cow_mlx_status: 0 is success, a
 *     negative value an error, COW_MLX_DONE means "no more output". Results go
 *     through out-pointers and are written only on COW_MLX_OK; the size of a
 *     buffer that was too small is the one exception.
 *  2. cow_mlx_error_message() explains the last failed call of this thread to
 *     people, and cow_mlx_error_details() to programs.
 *  3. Handles are positive int32 values; 0 is never one. A freed, stale or
 *     foreign handle is COW_MLX_EHANDLE and never another object: only after 268
 *     million opens of a kind could a stale one be. 65,535 of a kind can be open
 *     at once. Handles may be passed between threads. Only handles have to be
 *     freed.
 *  4. Parameters travel in structs that start with struct_size and are filled
 *     by their _init function, which is told their size. NULL stands for all
 *     defaults. Structs only ever grow at their end, so a host that was compiled
 *     earlier keeps working.
 *  5. Text is a pointer and a length in bytes: UTF-8, NUL bytes allowed.
 *     A length of COW_MLX_NUL means that the text ends at its first NUL byte.
 *     Paths are UTF-8 too, and end at their NUL byte. JSON may nest 256 levels deep.
 *  6. Results of variable size go to (buffer, capacity, *length). Too small a
 *     capacity is COW_MLX_EBUFFER: *length receives the size needed, and nothing
 *     is consumed, so the call can be made again. A NULL buffer with capacity 0
 *     asks for the size and returns COW_MLX_OK. Text is NUL-terminated where
 *     there is room for the terminator; *length never counts it.
 *  7. Callbacks run on the thread that made the call, while it waits. They may
 *     block and may call the library. Returning false cancels the call. A
 *     callback must return: leaving one by longjmp(), by pthread_exit() or by
 *     an exception that passes through the library is undefined.
 *  8. Every function may be called from any thread once the runtime has started.
 *     Calls on one context are made one at a time: a second one while the first
 *     still runs is COW_MLX_ESTATE. Always allowed are cow_mlx_context_cancel(),
 *     and looking on: cow_mlx_context_info(), _tokens() and _stats().
 *  9. What a model, its cache or this build cannot honour is refused with
 *     COW_MLX_EUNSUPPORTED and the reason. No option is ignored.
 *
 * Statuses that any call may return, and that are not repeated below:
 * COW_MLX_EINVAL (an argument is NULL, out of range or malformed),
 * COW_MLX_EHANDLE, COW_MLX_ESTATE (the runtime is not running),
 * COW_MLX_ECANCELED (the runtime was stopped meanwhile), COW_MLX_EFORK (called
 * in a forked child), COW_MLX_ENOMEM (too little memory, or no more threads),
 * COW_MLX_EIO (too many open files, or the system failed a read or write) and
 * COW_MLX_EINTERNAL (a bug of ours; the message says where). After ENOMEM and EIO
 * the same call can be made again. A fault of ours that is no single call's ends
 * every call that waits with COW_MLX_EINTERNAL and frees every handle, as a stop
 * does; the runtime still runs, so models can be loaded again. The log is warned.
 *
 * A child that is forked while the runtime runs can make no calls, and ends with
 * _exit() or an exec function: exit() would run the destructors of libraries
 * whose threads it does not have.
 *
 * pthread_cancel() waits for the library: in a call, its callbacks included, the
 * thread cannot be cancelled, and it ends at its next cancellation point after it.
 * A callback leaves that state as it is. In a signal handler only
 * cow_mlx_context_cancel() may be called.
 *
 * Unless its entry says otherwise, a function is thread-safe, blocks until its
 * result is there, and exists since version 1.0.
 */
#ifndef COW_MLX_H
#define COW_MLX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define COW_MLX_API __attribute__((visibility("default")))
#else
#define COW_MLX_API
#endif

/* ------------------------------------------------------------- Constants */

/** The version of this header; cow_mlx_version() gives that of the library. */
#define COW_MLX_VERSION "1.0.0"

/** Changes, and the library's soname with it, when compatibility breaks. */
#define COW_MLX_ABI_VERSION 1

/** As the length of a text: "up to its first NUL byte". */
#define COW_MLX_NUL SIZE_MAX

/** The one list of statuses: X(name, value, meaning). */
#define COW_MLX_STATUSES(X)                                        \
  X(OK, 0, "success")                                              \
  X(DONE, 1, "no more output")                                     \
  X(EINVAL, -1, "bad argument")                                    \
  X(EHANDLE, -2, "unknown, freed or wrong-kind handle")            \
  X(ESTATE, -3, "not valid now")                                   \
  X(ENOENT, -4, "no such file or directory")                       \
  X(EFORMAT, -5, "malformed or mismatched file")                   \
  X(EUNSUPPORTED, -6, "this model, cache or build cannot do that") \
  X(EBUFFER, -7, "buffer too small; the size needed was written")  \
  X(ECONTEXT, -8, "context window full")                           \
  X(ECANCELED, -9, "canceled")                                     \
  X(ENOMEM, -10, "out of memory")                                  \
  X(EIO, -11, "input or output failed")                            \
  X(ETIMEDOUT, -12, "timed out")                                   \
  X(EFORK, -13, "called in a forked child")                        \
  X(EINTERNAL, -127, "internal error")

/**
 * The one list of reasons why a call fails: X(name, details, meaning), where details are the keys
 * that cow_mlx_error_details() may have with it. More come in later versions.
 */
#define COW_MLX_REASONS(X)                                                                     \
  X(null_argument, "argument", "a pointer is NULL")                                            \
  X(out_of_range, "argument, value, accepted", "a value that is not accepted")                 \
  X(unknown_option, "argument, value", "an option, key or member that nobody reads")           \
  X(conflict, "argument, other", "two arguments exclude each other")                           \
  X(wrong_type, "argument, accepted", "JSON of another type")                                  \
  X(missing, "argument", "an argument has nothing in it, or lacks something")                  \
  X(invalid_utf8, "argument, file, byte", "text that is no UTF-8")                             \
  X(invalid_json, "argument, line, column, byte", "text that is no JSON")                      \
  X(invalid_grammar, "argument, line, column", "a grammar that does not compile")              \
  X(limit_exceeded, "argument, file, needed, limit", "more than is supported")                 \
  X(foreign_handle, "handle, kind", "of another model or context")                             \
  X(template_refused, "", "the chat template refuses the conversation")                        \
  X(unknown_handle, "handle, kind", "not an open handle of the kind")                          \
  X(not_running, "", "the runtime is not running")                                             \
  X(other_parameters, "", "the runtime runs with other parameters")                            \
  X(context_busy, "", "another call is running on the context")                                \
  X(nothing_begun, "", "nothing has begun on the context")                                     \
  X(nothing_there, "", "there is none yet, or no more; the message says of what")              \
  X(piece_waiting, "", "a piece has to be taken first")                                        \
  X(adapter_changed, "", "the context has another adapter now")                                \
  X(file_not_found, "file", "no such file or folder")                                          \
  X(python_not_found, "argument, file", "no usable Python")                                    \
  X(package_not_found, "package", "the Python lacks a package")                                \
  X(malformed_file, "file, key, line, column, byte", "a file that is not what it should be")   \
  X(invalid_config, "file, key, value, accepted", "a key of a configuration is unusable")      \
  X(weights_mismatch, "file", "weights and configuration differ")                              \
  X(invalid_wiring, "file, block", "a wiring that is none")                                    \
  X(invalid_tokenizer, "file", "a tokenizer that is unusable")                                 \
  X(invalid_template, "line", "a chat template that is unusable")                              \
  X(saved_context_mismatch, "file", "saved with another model or version")                     \
  X(unsupported, "argument, value, file", "the model, its cache or this build cannot")         \
  X(unknown_architecture, "value", "no such architecture")                                     \
  X(untrusted_code, "file, value", "code in a folder, which trust_remote_code does not allow") \
  X(package_unusable, "package", "a package cannot be imported")                               \
  X(device_missing, "argument, value", "this machine has no such device")                      \
  X(python_mismatch, "argument, file", "the process runs another Python")                      \
  X(sub_interpreter, "", "called in a sub-interpreter of Python")                              \
  X(library_mismatch, "", "the library and its package do not belong together")                \
  X(buffer_too_small, "needed, capacity", "elements that the buffer lacks")                    \
  X(context_full, "argument, file, needed, available", "tokens that the context lacks")        \
  X(callback_refused, "", "a callback returned false")                                         \
  X(canceled, "", "the context was cancelled")                                                 \
  X(freed, "", "what the call used was freed")                                                 \
  X(runtime_stopped, "", "the runtime was stopped")                                            \
  X(no_memory, "needed", "too little memory; bytes needed")                                    \
  X(no_threads, "needed", "too few threads can be started")                                    \
  X(no_handles, "kind, limit", "as many handles are open as there can be")                     \
  X(no_descriptors, "limit", "too many open files")                                            \
  X(read_failed, "file", "the system failed a read")                                           \
  X(write_failed, "file", "the system failed a write")                                         \
  X(timed_out, "argument, value", "the call's time is over")                                   \
  X(forked, "", "called in a forked child")                                                    \
  X(internal, "", "a bug of ours")

typedef int32_t cow_mlx_status;

enum {
#define COW_MLX_STATUS_ENUMERATOR(name, value, meaning) COW_MLX_##name = value,
  COW_MLX_STATUSES(COW_MLX_STATUS_ENUMERATOR)
#undef COW_MLX_STATUS_ENUMERATOR
};

/** A model: weights, tokenizer and chat template of one folder. */
typedef int32_t cow_mlx_model;

/** A context: one sequence of tokens and its cache. */
typedef int32_t cow_mlx_context;

/** A LoRA or DoRA adapter of one model. */
typedef int32_t cow_mlx_adapter;

/** What a context held at one moment. */
typedef int32_t cow_mlx_checkpoint;

/** Reserved: an array. Below 2^53, so that JavaScript's numbers hold every one. */
typedef int64_t cow_mlx_array;

/** A text, where a call takes several: UTF-8, or COW_MLX_NUL as its length. */
typedef struct cow_mlx_text {
  const char* data;
  size_t length;
} cow_mlx_text;

/* --------------------------------------------------- Versions and errors */
/* These never block and work before the runtime has started. */

/** The library's version, such as "1.0.0". */
COW_MLX_API const char* cow_mlx_version(void);

/** The library's COW_MLX_ABI_VERSION. A host that dlopens compares it. */
COW_MLX_API uint32_t cow_mlx_abi_version(void);

/** The name of a status, such as "EINVAL"; "UNKNOWN" for any other value. */
COW_MLX_API const char* cow_mlx_status_name(cow_mlx_status status);

/**
 * What went wrong in the last call that this thread made, cow_mlx_context_cancel() and
 * cow_mlx_error_details() aside.
 *
 * Names the operation, the value and what would be accepted. Never NULL; ""
 * after a call that did not fail. Valid until the thread's next call. Of a call
 * on a context, cow_mlx_context_info() tells other threads.
 */
COW_MLX_API const char* cow_mlx_error_message(void);

/**
 * The same for programs, as a JSON object: "operation" (the call's name without cow_mlx_), "reason"
 * (a name of COW_MLX_REASONS) and "details" (an object, of values that are texts and numbers). {}
 * after a call that did not fail. The keys come in this order. So top_p of 1.5 is {"operation":
 * "context_begin", "reason": "out_of_range", "details": {"argument": "top_p", "value": 1.5,
 * "accepted": "above 0 and at most 1"}}.
 *
 * "argument" is a parameter, a member of params, or a place in JSON, such as "messages[2].role"; a
 * "file" is named as in the message. A detail that is not known, or would be long, is left out.
 *
 * Neither the message nor the details are changed by this call, except by COW_MLX_EINVAL of its
 * own; so one whose buffer was too small can be made again.
 *
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_error_details(char* buffer, size_t capacity, size_t* length);

/* --------------------------------------------------------------- Runtime */

/** Levels of log messages, from the rarest to the most frequent. */
enum {
  COW_MLX_LOG_OFF = 0,
  COW_MLX_LOG_WARNING = 1, /**< works, but not as one would expect */
  COW_MLX_LOG_INFO = 2     /**< what was started, loaded, chosen */
};

/** Receives one message, on the thread of the call that caused it and as that call
 *  ends: user_data lives until every call made before the last stop has returned. */
typedef void (*cow_mlx_log_fn)(int32_t level, const char* message, void* user_data);

typedef struct cow_mlx_runtime_params {
  size_t struct_size;
  const char* python_home; /**< Python installation or virtual environment to boot, never "";
                                NULL: the library's own search (docs/guides/python.md) */
  const char* device;      /**< "gpu", "cpu", or NULL for the best there is */
  uint64_t memory_limit;   /**< bytes mlx may hold before it waits and frees; 0: mlx's default */
  uint64_t cache_limit;    /**< bytes of freed buffers mlx may keep; 0: mlx's default */
  cow_mlx_log_fn log;      /**< NULL: no log */
  void* log_user_data;
  int32_t log_level; /**< messages up to this level are delivered; default INFO */
} cow_mlx_runtime_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_runtime_params_init(cow_mlx_runtime_params* params, size_t size);

/**
 * Start the runtime: boot the interpreter, or join the one that the process
 * already runs, and start the dispatch thread.
 *
 * Counted: a second start returns at once and needs a second stop.
 *
 * @param params  NULL for the defaults, which also means "as it runs" when the
 *                runtime is running already
 * @retval COW_MLX_ESTATE        the runtime runs with other parameters
 * @retval COW_MLX_ENOENT        no usable Python was found, and the message lists where it was
 *                               looked for; or the Python that was found lacks mlx
 * @retval COW_MLX_EUNSUPPORTED  this machine has no such device, the process runs a Python of
 *                               another version, this is a sub-interpreter of it, or mlx cannot
 *                               be loaded into it
 * @retval COW_MLX_EIO           the process, or the system, has too many open files
 */
COW_MLX_API cow_mlx_status cow_mlx_runtime_start(const cow_mlx_runtime_params* params);

/**
 * Undo one start. The last stop cancels what runs (blocked calls return
 * COW_MLX_ECANCELED), frees every handle and parks the interpreter; a later
 * start resumes it.
 *
 * A process may end without it.
 *
 * @retval COW_MLX_ESTATE  the runtime is not running
 */
COW_MLX_API cow_mlx_status cow_mlx_runtime_stop(void);

/**
 * Tell about the runtime, as a JSON object: versions ("library", "abi", "python", "mlx", "mlx_lm"),
 * "interpreter" ("booted" or "joined"), paths ("python_home", null if joined; "libpython",
 * "mlx_path", "mlx_lm_path"), "device",
 * "blas" (what matrix products on a CPU are computed with: "openblas", "reference" or
 * "accelerate"), "blas_problem" (why it is not the best one, or null),
 * "architectures" (list of model_type), "memory" (bytes: "active", "cache",
 * "peak", "limit") and "handles" (open ones by kind: "model", "context", "adapter", "checkpoint").
 *
 * Where the runtime does not start at all, `python -m cowmlx doctor` tells why.
 */
COW_MLX_API cow_mlx_status cow_mlx_runtime_info(char* buffer, size_t capacity, size_t* length);

/** Give the buffers that mlx keeps for reuse, and the prompts that models keep for new contexts,
 *  back to the system. */
COW_MLX_API cow_mlx_status cow_mlx_memory_trim(void);

/* ---------------------------------------------------------------- Models */

/**
 * Progress of a long call.
 *
 * @param fraction  rises from 0 to 1
 * @param stage     what is being done, such as "weights"
 * @return false to cancel the call
 */
typedef bool (*cow_mlx_progress_fn)(float fraction, const char* stage, void* user_data);

typedef struct cow_mlx_model_params {
  size_t struct_size;
  const char* adapter_path;     /**< folder of a LoRA adapter to apply, or NULL */
  cow_mlx_progress_fn progress; /**< or NULL */
  void* user_data;
  bool lazy;                   /**< leave the weights on disk until they are first used */
  bool trust_remote_code;      /**< let Python code in the model folder run. Off by default */
  uint64_t prefix_cache_bytes; /**< of processed prompts kept for the model's other contexts;
                                    default 256 MiB, 0: none */
} cow_mlx_model_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_model_params_init(cow_mlx_model_params* params, size_t size);

/**
 * Load a model folder in the Hugging Face layout: config.json, *.safetensors,
 * tokenizer.json, optionally a chat template. Never touches the network.
 *
 * Progress is that of weights really in memory, group by group; a false from
 * the callback cancels before the next group and frees what was loaded.
 * Contexts of other models go on generating meanwhile.
 *
 * A tokenizer.json must not make much of little, since no text is safe with one that does: its
 * normalizer and pre-tokenizer at most 8192 bytes of one, its decoder 64, its post-processor 1024
 * tokens around a text; none of its patterns may take exponential or cubic time; it has at most
 * 16384 added tokens, and none of more than 4096 characters. Its settings of truncation and
 * padding are not used.
 *
 * @param out  receives the handle
 * @retval COW_MLX_ENOENT        the folder, or a file it needs, is missing
 * @retval COW_MLX_EFORMAT       a file is malformed, or weights and config differ; tokenizer.json
 *                               passes a bound (the message names the component and the number)
 * @retval COW_MLX_EUNSUPPORTED  unknown architecture, or the folder brings code
 *                               and trust_remote_code is off
 * @retval COW_MLX_ECANCELED     the progress callback returned false
 */
COW_MLX_API cow_mlx_status cow_mlx_model_load(const char* path, const cow_mlx_model_params* params,
                                              cow_mlx_model* out);

/** Free the handle. The weights live until the model's last context is freed. */
COW_MLX_API cow_mlx_status cow_mlx_model_free(cow_mlx_model model);

/**
 * Tell about a model, as a JSON object:
 *
 * - "architecture", "path", "parameters", "bytes", "quantization" (as in config.json, or null).
 * - "route": "light", or "mlx-lm" where the whole of mlx-lm was needed.
 * - "context_length" (tokens), "vocabulary_size" (logits), "tokenizer_size" (tokens with a text).
 * - "bos_token", "eos_token" ({"id": 1, "text": "<s>"}, or null), "special_tokens" (the same by
 *   name) and "end_tokens" (a list of the same).
 * - "chat_template" and "tools": whether there is one, and whether it renders tools.
 * - "tool_parser" (the format of tool calls, or null) and "tool_markers" (the texts at their
 *   "start" and "end", or null).
 * - "thinking" (whether the model marks its thinking) and "thinking_markers" (with what, or null).
 * - "cache": how a context of the model does "trim_end", "trim_front", "fork", "quantise" and
 *   "draft": "in_place", "recomputed" or "no". With a sliding window "in_place" holds until the
 *   window is full: then trim_end recomputes, and nothing is guessed.
 */
COW_MLX_API cow_mlx_status cow_mlx_model_info(cow_mlx_model model, char* buffer, size_t capacity,
                                              size_t* length);

/** Flags of tokenize and detokenize. */
enum {
  COW_MLX_ADD_SPECIAL = 1,   /**< tokenize: add the tokens that open (and close) a text */
  COW_MLX_PARSE_SPECIAL = 2, /**< tokenize: read "<|end|>" in the text as the special token.
                                  Without it such text is plain text: use it only for
                                  text that the host wrote itself */
  COW_MLX_SKIP_SPECIAL = 4   /**< detokenize: leave special tokens out */
};

/**
 * Turn text into tokens.
 *
 * A long text is tokenized in parts of some ten milliseconds, between which contexts go on
 * generating; its tokens are those of the whole. It is cut only where the tokenizer never looks
 * across, as between words. Where there is no such place, 1048576 characters at most are taken in
 * one piece; 32768 if a pattern of the tokenizer.json may take quadratic time, and fewer if it
 * makes more than 31 bytes of one.
 *
 * @param text    UTF-8; may be NULL if length is 0
 * @param flags   COW_MLX_ADD_SPECIAL, COW_MLX_PARSE_SPECIAL
 * @param tokens  receives the token ids
 * @param count   receives how many there are
 * @retval COW_MLX_EINVAL     the text is not UTF-8 (the message gives the byte), or has a piece
 *                            without a cut that is too long
 * @retval COW_MLX_EBUFFER    capacity is too small; *count is the size needed
 * @retval COW_MLX_ECANCELED  the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_tokenize(cow_mlx_model model, const char* text,
                                                  size_t length, uint32_t flags, int32_t* tokens,
                                                  size_t capacity, size_t* count);

/**
 * Turn tokens into text; bytes that are no UTF-8 become U+FFFD.
 *
 * Contexts go on generating between the parts of many tokens.
 *
 * @param tokens  may be NULL if count is 0
 * @param flags   COW_MLX_SKIP_SPECIAL
 * @retval COW_MLX_EINVAL     a token is not in the vocabulary
 * @retval COW_MLX_ENOMEM     also: the text has more than 1073741824 characters
 * @retval COW_MLX_EBUFFER    capacity is too small; *length is the size needed
 * @retval COW_MLX_ECANCELED  the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_detokenize(cow_mlx_model model, const int32_t* tokens,
                                                    size_t count, uint32_t flags, char* buffer,
                                                    size_t capacity, size_t* length);

/** Whether a token ends a generation. Tokens outside the vocabulary do not. */
COW_MLX_API cow_mlx_status cow_mlx_model_is_end(cow_mlx_model model, int32_t token, bool* out);

/**
 * Render a conversation with the model's own chat template, and tokenize it.
 *
 * Text of special tokens inside the messages stays plain text, so that a user
 * cannot speak in another role's name. Contexts go on generating between the parts of a long
 * prompt, as for cow_mlx_model_tokenize().
 *
 * The template is code of the model's folder, which need not be trusted: a render
 * of it, or its compilation on the first call, ends within one second of processor
 * time, 2,000,000 steps and 64 MB of memory, and may write four times what it was
 * given and 262,144 characters more.
 *
 * Options are an object; null stands for an option's default:
 *
 * - "tools": a list of objects, as OpenAI's services take them.
 * - "tool_choice": "auto" (default); "none": the tools are not offered; "required", or the name of
 *   a tool, plain or as {"type": "function", "function": {"name": ...}}: checked here, and
 *   enforced by cow_mlx_context_chat().
 * - "add_generation_prompt": whether the prompt ends where an answer begins; default true, unless a
 *   message is continued.
 * - "continue_final_message": true, or the name of the field to continue; default false.
 * - "enable_thinking": default true where the model marks its thinking. With false, a prompt whose
 *   template does not know the variable is given thinking that has ended.
 * - "parse_special": whether special tokens inside the messages are parsed; default false.
 * - "documents": a list of objects, if the template reads them.
 * - any other variable that the model's template reads.
 *
 * Whatever neither the library nor the template reads is refused. Messages and tools may have keys
 * of any name: templates look into them as they go.
 *
 * @param messages_json  [{"role": "user", "content": "Hello"}, ...]
 * @param length         bytes of messages_json, or COW_MLX_NUL
 * @param options_json   NULL, or an object of options. NUL-terminated
 * @param tokens         receives the token ids
 * @param count          receives how many there are
 * @retval COW_MLX_EINVAL        malformed JSON (line and column), a malformed
 *                               message (its index and key), an option that nobody reads (its
 *                               name and the nearest one), what the template itself refuses, or a
 *                               piece of text that is too long
 * @retval COW_MLX_EFORMAT       the template is malformed (its line), or passes a bound (which one,
 *                               its number, and the line)
 * @retval COW_MLX_EUNSUPPORTED  the model has no chat template, or a message brings an image, sound
 *                               or video
 * @retval COW_MLX_EBUFFER       capacity is too small; *count is the size needed
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_chat_prompt(cow_mlx_model model, const char* messages_json,
                                                     size_t length, const char* options_json,
                                                     int32_t* tokens, size_t capacity,
                                                     size_t* count);

/* -------------------------------------------------------------- Contexts */

/** What happens when a context holds as many tokens as it may. */
enum {
  COW_MLX_OVERFLOW_STOP = 0, /**< a longer prompt is COW_MLX_ECONTEXT, a generation ends */
  COW_MLX_OVERFLOW_ROLL = 1  /**< those behind the first keep_tokens are dropped, a quarter of
                                  them at a time, and the rest is processed again: what
                                  follows is what a fresh context on that rest would give */
};

typedef struct cow_mlx_context_params {
  size_t struct_size;
  size_t max_tokens;     /**< tokens the context may hold; 0: the model's context length */
  int32_t kv_bits;       /**< 0: keys and values in the model's type; 4 or 8: quantised, where
                              model_info says that the cache can "quantise"; only contexts
                              with the same bits and group size share a batch */
  int32_t kv_group_size; /**< values that share a scale: 32, 64 or 128; 0: 64, or 32 where a
                              head is not a multiple of 64 wide */
  bool solo;             /**< never share a batch with other contexts */
  int32_t priority;      /**< below 0: steps only while no other context wants to */
  int32_t overflow;      /**< one of COW_MLX_OVERFLOW_; default STOP */
  size_t keep_tokens;    /**< with ROLL: tokens at the front that are never dropped */
  bool share_prefix;     /**< start from, and leave, processed prompts in the cache that the
                              model's contexts share; default true */
} cow_mlx_context_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_context_params_init(cow_mlx_context_params* params, size_t size);

/**
 * Open a context: an empty sequence with a cache of its own. While it has work it
 * has an mlx stream too, and with it a thread; what begins work is COW_MLX_ENOMEM,
 * and nothing is lost, where none can be started.
 *
 * @param out  receives the handle
 * @retval COW_MLX_EINVAL        max_tokens is more than the model's context length, or
 *                               another value is out of range
 * @retval COW_MLX_EUNSUPPORTED  the model's cache cannot be quantised so
 */
COW_MLX_API cow_mlx_status cow_mlx_context_create(cow_mlx_model model,
                                                  const cow_mlx_context_params* params,
                                                  cow_mlx_context* out);

/**
 * Free a context. A call that another thread has running on it returns
 * COW_MLX_ECANCELED.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_free(cow_mlx_context context);

/**
 * Open a context that holds what another one holds: tokens, state, parameters and adapter.
 *
 * The arrays are shared until either context writes to them. A generation under way is not
 * forked; begin on the new context goes on where the host's tokens end.
 *
 * @param out  receives the handle
 * @retval COW_MLX_ESTATE  another call is running on the context; or a piece has been computed
 *                         that the host has not taken (one that did not fit its buffer, or
 *                         that context_poll or a wake_fd asked for), and the cache cannot drop
 *                         tokens in place
 */
COW_MLX_API cow_mlx_status cow_mlx_context_fork(cow_mlx_context context, cow_mlx_context* out);

/** Forget every token and end the generation; parameters and adapter stay. */
COW_MLX_API cow_mlx_status cow_mlx_context_reset(cow_mlx_context context);

/**
 * The tokens that the cache holds, prompt and generated ones.
 *
 * A generated token enters the cache when it is processed to predict its
 * successor, so the last token of an ended generation may be missing.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_tokens(cow_mlx_context context, int32_t* tokens,
                                                  size_t capacity, size_t* count);

/**
 * Drop the last tokens of a context. A generation under way ends.
 *
 * A cache that cannot drop them (cow_mlx_model_info(), "cache") processes the
 * others again. The next tokens are those of a fresh context on what is left.
 *
 * @param count    more than there are stands for all
 * @param trimmed  receives how many were dropped
 * @retval COW_MLX_ESTATE     another call is running on the context
 * @retval COW_MLX_ECANCELED  cancelled while the others were processed again
 */
COW_MLX_API cow_mlx_status cow_mlx_context_trim_end(cow_mlx_context context, size_t count,
                                                    size_t* trimmed);

/**
 * Drop the first tokens of a context, and let the others move to the front.
 *
 * They are processed again, so that their positions and all that they attended
 * to are right. Otherwise as cow_mlx_context_trim_end().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_trim_front(cow_mlx_context context, size_t count,
                                                      size_t* trimmed);

/**
 * Keep what a context holds, to come back to it: exact for every kind of cache.
 *
 * The arrays are shared until the context writes to them.
 *
 * @param out  receives the handle; it is freed with its context at the latest
 * @retval COW_MLX_ESTATE  as cow_mlx_context_fork()
 */
COW_MLX_API cow_mlx_status cow_mlx_context_checkpoint(cow_mlx_context context,
                                                      cow_mlx_checkpoint* out);

/**
 * Make a context hold what it held at a checkpoint, as often as you like. A generation under
 * way ends.
 *
 * @retval COW_MLX_EINVAL  the checkpoint is another context's
 * @retval COW_MLX_ESTATE  another call is running on the context, or its adapter has changed
 *                         since
 */
COW_MLX_API cow_mlx_status cow_mlx_context_rewind(cow_mlx_context context,
                                                  cow_mlx_checkpoint checkpoint);

/** Free a checkpoint. */
COW_MLX_API cow_mlx_status cow_mlx_checkpoint_free(cow_mlx_checkpoint checkpoint);

/**
 * Write what a context holds to a file (safetensors), so that a later process need not process
 * the tokens again. Other contexts go on meanwhile.
 *
 * The file appears whole or not at all: a failure or a crash leaves the old one.
 *
 * @retval COW_MLX_ENOENT     the folder does not exist
 * @retval COW_MLX_EIO        the file cannot be written
 * @retval COW_MLX_ESTATE     as cow_mlx_context_fork()
 * @retval COW_MLX_ECANCELED  cancelled; nothing was written
 */
COW_MLX_API cow_mlx_status cow_mlx_context_save(cow_mlx_context context, const char* path);

/**
 * Make a context hold what another, perhaps of an earlier process, has saved. A generation under
 * way ends. A call that fails changes nothing.
 *
 * @retval COW_MLX_ENOENT     no such file
 * @retval COW_MLX_EFORMAT    damaged, of another version, or saved with another model, tokenizer,
 *                            adapter, or kv_bits
 * @retval COW_MLX_ECONTEXT   it holds more tokens than this context may
 * @retval COW_MLX_ESTATE     another call is running on the context
 * @retval COW_MLX_ECANCELED  cancelled
 */
COW_MLX_API cow_mlx_status cow_mlx_context_load(cow_mlx_context context, const char* path);

/**
 * Tell about a context, as a JSON object: the effective parameters ("max_tokens", "kv_bits",
 * "kv_group_size", "solo", "priority", "overflow", "keep_tokens", "share_prefix"), "adapter" (the
 * handle it was set with, even if that has been freed since, or null), "tokens" (held now), "bytes"
 * of the cache, "generating", "alone" (why it is never decoded in a batch with other contexts, or
 * null), and of the last begin "prompt" (its tokens), "reused" (those that were not processed
 * again), "shared" (those of them that another context had processed), "recomputed" (held before,
 * and processed again), "dropped" (tokens that rolled out of the window), "first_difference" (index
 * of the first token that was not as this context held it, or null), "rebuilt" (why nothing could
 * be reused, or null) and "batched" (tokens whose step was taken together with other contexts).
 *
 * "error" is for hosts that hear of a call's end on another thread than the one that made it,
 * where cow_mlx_error_message() does not know of it: of the last call on this context that failed
 * {"status": "ECANCELED", "message": "context_begin: ...", "reason": "canceled", "details": {}}, as
 * cow_mlx_error_details() has them, from before it returns until a begin,
 * generate or chat starts; otherwise null. Not told are COW_MLX_EBUFFER, COW_MLX_ETIMEDOUT of a
 * poll, failures of the calls that only look on, and what is refused before it reaches the
 * context (NULL pointers, impossible sizes).
 */
COW_MLX_API cow_mlx_status cow_mlx_context_info(cow_mlx_context context, char* buffer,
                                                size_t capacity, size_t* length);

/* -------------------------------------------------------------- Adapters */

/**
 * Load a LoRA or DoRA adapter for a model: adapter_config.json and adapters.safetensors, as
 * mlx-lm writes them.
 *
 * The model's weights are shared, not copied: contexts of one model can use different adapters,
 * or none, at once.
 *
 * @param scale  how strongly it applies: 1 as it was trained, 0 not at all; any finite number
 * @param out    receives the handle
 * @retval COW_MLX_ENOENT        the folder, or a file it needs, is missing
 * @retval COW_MLX_EFORMAT       malformed, or of another model
 * @retval COW_MLX_EUNSUPPORTED  a kind of adapter that cannot be scaled (DoRA, full), and scale
 *                               is not 1; the model was loaded with an adapter_path
 */
COW_MLX_API cow_mlx_status cow_mlx_adapter_load(cow_mlx_model model, const char* path, float scale,
                                                cow_mlx_adapter* out);

/** Free the handle. The adapter lives until no context uses it. */
COW_MLX_API cow_mlx_status cow_mlx_adapter_free(cow_mlx_adapter adapter);

/**
 * Let a context use an adapter from now on, or none.
 *
 * A change makes it forget its tokens, which other weights have processed.
 *
 * @param adapter  of the context's model; 0: none
 * @retval COW_MLX_EINVAL  the adapter is another model's
 * @retval COW_MLX_ESTATE  another call is running on the context
 */
COW_MLX_API cow_mlx_status cow_mlx_context_set_adapter(cow_mlx_context context,
                                                       cow_mlx_adapter adapter);

/* ------------------------------------------------------------ Generation */

/** How a prompt advances. @return false to cancel the call */
typedef bool (*cow_mlx_prompt_fn)(size_t processed, size_t total, void* user_data);

/** Text as it is generated: whole UTF-8 characters, not NUL-terminated.
 *  @return false to cancel the call */
typedef bool (*cow_mlx_text_fn)(const char* text, size_t length, void* user_data);

/** Kinds of grammar. */
enum {
  COW_MLX_GRAMMAR_NONE = 0,
  COW_MLX_GRAMMAR_JSON_SCHEMA = 1,
  COW_MLX_GRAMMAR_REGEX = 2,
  COW_MLX_GRAMMAR_LARK = 3,
  COW_MLX_GRAMMAR_GBNF = 4
};

/**
 * Sampling follows mlx-lm: bias, then the repetition, presence and frequency penalties on the
 * logits, then the grammar; then top_p, min_p, typical_p, XTC and top_k on the probabilities at
 * temperature 1; then the temperature. The penalties look back on the whole sequence, prompt
 * included, whatever part of it came from a cache.
 *
 * A draft does not change what is generated: the same seed gives the same tokens, but for
 * rounding. It makes a generation faster where it guesses well.
 */
typedef struct cow_mlx_generation_params {
  size_t struct_size;
  size_t max_tokens;        /**< tokens to generate, default 256; 0 only processes the prompt;
                                 SIZE_MAX: until the window is full */
  float temperature;        /**< 0 (default): greedy. At least 0 */
  float top_p;              /**< (0, 1]; 1 (default): off */
  float min_p;              /**< [0, 1]; 0 (default): off */
  float typical_p;          /**< (0, 1]; 1 (default): off (arXiv 2202.00666). Needs a temperature */
  int32_t top_k;            /**< 0 (default): off */
  float xtc_probability;    /**< [0, 1]; 0 (default): off. Needs a temperature */
  float xtc_threshold;      /**< (0, 0.5]; goes with xtc_probability */
  float repetition_penalty; /**< above 0; 1 (default): off (arXiv 1909.05858) */
  size_t repetition_window; /**< tokens that it looks back on, at least 1; default 20 */
  float presence_penalty;   /**< subtracted once from what occurs; 0 (default): off */
  float frequency_penalty;  /**< subtracted for each occurrence; 0 (default): off */
  uint64_t seed;            /**< the same seed gives the same tokens, whatever else runs */
  const int32_t* bias_tokens; /**< tokens whose logits get a bias; all different */
  const float* bias_values;   /**< what is added to each; -INFINITY forbids a token, unless a
                                   grammar allows no other */
  size_t bias_count;          /**< 0 (default): none */
  const char* const* stop;    /**< texts that end the generation; they are never emitted */
  size_t stop_count;
  const char* grammar;               /**< what the output must match, or NULL (default); in a
                                          chat what follows the model's thinking */
  int32_t grammar_kind;              /**< one of COW_MLX_GRAMMAR_ */
  int32_t logprobs;                  /**< 0 (default): none; n: of each token and of the n most
                                          probable ones, see cow_mlx_context_logprobs() */
  cow_mlx_model draft;               /**< a smaller model with the same vocabulary that guesses
                                          ahead; 0 (default): none */
  int32_t draft_tokens;              /**< tokens guessed at a time, 0 to 64. 0 (default): none, or 4
                                          with a draft model. Without one, what followed the
                                          last tokens earlier in the sequence is the guess */
  cow_mlx_prompt_fn prompt_progress; /**< or NULL; called after each chunk of the prompt */
  void* user_data;                   /**< of prompt_progress */
  size_t presence_window;            /**< tokens that presence_penalty looks back on; default 20 */
  size_t frequency_window;           /**< and frequency_penalty; default 20 */
  double timeout;                    /**< seconds from begin after which a generation ends;
                                          0 (default): none */
} cow_mlx_generation_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_generation_params_init(cow_mlx_generation_params* params, size_t size);

/** Why a generation ended. */
enum {
  COW_MLX_FINISH_NONE = 0,      /**< it has not */
  COW_MLX_FINISH_STOP = 1,      /**< the model gave an end token */
  COW_MLX_FINISH_STOP_TEXT = 2, /**< a stop text came */
  COW_MLX_FINISH_LENGTH = 3,    /**< max_tokens were generated */
  COW_MLX_FINISH_CONTEXT = 4,   /**< the context window is full */
  COW_MLX_FINISH_CANCELED = 5,  /**< cow_mlx_context_cancel() */
  COW_MLX_FINISH_TIMEOUT = 6    /**< the generation's timeout has passed */
};

/** One generated token. The host sets struct_size. */
typedef struct cow_mlx_piece {
  size_t struct_size;
  int32_t token;  /**< its id; with COW_MLX_DONE that of the last token, -1 if there was none */
  float logprob;  /**< natural logarithm of its probability under the model, before penalties and
                       filters; NaN unless generation_params asked for logprobs */
  int32_t finish; /**< one of COW_MLX_FINISH_: with COW_MLX_DONE why the generation has ended; with
                       COW_MLX_OK only if that is known already */
} cow_mlx_piece;

/** Sizes and times of one generation. The host sets struct_size. */
typedef struct cow_mlx_stats {
  size_t struct_size;
  size_t prompt_tokens;
  size_t reused_tokens;       /**< of the prompt, taken from the cache */
  size_t generated_tokens;    /**< an end token counts */
  double prompt_seconds;      /**< until the prompt was processed */
  double generation_seconds;  /**< from then to the last token */
  double first_token_seconds; /**< from begin to the first token */
  uint64_t peak_memory;       /**< bytes, of the process's mlx arrays since its start */
  size_t drafted_tokens;      /**< guesses that the model has checked */
  size_t accepted_tokens;     /**< those of them that were right */
} cow_mlx_stats;

/**
 * Process a prompt, and be ready to generate.
 *
 * The longest common prefix of the prompt and of the tokens that the cache
 * really holds is kept; the rest is processed in chunks, between which other
 * contexts step. A cache that cannot be cut back to the prefix is rebuilt.
 * A generation that was under way on the context ends.
 *
 * @param tokens  the whole sequence so far, not only what is new
 * @param count   at least 1
 * @param params  NULL for the defaults. Nothing in it is kept but copies
 * @retval COW_MLX_EINVAL        no tokens, a token outside the vocabulary, a
 *                               value of params out of range, a grammar that does
 *                               not compile
 * @retval COW_MLX_EUNSUPPORTED  an option of params that this model, its cache or
 *                               its tokenizer cannot honour
 * @retval COW_MLX_ECONTEXT      count is more than the context may hold; nothing
 *                               was done
 * @retval COW_MLX_ESTATE        another call is running on the context
 * @retval COW_MLX_ECANCELED     cancelled between two chunks; the context holds
 *                               what was processed, and a new begin goes on there
 * @retval COW_MLX_ETIMEDOUT     likewise, since params.timeout has passed
 */
COW_MLX_API cow_mlx_status cow_mlx_context_begin(cow_mlx_context context, const int32_t* tokens,
                                                 size_t count,
                                                 const cow_mlx_generation_params* params);

/**
 * Generate one token.
 *
 * Blocks until the scheduler has stepped this context. Contexts that generate
 * at the same time take turns.
 *
 * Text that may be the beginning of a stop text, or of a character, is held
 * back until that is known. When a generation ends while text is held back, the
 * text comes with a last COW_MLX_OK; so a loop that prints while the status is
 * COW_MLX_OK prints all of it. After a cancel nothing more comes, but for a
 * token that was computed and that the cache cannot forget.
 *
 * @param context   a context on which a generation has begun
 * @param text      receives whole UTF-8 characters; may be NULL if capacity is 0,
 *                  which fits a token without text only
 * @param capacity  bytes; 256 is plenty for most tokens
 * @param length    receives the bytes written, or needed on EBUFFER
 * @param piece     receives the token and, at the end, why; may be NULL
 * @retval COW_MLX_OK       one token
 * @retval COW_MLX_DONE     the generation has ended, *length is 0 and *piece tells
 *                          why; so does every further call until the next begin
 * @retval COW_MLX_EBUFFER  too small: nothing was consumed, call again
 * @retval COW_MLX_ESTATE   nothing has begun, or another call is running
 * @retval COW_MLX_EINVAL   also: the grammar became too complex here. The generation has ended,
 *                          and the context holds nothing
 */
COW_MLX_API cow_mlx_status cow_mlx_context_next(cow_mlx_context context, char* text,
                                                size_t capacity, size_t* length,
                                                cow_mlx_piece* piece);

/**
 * Wait until cow_mlx_context_next() would not block: a piece is there, or none will come.
 *
 * The piece is computed meanwhile, and also after the time is over; so one thread can
 * look after many contexts, with timeouts of 0.
 *
 * @param timeout_ms  milliseconds to wait at most; UINT32_MAX: as long as it takes
 * @retval COW_MLX_ETIMEDOUT  not yet
 * @retval COW_MLX_ESTATE     nothing has begun, or another call is running
 * @retval COW_MLX_ECANCELED  the context was freed meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_context_poll(cow_mlx_context context, uint32_t timeout_ms);

/**
 * A file descriptor that is readable while cow_mlx_context_next() would not block, for the
 * select, poll, epoll, kqueue or run loop of an application.
 *
 * From then on a piece is always computed ahead. The descriptor belongs to the context, which
 * closes it when it is freed: only wait for it, do not read or close it. (What a host reads
 * there comes back with its next call; one that closed it is given another by this function.)
 *
 * @param out  receives the descriptor, the same one every time
 * @retval COW_MLX_EIO  the process has too many open files
 */
COW_MLX_API cow_mlx_status cow_mlx_context_wake_fd(cow_mlx_context context, int32_t* out);

/**
 * Begin and next to the end in one call.
 *
 * @param on_text  receives the text as it comes, on this thread; may be NULL
 * @param stats    receives sizes and times; may be NULL
 * @retval COW_MLX_OK         the generation has ended by itself
 * @retval COW_MLX_ECANCELED  on_text returned false, or the context was cancelled;
 *                            it holds the tokens that were processed
 * @retval COW_MLX_ETIMEDOUT  likewise, since params.timeout has passed
 * @retval COW_MLX_EINVAL     also: logprobs is not 0; they come with next
 *
 * Otherwise as cow_mlx_context_begin().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_generate(cow_mlx_context context, const int32_t* tokens,
                                                    size_t count,
                                                    const cow_mlx_generation_params* params,
                                                    cow_mlx_text_fn on_text, void* user_data,
                                                    cow_mlx_stats* stats);

/**
 * End what the context is doing, within one step or prompt chunk. Never blocks.
 *
 * A begin or generate that runs returns COW_MLX_ECANCELED; next returns
 * COW_MLX_DONE with COW_MLX_FINISH_CANCELED. A context that does nothing is left
 * as it is. The context stays usable.
 *
 * Async-signal-safe: it may be called in a signal handler, whatever its thread was doing.
 * For that it leaves errno and the thread's error message alone, also where it fails.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_cancel(cow_mlx_context context);

/**
 * The most probable tokens where the last piece was chosen, and their log probabilities.
 *
 * As many as generation_params.logprobs, the most probable first: natural logarithms of the
 * model's softmax, before penalties, filters and temperature.
 *
 * @param tokens    receives token ids; may be NULL if capacity is 0
 * @param logprobs  receives as many values
 * @param capacity  of both
 * @param count     receives how many there are
 * @retval COW_MLX_ESTATE   no piece has been delivered, or its generation has no logprobs
 * @retval COW_MLX_EBUFFER  capacity is too small; *count is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_context_logprobs(cow_mlx_context context, int32_t* tokens,
                                                    float* logprobs, size_t capacity,
                                                    size_t* count);

/**
 * The model's logits behind the last token that cow_mlx_context_tokens() gives: one value for
 * every token of the vocabulary.
 *
 * @retval COW_MLX_ESTATE   no token has been processed since the last change of the context;
 *                          begin, with max_tokens 0 if nothing shall be generated
 * @retval COW_MLX_EBUFFER  capacity is too small; *count is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_context_logits(cow_mlx_context context, float* logits,
                                                  size_t capacity, size_t* count);

/**
 * Sizes and times of the last generation, so far.
 *
 * @retval COW_MLX_ESTATE  nothing has begun
 */
COW_MLX_API cow_mlx_status cow_mlx_context_stats(cow_mlx_context context, cow_mlx_stats* stats);

/* ------------------------------------------------------------------ Chat */

/** Kinds of chat events. */
enum {
  COW_MLX_EVENT_TEXT = 1,      /**< a part of the answer */
  COW_MLX_EVENT_REASONING = 2, /**< a part of what a thinking model thinks before it */
  COW_MLX_EVENT_TOOL_CALL = 3, /**< a whole call of a tool */
  COW_MLX_EVENT_END = 4        /**< the last event */
};

/** What a chat gives. Valid during the callback; new members come at the end. */
typedef struct cow_mlx_event {
  size_t struct_size;
  int32_t kind;     /**< one of COW_MLX_EVENT_ */
  const char* text; /**< the part; of a tool call its arguments, a JSON object; never NULL, and
                         NUL-terminated */
  size_t length;    /**< of text, in bytes */
  const char* name; /**< of the tool; "" otherwise */
  int32_t finish;   /**< of the end: one of COW_MLX_FINISH_ */
} cow_mlx_event;

/** Receives one event. @return false to cancel the call */
typedef bool (*cow_mlx_event_fn)(const cow_mlx_event* event, void* user_data);

/**
 * Answer a conversation: render it, process what is new in it, generate, and tell what came.
 *
 * Takes what cow_mlx_model_chat_prompt() takes; the same conversation with a message more goes
 * on from what the context holds. Markers of thinking and of tool calls are taken out of the
 * text, with the whitespace next to them; all other text comes, as soon as it is known not to
 * begin a marker. Tool calls are told with and without "tools" in the options. What stands
 * between tool markers but is no call, or is cut short, comes as text, markers and all, so that
 * nothing the model said is lost. The template is bounded as there: where it passes a bound, the
 * call fails with COW_MLX_EFORMAT and the context is as before.
 *
 * A grammar holds for what follows the model's thinking: behind thinking that the prompt has
 * opened, and behind thinking that a model which marks it opens itself, which it may. While it
 * thinks, it cannot end the generation. If max_tokens are over by then, the last event has
 * COW_MLX_FINISH_LENGTH and there was no text. "enable_thinking": false makes the grammar hold
 * from the first token on. Inside JSON of a schema, no markers are looked for.
 *
 * With "tool_choice" "required" the answer, behind the thinking, is one call or more of the tools,
 * with the name of a tool one call of that; in the model's own notation, and with arguments that
 * match the tool's schema. With "none", nothing is taken for a call.
 *
 * A cancel while a long conversation is tokenized leaves the context as it was.
 *
 * The last event is COW_MLX_EVENT_END, once, if the call succeeds; a call that is cancelled, or
 * fails, has none.
 *
 * @param messages_json  the whole conversation
 * @param length         bytes of messages_json, or COW_MLX_NUL
 * @param params         NULL for the defaults
 * @param options_json   NULL, or as for cow_mlx_model_chat_prompt()
 * @param on_event       receives the events, on this thread; may be NULL
 * @param stats          receives sizes and times; may be NULL
 *
 * @retval COW_MLX_EINVAL        also: a tool is to be called, but there is none, none of that name,
 *                               or a grammar as well
 * @retval COW_MLX_EUNSUPPORTED  also: a tool is to be called, but the model's tool-call format is
 *                               unknown, or cannot be held to the tool's schema
 *
 * Otherwise as cow_mlx_model_chat_prompt() and cow_mlx_context_generate().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_chat(cow_mlx_context context, const char* messages_json,
                                                size_t length,
                                                const cow_mlx_generation_params* params,
                                                const char* options_json, cow_mlx_event_fn on_event,
                                                void* user_data, cow_mlx_stats* stats);

/* ------------------------------------------------------------ Embeddings */

/** Which hidden states of a text become its embedding. */
enum {
  COW_MLX_POOLING_MEAN = 0, /**< the mean of all */
  COW_MLX_POOLING_LAST = 1, /**< that of the last token */
  COW_MLX_POOLING_CLS = 2   /**< that of the first token */
};

typedef struct cow_mlx_embed_params {
  size_t struct_size;
  int32_t pooling;     /**< one of COW_MLX_POOLING_; default MEAN */
  bool normalize;      /**< to length 1 (L2); default true */
  bool add_special;    /**< add the tokens that open (and close) a text; default true */
  size_t batch_tokens; /**< tokens processed at a time, padding included; default 2048 */
} cow_mlx_embed_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_embed_params_init(cow_mlx_embed_params* params, size_t size);

/**
 * Turn texts into vectors: pooled hidden states of the model's last layer, after its norm.
 *
 * Texts are tokenized as by cow_mlx_model_tokenize(), and processed in batches of similar length;
 * contexts go on generating meanwhile.
 *
 * @param texts     count of them
 * @param out       receives count rows of *dims values
 * @param capacity  values that out has room for
 * @param dims      receives the values per text
 * @retval COW_MLX_EINVAL        a text is not UTF-8, or has no tokens (its index), or has a piece
 *                               that cannot be cut and is too long
 * @retval COW_MLX_ECONTEXT      a text is longer than the model's context length
 * @retval COW_MLX_EUNSUPPORTED  the hidden states of this architecture cannot be reached
 * @retval COW_MLX_EBUFFER       capacity is less than count times *dims, which is written
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_embed(cow_mlx_model model, const cow_mlx_text* texts,
                                               size_t count, const cow_mlx_embed_params* params,
                                               float* out, size_t capacity, size_t* dims);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_H */

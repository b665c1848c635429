/* Shared by all headers: statuses, handles, versions and errors.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_BASE_H
#define COW_MLX_BASE_H

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

/*
 * Annotations: facts for bindings and tools. For a compiler they are empty.
 *
 * NULLABLE stands before a parameter that may be NULL. DEFAULT stands behind a member of params:
 * the value that _init sets; without it, 0 or NULL. ONE_OF stands behind a member with a constant
 * whose name begins with COW_MLX_NAME_.
 */
#define COW_MLX_NULLABLE
#define COW_MLX_DEFAULT(value)
#define COW_MLX_ONE_OF(NAME)

/** The length of a text that ends at its first NUL byte. */
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
  X(ELOST, -14, "a machine or a device is lost")                   \
  X(EINTERNAL, -127, "internal error")

/**
 * The one list of reasons for failures: X(name, details, meaning). details are the keys that
 * cow_mlx_error_details() may give with the reason. Later versions add more. Errors of programs, of
 * trainings and of operations may have, with any reason, "argument", "value", "accepted", "needed",
 * "limit", "available", and "node", "op", "function", "shapes", "dtypes", "position" (of an index),
 * "steps" (of derivation) and "problems" (their number).
 */
#define COW_MLX_REASONS(X)                                                                     \
  X(null_argument, "argument", "a pointer is NULL")                                            \
  X(out_of_range, "argument, value, accepted", "a value that is not accepted")                 \
  X(unknown_option, "argument, value", "an unknown option, key or member")                     \
  X(conflict, "argument, other", "two arguments exclude each other")                           \
  X(wrong_type, "argument, accepted", "JSON of another type")                                  \
  X(missing, "argument", "an argument is empty, or lacks a part")                              \
  X(invalid_utf8, "argument, file, byte", "text that is not UTF-8")                            \
  X(invalid_json, "argument, line, column, byte", "text that is not JSON")                     \
  X(invalid_grammar, "argument, line, column", "a grammar that does not compile")              \
  X(limit_exceeded, "argument, file, needed, limit", "more than is supported")                 \
  X(foreign_handle, "handle, kind", "of another model or context")                             \
  X(template_refused, "", "the chat template refuses the conversation")                        \
  X(unknown_handle, "handle, kind", "not an open handle of the kind")                          \
  X(not_running, "", "the runtime is not running")                                             \
  X(other_parameters, "", "the runtime runs with other parameters")                            \
  X(context_busy, "", "another call is running on the context")                                \
  X(model_loading, "", "the model is still being loaded")                                      \
  X(model_busy, "", "another call is running on the model, or something of it is open")        \
  X(training_busy, "", "another call is running on the training")                              \
  X(nothing_begun, "", "nothing has begun on the context")                                     \
  X(nothing_there, "", "there is none yet, or no more; see the message")                       \
  X(piece_waiting, "", "a piece has to be taken first")                                        \
  X(adapter_changed, "", "the context has another adapter now")                                \
  X(file_not_found, "file", "no such file or folder")                                          \
  X(python_not_found, "argument, file", "no usable Python")                                    \
  X(package_not_found, "package", "the Python lacks a package")                                \
  X(malformed_file, "file, key, line, column, byte", "a malformed file")                       \
  X(invalid_config, "file, key, value, accepted", "a key of a configuration is unusable")      \
  X(weights_mismatch, "file", "weights and configuration differ")                              \
  X(invalid_wiring, "file, block", "not a wiring")                                             \
  X(invalid_tokenizer, "file", "a tokenizer that is unusable")                                 \
  X(invalid_template, "line", "a chat template that is unusable")                              \
  X(saved_context_mismatch, "file", "saved with another model or version")                     \
  X(saved_training_mismatch, "file", "saved of another program, or with other options")        \
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
  X(canceled, "", "the context, program or training was cancelled")                            \
  X(freed, "", "an object that the call used was freed")                                       \
  X(runtime_stopped, "", "the runtime was stopped")                                            \
  X(no_memory, "needed, limit, available", "too little memory; bytes needed, and at most")     \
  X(no_threads, "needed", "too few threads can be started")                                    \
  X(no_handles, "kind, limit", "too many open handles")                                        \
  X(no_descriptors, "limit", "too many open files")                                            \
  X(read_failed, "file", "the system failed a read")                                           \
  X(write_failed, "file", "the system failed a write")                                         \
  X(timed_out, "argument, value", "the call has timed out")                                    \
  X(forked, "", "called in a forked child")                                                    \
  X(out_of_bounds, "argument, first, last, limit", "bytes outside of their buffer")            \
  X(shape_mismatch, "argument, value, accepted", "another shape than is needed")               \
  X(dtype_mismatch, "argument, value, accepted", "another dtype than is needed")               \
  X(overlapping, "argument", "two elements of a destination share memory")                     \
  X(not_finite, "argument, value", "a loss or a gradient that is not finite")                  \
  X(machine_lost, "machine, rank", "a machine that runs a part of the model is gone")          \
  X(device_lost, "", "the device has failed; a stop and a start may recover it")               \
  X(unreachable, "machine, rank", "no worker has answered in time")                            \
  X(wrong_secret, "machine, rank", "a worker has another secret")                              \
  X(version_mismatch, "machine, rank", "a worker has other versions")                          \
  X(machine_busy, "machine, rank", "a worker runs its maximum of models")                      \
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

/** The state of a context at one moment. */
typedef int32_t cow_mlx_checkpoint;

/** A computation on arrays. */
typedef int32_t cow_mlx_program;

/** A training of a program or a model. */
typedef int32_t cow_mlx_training;

/** An image. */
typedef int32_t cow_mlx_media;

/** An array. From 2^32 to 2^53: no other handle has such a value; JavaScript numbers hold it. */
typedef int64_t cow_mlx_array;

/** A text, where a call takes several: UTF-8. The length may be COW_MLX_NUL. */
typedef struct cow_mlx_text {
  const char* data;
  size_t length;
} cow_mlx_text;

/* --------------------------------------------------- Versions and errors */
/* These never block and work before the runtime has started. */

/** The library's version, such as "1.0.0". */
COW_MLX_API const char* cow_mlx_version(void);

/** The library's COW_MLX_ABI_VERSION. Hosts that use dlopen compare it. */
COW_MLX_API uint32_t cow_mlx_abi_version(void);

/** The name of a status, such as "EINVAL"; "UNKNOWN" for any other value. */
COW_MLX_API const char* cow_mlx_status_name(cow_mlx_status status);

/**
 * Get the error message of this thread's last call. These calls leave it as it is: the three
 * _cancel() functions, every _init(), cow_mlx_error_details(), cow_mlx_status_name(),
 * cow_mlx_version() and cow_mlx_abi_version().
 *
 * The message names the operation, the value and accepted values. Never NULL; "" after a call that
 * did not fail. Valid until the thread's next call. Other threads use cow_mlx_context_info() for a
 * call on a context.
 */
COW_MLX_API const char* cow_mlx_error_message(void);

/**
 * Get the same error as data, a JSON object: "operation" (the call's name without cow_mlx_),
 * "reason" (a name of COW_MLX_REASONS) and "details" (an object; its values are texts and numbers).
 * {} after a call that did not fail. The keys come in this order. So top_p of 1.5 is {"operation":
 * "context_begin", "reason": "out_of_range", "details": {"argument": "top_p", "value": 1.5,
 * "accepted": "above 0 and at most 1"}}.
 *
 * "argument" is a parameter, a member of params, or a place in JSON, such as "messages[2].role"; a
 * "file" has the same name as in the message. Unknown or long details are left out.
 *
 * This call changes neither the message nor the details, unless it fails with COW_MLX_EINVAL. So
 * after COW_MLX_EBUFFER, call it again.
 *
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_error_details(char* buffer, size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_BASE_H */

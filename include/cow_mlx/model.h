/* Loading models, tokenizing, rendering conversations.
 * Part of cow_mlx.h, which is what hosts include. */
#ifndef COW_MLX_MODEL_H
#define COW_MLX_MODEL_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- Models */

/**
 * Progress of a long call.
 *
 * @param fraction  rises from 0 to 1
 * @param stage     what is being done, such as "weights"
 * @return false to cancel the call
 */
typedef bool (*cow_mlx_progress_fn)(float fraction, const char* stage, void* user_data);

/** What layers with packed weights make of their inputs before they multiply. */
enum {
  COW_MLX_ACTIVATIONS_DEFAULT = 0, /**< INT8 where there are packed weights and kernels, on a CPU;
                                        else EXACT */
  COW_MLX_ACTIVATIONS_EXACT = 1,   /**< nothing: results are mlx's but for rounding */
  COW_MLX_ACTIVATIONS_INT8 = 2     /**< groups are rounded to eight bits each: faster, at a loss
                                        that is small beside that of 4-bit weights */
};

/** How a model is split between machines. */
enum {
  COW_MLX_SPLIT_AUTO = 0,    /**< as a pipeline if its architecture has one, else as tensors */
  COW_MLX_SPLIT_TENSOR = 1,  /**< every machine has a part of each layer */
  COW_MLX_SPLIT_PIPELINE = 2 /**< every machine has some of the layers */
};

typedef struct cow_mlx_model_params {
  size_t struct_size;
  const char* adapter_path;     /**< folder of a LoRA adapter to apply, or NULL */
  cow_mlx_progress_fn progress; /**< or NULL */
  void* user_data;
  bool lazy;                   /**< leave the weights on disk until they are first used */
  bool trust_remote_code;      /**< let Python code in the model folder run. Off by default */
  uint64_t prefix_cache_bytes; /**< of processed prompts kept for the model's other contexts;
                                    default 256 MiB, 0: none */
  int32_t activations;         /**< one of COW_MLX_ACTIVATIONS_; default DEFAULT */
  const char* const* workers;  /**< the other machines that run a part of the model, "HOST:PORT"
                                    where `python -m cowmlx worker` listens; see
                                    cow_mlx_model_load() */
  size_t worker_count;         /**< 0 (default): none */
  const char* secret_path;     /**< file with the secret that the workers have, too; with workers */
  int32_t split;               /**< one of COW_MLX_SPLIT_; default AUTO */
  uint32_t connect_timeout_ms; /**< until all workers are there; above 0, default 60000 */
  uint32_t silence_timeout_ms; /**< after which a machine that gives no sign of life is lost, or two
                                    that do not reach each other; while it loads, 2000 at least;
                                    at least 100, default 5000 */
} cow_mlx_model_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_model_params_init(cow_mlx_model_params* params, size_t size);

/**
 * Load a model folder in the Hugging Face layout: config.json, *.safetensors,
 * tokenizer.json, optionally a chat template. Never touches the network. Of Hugging Face's cache
 * the path is that of a model's entry (models--org--name), or of one of its snapshots. The name of
 * a model there ("org/name") does as well, where there is no such folder.
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
 * With workers, the model is split between this machine and theirs, each of which has a folder of
 * the same name and content under the one that its worker was started with. The stages are
 * "connect" and "shard" then. This process holds no weights and computes nothing but the draws of
 * tokens; its machine's part runs in a process that it starts. Where a machine is gone, silent for
 * silence_timeout_ms, or cut off from another one for so long, calls on the model's contexts end
 * with COW_MLX_ELOST: the contexts still tell their tokens, and go on once the model is loaded
 * again and they are begun with on a new context. Such models have no adapters, embeddings, kv_bits
 * and trainings.
 *
 * @param out  receives the handle
 * @retval COW_MLX_EINVAL        also: activations is none of COW_MLX_ACTIVATIONS_; a worker has
 *                               another secret; the model cannot be split between so many
 * @retval COW_MLX_ELOST         a worker was not there within connect_timeout_ms, or was lost
 * @retval COW_MLX_ESTATE        a worker runs another model
 * @retval COW_MLX_ENOMEM        too little memory, or the weights are larger than what
 *                               runtime_params.memory_limit leaves
 * @retval COW_MLX_ENOENT        the folder, or a file it needs, is missing
 * @retval COW_MLX_EFORMAT       a file is malformed, or weights and config differ; tokenizer.json
 *                               passes a bound (the message names the component and the number)
 * @retval COW_MLX_EUNSUPPORTED  unknown architecture, or the folder brings code
 *                               and trust_remote_code is off, or activations is INT8 where
 *                               weights are not packed or no kernels compute; a worker has other
 *                               versions, or the architecture cannot be split
 * @retval COW_MLX_ECANCELED     the progress callback returned false
 */
COW_MLX_API cow_mlx_status cow_mlx_model_load(const char* path, const cow_mlx_model_params* params,
                                              cow_mlx_model* out);

/**
 * The same without waiting: the handle is there at once, and the model when cow_mlx_model_poll()
 * says so.
 *
 * Returns at once, whatever else runs. Until the model is there, calls on it are COW_MLX_ESTATE,
 * but for poll, wake_fd and free. A load that has failed keeps its handle, which poll asks for the
 * failure, until it is freed. progress is called by the polls, on their thread, with how far it is
 * by then; false cancels. The load does not wait for it.
 *
 * @param path    copied, as are params and all that they point to
 * @param params  NULL for the defaults
 * @param out     receives the handle
 * @retval COW_MLX_ENOMEM  there is no memory for the copies, or no handle
 */
COW_MLX_API cow_mlx_status cow_mlx_model_load_async(const char* path,
                                                    const cow_mlx_model_params* params,
                                                    cow_mlx_model* out);

/**
 * Wait until a model is loaded, or has failed to.
 *
 * With a timeout of 0 it waits for nothing. Calls the progress of cow_mlx_model_load_async().
 *
 * @param timeout_ms  milliseconds to wait at most; UINT32_MAX: as long as it takes
 * @retval COW_MLX_OK         it is loaded
 * @retval COW_MLX_ETIMEDOUT  not yet
 * @retval COW_MLX_ECANCELED  also: the model was freed meanwhile
 *
 * Otherwise as cow_mlx_model_load(), with the message of its own call: every time it is asked.
 */
COW_MLX_API cow_mlx_status cow_mlx_model_poll(cow_mlx_model model, uint32_t timeout_ms);

/**
 * A file descriptor that is readable once a model is loaded, or has failed to; and, if there is a
 * progress callback, while there is progress to tell, which cow_mlx_model_poll() with a timeout of
 * 0 does. Otherwise as cow_mlx_context_wake_fd(): only wait for it.
 *
 * @param out  receives the descriptor, the same one every time; the model closes it when it is
 * freed
 * @retval COW_MLX_EIO  the process has too many open files
 */
COW_MLX_API cow_mlx_status cow_mlx_model_wake_fd(cow_mlx_model model, int32_t* out);

/** Free the handle. The weights live until the model's last context is freed; a load that runs is
 *  cancelled. */
COW_MLX_API cow_mlx_status cow_mlx_model_free(cow_mlx_model model);

/**
 * Tell what is in a model's folder without loading it, as a JSON object:
 *
 * - "name", "path", "architecture", "parameters", "quantization", "context_length",
 *   "vocabulary_size", "chat_template", "tools" and "thinking": as in cow_mlx_model_info(), or null
 *   if it does not load.
 * - "bits" of a weight, "bytes" of all weights in memory, and "cache_bytes_per_1000_tokens" of a
 *   context, or null if that cannot be told.
 * - "license": what config.json or README.md name, or null.
 * - "sampling": the members of cow_mlx_generation_params that generation_config.json recommends.
 * - "loads": whether cow_mlx_model_load() with default params and enough memory would succeed, as
 *   far as can be told without reading the weights; "problem": null, or why not, or why a context
 *   cannot have kv_bits: "status", "message", "reason" and "details" of the error.
 *
 * Contexts go on generating meanwhile.
 *
 * @param path     as for cow_mlx_model_load()
 * @param kv_bits  of the context, as in cow_mlx_context_params: 0, 4 or 8
 * @retval COW_MLX_ENOENT        there is no such folder; the message tells what to do
 * @retval COW_MLX_EINVAL        also: kv_bits is something else
 * @retval COW_MLX_EBUFFER       capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_model_inspect(const char* path, int32_t kv_bits, char* buffer,
                                                 size_t capacity, size_t* length);

/**
 * Tell about a model, as a JSON object:
 *
 * - "architecture", "name" ("org/name" from Hugging Face's cache, else the folder's), "path",
 *   "parameters", "bytes", "quantization" (as in config.json, or null).
 * - "route": "light", or "mlx-lm" where the whole of mlx-lm was needed.
 * - "context_length" (tokens), "vocabulary_size" (logits), "tokenizer_size" (tokens with a text).
 * - "bos_token", "eos_token" ({"id": 1, "text": "<s>"}, or null), "special_tokens" (the same by
 *   name) and "end_tokens" (a list of the same).
 * - "chat_template" and "tools": whether there is one, and whether it renders tools.
 * - "tool_parser" (the format of tool calls, or null) and "tool_markers" (the texts at their
 *   "start" and "end", or null).
 * - "thinking" (whether the model marks its thinking) and "thinking_markers" (with what, or null).
 * - "activations": exact or int8.
 * - "kernels": the "instruction_set" that computes, or null; how many "layers" there are and how
 *   many are "fused" into one operation, whether the "whole" network is; "why_not", a list of
 *   reasons, each with the number of layers that it is about. null as long as weights that were
 *   loaded lazily are not read. Without kernels a CPU computes slowly with quantized weights and
 *   weights of 16 bits; a warning at load says so.
 * - "labels": the names of what a classification head tells apart, or null; a model with one
 *   generates nothing, see cow_mlx_model_rank().
 * - "license" and "sampling": as in cow_mlx_model_inspect().
 * - "split": "tensor" or "pipeline" of a model on several machines, else null; "ranks": a list of
 *   these machines, or null: "rank", "address" ("local" for this one), "bytes" and "layers" that it
 *   holds, "state" ("ready", "lost", or "ended" since another one is lost), "error" (null, or why
 *   it is lost).
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
 * - "tools": a list of functions as OpenAI's services take them: {"type": "function", "function":
 *   {"name": ..., "description": ..., "parameters": ...}}, or what is in "function" alone. The name
 *   is needed; parameters are the JSON schema of an object.
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
 * - any other variable that the model's template reads before it sets it.
 *
 * Nothing is ignored: an option that neither the library nor the template reads is refused, and so
 * is a key, a content part or an unusual role of a message that the template leaves out of the
 * prompt. Templates may leave out "name", "tool_calls", "tool_call_id" and earlier reasoning, and
 * what is null, false or empty.
 *
 * @param messages_json  [{"role": "user", "content": "Hello"}, ...]
 * @param length         bytes of messages_json, or COW_MLX_NUL
 * @param options_json   NULL, or an object of options. NUL-terminated
 * @param tokens         receives the token ids
 * @param count          receives how many there are
 * @retval COW_MLX_EINVAL        malformed JSON (line and column), a malformed
 *                               message (its index and key), an option or part of a message that
 *                               is not read (its name and the nearest one), what the template
 *                               itself refuses, or a piece of text that is too long
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

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_MODEL_H */

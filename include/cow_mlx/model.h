/* Loading models, tokenizing, rendering conversations.
 * Part of cow_mlx.h; include that. */
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
 * @param stage     the current step, such as "weights"
 * @return false to cancel the call
 */
typedef bool (*cow_mlx_progress_fn)(float fraction, const char* stage, void* user_data);

/** How layers with weights of 16 bits and fewer treat their inputs before they multiply. */
enum {
  COW_MLX_ACTIVATIONS_DEFAULT = 0, /**< on a CPU with kernels: INT8 for quantized weights, and
                                        rounded to bfloat16, as mlx's are, for weights of this type
                                        with the kernels avx512bf16 (AMD's default). Else EXACT */
  COW_MLX_ACTIVATIONS_EXACT = 1,   /**< no rounding: results are mlx's up to float rounding */
  COW_MLX_ACTIVATIONS_INT8 = 2     /**< round groups to eight bits, and keys and values of fused
                                        layers to the type of scales and norms if it has 16 bits:
                                        faster, at a loss that is small beside the loss of 4-bit
                                        weights */
};

/** How a model is split between machines. */
enum {
  COW_MLX_SPLIT_AUTO = 0,    /**< as a pipeline if its architecture has one, else as tensors */
  COW_MLX_SPLIT_TENSOR = 1,  /**< every machine has a part of each layer */
  COW_MLX_SPLIT_PIPELINE = 2 /**< every machine has some of the layers */
};

/** Formats of quantized weights, as mlx has them. */
enum {
  COW_MLX_QUANTIZE_AFFINE = 0, /**< 2, 3, 4, 5, 6 or 8 bits; groups of 32, 64 (default) or 128
                                    numbers with a scale and a bias */
  COW_MLX_QUANTIZE_MXFP4 = 1,  /**< 4 bits; groups of 32 with a scale */
  COW_MLX_QUANTIZE_NVFP4 = 2,  /**< 4 bits; groups of 16 with a scale */
  COW_MLX_QUANTIZE_MXFP8 = 3   /**< 8 bits; groups of 32 with a scale */
};

typedef struct cow_mlx_model_params {
  size_t struct_size;
  const char* adapter_path;     /**< folder of a LoRA adapter to apply, or NULL */
  cow_mlx_progress_fn progress; /**< or NULL */
  void* user_data;
  bool lazy;              /**< leave the weights on disk until they are first used */
  bool trust_remote_code; /**< let Python code in the model folder run. Off by default */
  /** size of the store of processed prompts, and of states inside them, that the model's contexts
   *  share; the least recently used ones are dropped; 0: none */
  uint64_t prefix_cache_bytes COW_MLX_DEFAULT(256 << 20);
  int32_t activations;        /**< one of COW_MLX_ACTIVATIONS_; default DEFAULT */
  const char* const* workers; /**< the other machines that run a part of the model, "HOST:PORT"
                                   where `python -m cowmlx worker` listens; see
                                   cow_mlx_model_load() */
  size_t worker_count;        /**< 0 (default): none */
  const char* secret_path;    /**< file with the workers' secret; required with workers */
  int32_t split;              /**< one of COW_MLX_SPLIT_; default AUTO */
  /** time limit to connect to all workers; above 0 */
  uint32_t connect_timeout_ms COW_MLX_DEFAULT(60000);
  /** time after which a machine that does not answer is lost, and so are two machines that do not
   * reach each other. At least 100; during a load at least 2000 hold */
  uint32_t silence_timeout_ms COW_MLX_DEFAULT(5000);
  int64_t quantize_bits;  /**< bits of a weight after the load, a number of quantize_mode; 0
                               (default): the weights stay as they are */
  int32_t quantize_group; /**< numbers that share a scale; 0: as quantize_mode has them */
  int32_t quantize_mode COW_MLX_ONE_OF(QUANTIZE); /**< one of COW_MLX_QUANTIZE_; default AFFINE */
  /** bytes of images and of their embeddings that the model keeps for later prompts. The least
   * recently used ones are dropped, except those of the last prompt and of open contexts */
  uint64_t media_cache COW_MLX_DEFAULT(64 << 20);
} cow_mlx_model_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_model_params_init(cow_mlx_model_params* COW_MLX_NULLABLE params,
                                           size_t size);

/**
 * Load a model folder in the Hugging Face layout: config.json, *.safetensors, tokenizer.json,
 * optionally a chat template. Downloads nothing. In Hugging Face's cache, path is a model's
 * entry (models--org--name) or one of its snapshots. If there is no such folder, path may also be
 * the name of a model there ("org/name").
 *
 * Progress counts weights in memory, group by group. If the callback returns false, the load stops
 * before the next group and frees the loaded weights. Contexts of other models generate meanwhile.
 *
 * A tokenizer.json must not expand text too much, since no text is safe with one that does. Its
 * normalizer and pre-tokenizer may make at most 8192 bytes of one, its decoder 64, its
 * post-processor may add 1024 tokens to a text. None of its patterns may take exponential or cubic
 * time. It has at most 16384 added tokens, and none of more than 4096 characters. Its settings of
 * truncation and padding are not used.
 *
 * With quantize_bits, weights are quantized while they are read, at most a layer at a time: the
 * load needs memory for the quantized weights and for one layer of the file's. The result is that
 * of `python -m cowmlx convert` with the same numbers, which takes that time once. Layers whose
 * rows are no multiple of a group, or which the architecture excludes, stay as they are.
 *
 * With workers, the model is split between this machine and theirs. Every worker has a folder of
 * the same name and content under the folder that it was started with. The stages are then
 * "connect" and "shard". This process holds no weights and only samples tokens; this machine's part
 * runs in a process that it starts. When a machine is gone, silent for silence_timeout_ms, or cut
 * off from another one for so long, calls on the model's contexts end with COW_MLX_ELOST. The
 * contexts keep their tokens: load the model again and begin with these tokens on a new context.
 * Such models have no images, adapters, embeddings, ranking, classification, scoring, draft_heads,
 * kv_bits, quantize_bits, trainings and sleep, take no cow_mlx_context_begin_embeddings(), and do
 * not use prompt_cache_dir.
 *
 * @param out  receives the handle
 * @retval COW_MLX_EINVAL        also: activations is none of COW_MLX_ACTIVATIONS_; quantize_mode
 *                               has no such bits or groups; a worker has another secret; the model
 *                               cannot be split between so many machines
 * @retval COW_MLX_ELOST         a worker did not answer within connect_timeout_ms, or was lost
 * @retval COW_MLX_ESTATE        a worker runs another model
 * @retval COW_MLX_ENOMEM        too little memory, or the weights are larger than the rest of
 *                               runtime_params.memory_limit
 * @retval COW_MLX_ENOENT        the folder, or one of its files, is missing
 * @retval COW_MLX_EFORMAT       a file is malformed, or weights and config differ; tokenizer.json
 *                               passes a bound (the message names the component and the number)
 * @retval COW_MLX_EUNSUPPORTED  unknown architecture; the folder brings code and trust_remote_code
 *                               is off; activations is INT8 where weights are not quantized or no
 *                               kernels compute; quantize_bits is given, and the weights are
 *                               quantized already or there are workers; a worker has other
 *                               versions; the architecture cannot be split
 * @retval COW_MLX_ECANCELED     the progress callback returned false
 */
COW_MLX_API cow_mlx_status cow_mlx_model_load(const char* path,
                                              const cow_mlx_model_params* COW_MLX_NULLABLE params,
                                              cow_mlx_model* out);

/**
 * Load a model without waiting: returns the handle at once. cow_mlx_model_poll() reports when the
 * model is loaded.
 *
 * Never blocks. Until the model is loaded, calls on it are COW_MLX_ESTATE, except poll, wake_fd and
 * free. A failed load keeps its handle until it is freed, so that poll can report the failure;
 * other calls on it are COW_MLX_EHANDLE.
 * Polls call progress, on their thread, with the current fraction; false cancels. The load does not
 * wait for polls.
 *
 * @param path    copied, as are params and all that they point to
 * @param params  NULL for the defaults
 * @param out     receives the handle
 * @retval COW_MLX_ENOMEM  there is no memory for the copies, or no handle
 */
COW_MLX_API cow_mlx_status cow_mlx_model_load_async(
    const char* path, const cow_mlx_model_params* COW_MLX_NULLABLE params, cow_mlx_model* out);

/**
 * Wait until a model is loaded, or its load has failed.
 *
 * With a timeout of 0 it does not wait. Calls the progress callback of cow_mlx_model_load_async().
 *
 * @param timeout_ms  milliseconds to wait at most; UINT32_MAX: no limit
 * @retval COW_MLX_OK         it is loaded
 * @retval COW_MLX_ETIMEDOUT  not yet
 * @retval COW_MLX_ECANCELED  also: the model was freed meanwhile
 *
 * Otherwise as cow_mlx_model_load(), with the load's message, on every call.
 */
COW_MLX_API cow_mlx_status cow_mlx_model_poll(cow_mlx_model model, uint32_t timeout_ms);

/**
 * Get a file descriptor that is readable once a model is loaded, or its load has failed. With a
 * progress callback it is also readable when there is new progress: call cow_mlx_model_poll() with
 * a timeout of 0. Otherwise as cow_mlx_context_wake_fd(): only wait for it.
 *
 * @param out  receives the descriptor, the same one every time; freeing the model closes it
 * @retval COW_MLX_EIO  the process has too many open files
 */
COW_MLX_API cow_mlx_status cow_mlx_model_wake_fd(cow_mlx_model model, int32_t* out);

/**
 * Put a model to sleep: free its weights, those for images too, the caches of its contexts and
 * checkpoints, and its processed prompts. Contexts keep their tokens and parameters.
 *
 * The next call that needs the weights reads them again from the folder, in steps as a load, so
 * that other models generate meanwhile. The next begin on a context processes its tokens again,
 * and so does cow_mlx_context_save(). The results are those that there were without the sleep. If
 * there is too little memory for the weights, these calls are COW_MLX_ENOMEM. If the folder has
 * other weights by then, they are COW_MLX_EIO: load the model again.
 *
 * A model that sleeps already, and one whose weights a lazy load has left on disk, only loses the
 * caches. runtime_params.model_memory does this by itself.
 *
 * @retval COW_MLX_ESTATE        a generation on one of its contexts has not ended, another call
 * runs on the model, or an adapter or a training of it is open
 * @retval COW_MLX_ENOENT        the folder, or one of its files, is gone; the model stays awake, as
 *                               after every failure
 * @retval COW_MLX_EUNSUPPORTED  the model runs on several machines
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_sleep(cow_mlx_model model);

/** Free the handle. The weights live until the model's last context is freed; a running load is
 *  cancelled. */
COW_MLX_API cow_mlx_status cow_mlx_model_free(cow_mlx_model model);

/**
 * Describe a model's folder without loading it, as a JSON object:
 *
 * - "name", "path", "architecture", "parameters", "quantization", "context_length",
 *   "vocabulary_size", "chat_template", "tools" and "thinking": as in cow_mlx_model_info(). If it
 *   does not load, those but "name" and "path" are null.
 * - "bits" of a weight, "bytes" of all weights in memory, and "cache_bytes_per_1000_tokens" of a
 *   context, or null if unknown. With quantized weights on a CPU it counts 32 bits for each key and
 *   value; those of fused layers may have 16, see COW_MLX_ACTIVATIONS_INT8.
 * - estimates: "load_bytes" that a load takes at its peak, and "peak_bytes_of_1000_tokens" that a
 *   context takes beside the weights while it processes so many, or null if unknown.
 * - "license": from config.json or README.md, or null.
 * - "sampling": the members of cow_mlx_generation_params that generation_config.json recommends.
 * - "loads": whether cow_mlx_model_load() with default params and enough memory would succeed, as
 *   far as is known without reading the weights. "problem": null, or the reason why not, or why a
 *   context cannot have kv_bits: "status", "message", "reason" and "details" of the error.
 *
 * Contexts generate meanwhile.
 *
 * @param path     as for cow_mlx_model_load()
 * @param kv_bits  of the context, as in cow_mlx_context_params: 0, 4 or 8
 * @retval COW_MLX_ENOENT        there is no such folder; the message gives advice
 * @retval COW_MLX_EINVAL        also: kv_bits has another value
 * @retval COW_MLX_EBUFFER       capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_model_inspect(const char* path, int32_t kv_bits, char* buffer,
                                                 size_t capacity, size_t* length);

/**
 * Describe a model, as a JSON object:
 *
 * - "architecture", "name" ("org/name" from Hugging Face's cache, else the folder's), "path",
 *   "parameters", "bytes", "quantization" (as in config.json, or null).
 * - "route": "light", or "mlx-lm" if the model needs the full mlx-lm package.
 * - "context_length" (tokens), "vocabulary_size" (logits), "tokenizer_size" (tokens with a text).
 * - "bos_token", "eos_token" ({"id": 1, "text": "<s>"}, or null), "special_tokens" (the same by
 *   name) and "end_tokens" (a list of the same).
 * - "chat_template" and "tools": whether there is one, and whether it renders tools.
 * - "tool_parser" (the format of tool calls, or null) and "tool_markers" (the texts at their
 *   "start" and "end", or null).
 * - "infill": whether it has the tokens for cow_mlx_model_infill_prompt().
 * - "thinking" (whether the model marks its thinking) and "thinking_markers" (the markers, or
 *   null).
 * - "embedding_width": the numbers of a row for cow_mlx_context_begin_embeddings(), or null if the
 *   model's network does not take such rows.
 * - "images": null for a model of text. Otherwise an object: "why_not", null if the model takes
 *   images in messages, else the reason; "max_pixels" of an image; the largest "width" and "height"
 *   that images are resized to; and the "tokens" that an image takes at most, if it is not thin.
 * - "asleep": whether its weights are on disk since a sleep.
 * - "activations": exact, int8 or bfloat16.
 * - "kernels": the "instruction_set" of the kernels in use, or null; the number of "layers", the
 *   number "fused" into one operation, and whether the "whole" network is; "why_not", a list of
 *   reasons, each with its number of layers. null as long as lazily loaded weights are not read.
 *   Without kernels a CPU computes slowly with quantized weights and weights of 16 bits; the load
 *   then logs a warning.
 * - "tasks": what calls can do with the model: a list of "generate", "embed", "rank" and
 *   "classify". An encoder does not generate, nor does a model with a classification head, nor one
 *   from a folder for embeddings without a head for tokens.
 * - "labels": the labels of a classification head, or null; see cow_mlx_model_rank().
 * - "sentences": what files of sentence-transformers say, or null: "pooling" (a list: vectors of
 *   several are joined), "normalized", "prompts" (texts by name), "default_prompt" (a name, or
 *   null), "max_tokens" of a text and "truncate_dims" (or null).
 * - "license" and "sampling": as in cow_mlx_model_inspect().
 * - "split": "tensor" or "pipeline" of a model on several machines, else null. "ranks": a list of
 *   these machines, or null: "rank", "address" ("local" for this one), its "bytes" and "layers",
 *   "state" ("ready", "lost", or "ended" since another one is lost), "error" (null, or why it is
 *   lost).
 * - "cache": how a context of the model does "trim_end", "trim_front", "fork", "quantise" and
 *   "draft": "in_place", "recomputed" or "no"; null of an encoder. With a sliding window "in_place"
 *   holds until the window is full: then both are recomputed. A draft that is recomputed keeps the
 *   state in front of it; the accepted part of a draft that is rejected is processed again with the
 *   next tokens. "why_not": the reason if "quantise" is "no", else null.
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
 * Tokenize a text.
 *
 * A long text is tokenized in parts of some ten milliseconds, between which contexts generate. Its
 * tokens are the same as those of the whole text. The library cuts only where the tokenizer never
 * looks across, as between words. A piece without such a place may have at most 1048576 characters;
 * 32768 if a pattern of the tokenizer.json may take quadratic time, and fewer if it makes more than
 * 31 bytes of one.
 *
 * @param text    UTF-8; may be NULL if length is 0
 * @param flags   COW_MLX_ADD_SPECIAL, COW_MLX_PARSE_SPECIAL
 * @param tokens  receives the token ids
 * @param count   receives the number of tokens
 * @retval COW_MLX_EINVAL     the text is not UTF-8 (the message gives the byte), or has a piece
 *                            without a cut that is too long
 * @retval COW_MLX_EBUFFER    capacity is too small; *count is the size needed
 * @retval COW_MLX_ECANCELED  the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_tokenize(cow_mlx_model model,
                                                  const char* COW_MLX_NULLABLE text, size_t length,
                                                  uint32_t flags, int32_t* tokens, size_t capacity,
                                                  size_t* count);

/**
 * Convert tokens to text; bytes that are not UTF-8 become U+FFFD.
 *
 * Contexts generate between the parts of a long conversion.
 *
 * @param tokens  may be NULL if count is 0
 * @param flags   COW_MLX_SKIP_SPECIAL
 * @retval COW_MLX_EINVAL     a token is not in the vocabulary
 * @retval COW_MLX_ENOMEM     also: the text has more than 1073741824 characters
 * @retval COW_MLX_EBUFFER    capacity is too small; *length is the size needed
 * @retval COW_MLX_ECANCELED  the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_detokenize(cow_mlx_model model,
                                                    const int32_t* COW_MLX_NULLABLE tokens,
                                                    size_t count, uint32_t flags, char* buffer,
                                                    size_t capacity, size_t* length);

/** Test whether a token ends a generation. Tokens outside the vocabulary do not. */
COW_MLX_API cow_mlx_status cow_mlx_model_is_end(cow_mlx_model model, int32_t token, bool* out);

/**
 * Render a conversation with the model's chat template, and tokenize it.
 *
 * Text of special tokens inside the messages stays plain text, so that a user cannot imitate
 * another role. In the assistant's messages it is parsed: a host must not put text of a user into
 * them. Contexts generate between the parts of a long prompt, as for cow_mlx_model_tokenize().
 *
 * The template is untrusted code of the model's folder. A render, or its compilation on the first
 * call, ends within one second of processor time, 2,000,000 steps and 64 MB of memory. Its output
 * may be four times the size of its input plus 262,144 characters.
 *
 * If the model takes images (cow_mlx_model_info(), "images"), a content part of a message may be
 * {"type": "image", "media": 7}, where 7 is an open cow_mlx_media, or {"type": "image_url",
 * "image_url": {"url": "data:image/png;base64,..."}}, also with "detail": "auto". Other URLs and
 * keys are refused, and images with a side longer than 65,535 pixels. The positions of an image,
 * and of tokens among them, get ids below -1, which cow_mlx_context_begin() takes, whole images
 * only. They are valid for this model as long as it keeps the image, or a context has it; then they
 * are COW_MLX_EINVAL.
 *
 * Options are an object; null means an option's default:
 *
 * - "tools": a list of functions in the format of OpenAI's services: {"type": "function",
 *   "function": {"name": ..., "description": ..., "parameters": ...}}, or only the contents of
 *   "function". The name is required; parameters are the JSON schema of an object.
 * - "tool_choice": "auto" (default); "none": the tools are not offered; "required", or the name of
 *   a tool, plain or as {"type": "function", "function": {"name": ...}}: checked here, and
 *   enforced by cow_mlx_context_chat().
 * - "add_generation_prompt": whether the prompt ends where an answer begins; default true, unless a
 *   message is continued.
 * - "continue_final_message": true, or the name of the field to continue; default false.
 * - "enable_thinking": default true if the model marks its thinking. With false, if the template
 *   does not know the variable, the prompt gets empty thinking.
 * - "parse_special": whether special tokens are parsed inside all messages; default false.
 * - "documents": a list of objects, if the template reads them.
 * - "thinking_tokens", "thinking_end_text": as in cow_mlx_generation_params, for
 *   cow_mlx_context_chat(); a prompt does not depend on them.
 * - any other variable that the model's template reads before it sets it.
 *
 * Nothing is ignored. An option that neither the library nor the template reads is refused, and so
 * is a key, a content part or an unusual role of a message that the template leaves out of the
 * prompt. Templates may leave out "name", "tool_calls", "tool_call_id", earlier reasoning, and
 * null, false or empty values.
 *
 * @param messages_json  [{"role": "user", "content": "Hello"}, ...]
 * @param length         bytes of messages_json, or COW_MLX_NUL
 * @param options_json   NULL, or an object of options. NUL-terminated
 * @param tokens         receives the token ids
 * @param count          receives the number of tokens
 * @retval COW_MLX_EINVAL        malformed JSON (line and column), a malformed message (its index
 *                               and key), an unused option or part of a message (its name and the
 *                               nearest one), a refusal by the template itself, or a piece of text
 *                               that is too long
 * @retval COW_MLX_EFORMAT       the template is malformed (its line), or passes a bound (which one,
 *                               its number, and the line)
 * @retval COW_MLX_EUNSUPPORTED  the model has no chat template; a message has an image that the
 *                               model does not take, sound or video
 * @retval COW_MLX_EBUFFER       capacity is too small; *count is the size needed
 * @retval COW_MLX_ENOMEM        also: too little memory for an image, or
 *                               runtime_params.memory_limit is reached
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_chat_prompt(cow_mlx_model model, const char* messages_json,
                                                     size_t length,
                                                     const char* COW_MLX_NULLABLE options_json,
                                                     int32_t* tokens, size_t capacity,
                                                     size_t* count);

/**
 * Make the prompt of an infill: a model of code then generates the text between a prefix and a
 * suffix, and ends with one of its end tokens.
 *
 * Text of special tokens inside prefix and suffix stays plain text. Contexts generate between the
 * parts of a long prompt, as for cow_mlx_model_tokenize().
 *
 * @param prefix  the text before the gap; may be NULL if length is 0
 * @param length  bytes of prefix, or COW_MLX_NUL
 * @param suffix  the text behind the gap, or "". NUL-terminated
 * @param tokens  receives the token ids
 * @param count   receives the number of tokens
 * @retval COW_MLX_EINVAL        a text is not UTF-8, or has a piece that is too long
 * @retval COW_MLX_EUNSUPPORTED  the model has no tokens for this: cow_mlx_model_info(), "infill"
 * @retval COW_MLX_EBUFFER       capacity is too small; *count is the size needed
 * @retval COW_MLX_ECANCELED     the model was freed, or the runtime stopped, meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_model_infill_prompt(cow_mlx_model model,
                                                       const char* COW_MLX_NULLABLE prefix,
                                                       size_t length, const char* suffix,
                                                       int32_t* tokens, size_t capacity,
                                                       size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_MODEL_H */

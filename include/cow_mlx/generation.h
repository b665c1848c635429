/* Processing prompts and generating tokens.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_GENERATION_H
#define COW_MLX_GENERATION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ Generation */

/** Progress of a prompt. @return false to cancel the call */
typedef bool (*cow_mlx_prompt_fn)(size_t processed, size_t total, void* user_data);

/** Text as it is generated: whole UTF-8 characters, not NUL-terminated.
 *  @return false to cancel the call */
typedef bool (*cow_mlx_text_fn)(const char* text, size_t length, void* user_data);

/**
 * The host's own processor of logits: it changes them before a token is sampled.
 *
 * It gets the model's logits, before bias and penalties. It must write numbers, or -INFINITY, which
 * forbids a token, and leave at least one token. A grammar decides over it: if all tokens that the
 * grammar allows are forbidden, one of them is generated.
 *
 * @param tokens      all tokens of the context; -1 for a row of embeddings, and for a position of
 *                    an image its id in prompts
 * @param count       number of tokens
 * @param logits      a value for every token of the vocabulary, changed in place
 * @param vocabulary  number of logits
 * @return false to cancel the call
 */
typedef bool (*cow_mlx_logits_fn)(const int32_t* tokens, size_t count, float* logits,
                                  size_t vocabulary, void* user_data);

/** Kinds of grammar. */
enum {
  COW_MLX_GRAMMAR_NONE = 0,
  COW_MLX_GRAMMAR_JSON_SCHEMA = 1,
  COW_MLX_GRAMMAR_REGEX = 2,
  COW_MLX_GRAMMAR_LARK = 3,
  COW_MLX_GRAMMAR_GBNF = 4
};

/**
 * Sampling follows mlx-lm. On the logits: bias, then the repetition, presence and frequency
 * penalties, DRY, then the grammar. On the probabilities at temperature 1: top_n_sigma, top_p,
 * min_p, typical_p, XTC and top_k. Then the temperature, fixed or dynamic; then mirostat, which
 * excludes filters. The penalties and DRY look back on the whole sequence, prompt included, even if
 * a part of it came from a cache. The options of DRY, dynatemp and mirostat have the names, the
 * meaning and, except for dry_penalty_last_n, the defaults of llama.cpp.
 *
 * Drafts do not change the output: the same seed gives the same tokens, except for rounding. They
 * make a generation faster if most of them are accepted.
 */
typedef struct cow_mlx_generation_params {
  size_t struct_size;
  /** tokens to generate; 0 only processes the prompt; SIZE_MAX: until the window is full */
  size_t max_tokens COW_MLX_DEFAULT(256);
  float temperature;                  /**< 0 (default): greedy. At least 0 */
  float top_p COW_MLX_DEFAULT(1);     /**< (0, 1]; 1: off */
  float min_p;                        /**< [0, 1]; 0 (default): off */
  float typical_p COW_MLX_DEFAULT(1); /**< (0, 1]; 1: off (arXiv 2202.00666). Needs a temperature */
  int32_t top_k;                      /**< 0 (default): off */
  float xtc_probability;              /**< [0, 1]; 0 (default): off. Needs a temperature */
  float xtc_threshold;                /**< (0, 0.5]; required with xtc_probability, else 0 */
  float repetition_penalty COW_MLX_DEFAULT(1);  /**< above 0; 1: off (arXiv 1909.05858) */
  size_t repetition_window COW_MLX_DEFAULT(20); /**< tokens that it looks back on, at least 1 */
  float presence_penalty;     /**< subtracted once if a token occurs; 0 (default): off */
  float frequency_penalty;    /**< subtracted for each occurrence; 0 (default): off */
  uint64_t seed;              /**< the same seed gives the same tokens, regardless of load */
  const int32_t* bias_tokens; /**< tokens whose logits get a bias; all different */
  const float* bias_values;   /**< added to the logits of bias_tokens; -INFINITY forbids a token,
                                   unless a grammar allows no other */
  size_t bias_count;          /**< 0 (default): none */
  const char* const* stop;    /**< texts that end the generation, at most 4096, each of at most
                                   1024 bytes, none empty; they are never emitted */
  size_t stop_count;
  const char* grammar;               /**< grammar of the output, or NULL (default); in a chat it
                                          applies after the model's thinking */
  int32_t grammar_kind;              /**< one of COW_MLX_GRAMMAR_; NONE without a grammar */
  int32_t logprobs;                  /**< 0 (default): none; n: of each token and of the n most
                                          probable ones, see cow_mlx_context_logprobs() */
  cow_mlx_model draft;               /**< draft model: a smaller model with the same vocabulary;
                                          0 (default): none */
  int32_t draft_tokens;              /**< tokens of a draft, 0 to 64. 0 (default): none, or 4 with a
                                          draft model. Without a draft model, prompt-lookup decoding:
                                          the draft is what followed the same tokens earlier */
  cow_mlx_prompt_fn prompt_progress; /**< or NULL; called after each chunk of the prompt */
  void* user_data;                   /**< of prompt_progress and logits_fn */
  size_t presence_window COW_MLX_DEFAULT(20);  /**< tokens that presence_penalty looks back on */
  size_t frequency_window COW_MLX_DEFAULT(20); /**< and frequency_penalty */
  double timeout;       /**< seconds from begin after which a generation ends;
                             0 (default): none */
  float dry_multiplier; /**< DRY (oobabooga/textgen pull request 5677): a token that would
                             continue a run of n tokens that occurred in the sequence before
                             loses dry_multiplier * dry_base^(n - dry_allowed_length),
                             where n is at least dry_allowed_length; 0 (default): off */
  float dry_base COW_MLX_DEFAULT(1.75);          /**< at least 1 */
  int32_t dry_allowed_length COW_MLX_DEFAULT(2); /**< tokens, at least 1 */
  /** tokens that DRY looks back on, at least 1; -1: all */
  int32_t dry_penalty_last_n COW_MLX_DEFAULT(-1);
  /** DRY matches never cross these texts, at most 256 of 256 bytes; NULL (default): a line break, a
   * colon, a quotation mark and an asterisk. Not NULL and a count of 0: none */
  const char* const* dry_sequence_breakers COW_MLX_DEFAULT(NULL);
  size_t dry_sequence_breaker_count;
  float top_n_sigma; /**< keeps the tokens whose logits are at most so many standard
                          deviations below the best (arXiv 2411.07641); 0 (default): off */
  int32_t mirostat;  /**< 2: drops tokens with more surprise than a bound, which adapts to
                          sampled tokens (arXiv 2007.14966, algorithm 2). Every
                          generation begins with a bound of 2 * mirostat_tau. 0 (default):
                          off. Needs a temperature; no filter, dynatemp_range or draft */
  float mirostat_tau COW_MLX_DEFAULT(5);   /**< target surprise in bits, above 0 */
  float mirostat_eta COW_MLX_DEFAULT(0.1); /**< speed of adaptation, (0, 1] */
  float dynatemp_range; /**< the temperature grows with the entropy of the filtered tokens, from
                             temperature - dynatemp_range, or 0, to temperature +
                             dynatemp_range (ggml-org/llama.cpp pull request 4972);
                             0 (default): off. Needs a temperature */
  /** exponent of the entropy's share of its maximum, above 0 */
  float dynatemp_exponent COW_MLX_DEFAULT(1);
  /** tokens of thinking, at least 0; -1 (default): no bound. Then the thinking is closed: the
   * tokens of thinking_end_text are generated, whatever the model would say, and the answer
   * follows. Thinking is the text between the model's markers; the prompt may have opened it.
   * COW_MLX_EUNSUPPORTED for a model without markers, and with a grammar outside of a chat, unless
   * that has triggers */
  int64_t thinking_tokens COW_MLX_DEFAULT(-1);
  const char* thinking_end_text; /**< closes the thinking, at most 4096 bytes; if the model's end
                                      marker is not in it, it follows. Only whitespace may stand
                                      behind the marker. If it has one of grammar_triggers, it ends
                                      there. NULL (default): the marker alone */
  const char* const* grammar_triggers; /**< at most 16 texts of at most 256 bytes. The grammar
                                            begins behind the first one that is generated; the text
                                            before it is free. The generation ends when the grammar
                                            has matched. In a chat, thinking is not searched.
                                            Tokens that continue behind a trigger are not allowed */
  size_t grammar_trigger_count;        /**< 0 (default): the grammar begins at once */
  /** or NULL (default). Called once for each token, on the thread whose call waits for the token:
   * generate, chat, next or poll, and after an asynchronous call poll, next or next_event. It and
   * user_data must last until the generation has ended. Each token costs a round trip to that
   * thread, and no token is computed ahead; other contexts of the batch go on. Excludes drafts.
   * Values that are not allowed are COW_MLX_EINVAL and end the generation */
  cow_mlx_logits_fn logits_fn;
  int64_t draft_heads; /**< 1: drafts come from the model's own head for the token behind the next
                            (multi-token prediction), draft_tokens of them; 2 if that is 0. For
                            folders of Qwen 3.5, Qwen3-Next, DeepSeek V3, GLM 4.5 and MiMo that
                            have its weights; COW_MLX_EUNSUPPORTED for others. Such a context is
                            not batched. 0 (default): off */
} cow_mlx_generation_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_generation_params_init(cow_mlx_generation_params* COW_MLX_NULLABLE params,
                                                size_t size);

/** The reason why a generation ended. */
enum {
  COW_MLX_FINISH_NONE = 0,      /**< it has not */
  COW_MLX_FINISH_STOP = 1,      /**< the model gave an end token */
  COW_MLX_FINISH_STOP_TEXT = 2, /**< a stop text was generated */
  COW_MLX_FINISH_LENGTH = 3,    /**< max_tokens were generated */
  COW_MLX_FINISH_CONTEXT = 4,   /**< the context window is full */
  COW_MLX_FINISH_CANCELED = 5,  /**< cow_mlx_context_cancel() */
  COW_MLX_FINISH_TIMEOUT = 6    /**< the generation's timeout has passed */
};

/** One generated token. The host sets struct_size. */
typedef struct cow_mlx_piece {
  size_t struct_size;
  int32_t token;  /**< token id; with COW_MLX_DONE the last token's, -1 if there was none */
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
  size_t drafted_tokens;      /**< draft tokens that the model has checked */
  size_t accepted_tokens;     /**< draft tokens that it has accepted */
} cow_mlx_stats;

/**
 * Process a prompt and prepare to generate.
 *
 * The context keeps the longest common prefix of the prompt and of the tokens in its cache. It
 * processes the rest in chunks, between which other contexts step. A cache that cannot drop the
 * tokens after the prefix is rebuilt. A running generation on the context ends.
 *
 * @param tokens  the whole sequence so far, not only the new part
 * @param count   at least 1
 * @param params  NULL for the defaults; copied with all that it points to, except user_data
 * @retval COW_MLX_EINVAL        no tokens, a token outside the vocabulary, a
 *                               value of params out of range, a grammar that does
 *                               not compile
 * @retval COW_MLX_EUNSUPPORTED  an option of params that this model, its cache or its tokenizer
 *                               does not support
 * @retval COW_MLX_ECONTEXT      count is more than the context may hold, or, with
 *                               COW_MLX_OVERFLOW_ROLL, an image at the end of the prompt does not
 *                               fit the window; nothing is changed
 * @retval COW_MLX_ENOMEM        also: there is too little memory for the prompt and max_tokens
 *                               (docs/guides/memory.md); nothing is changed
 * @retval COW_MLX_ESTATE        another call is running on the context
 * @retval COW_MLX_ECANCELED     cancelled between two chunks; the context holds the processed
 *                               tokens, and a new begin continues there
 * @retval COW_MLX_ETIMEDOUT     likewise, since params.timeout has passed
 */
COW_MLX_API cow_mlx_status
cow_mlx_context_begin(cow_mlx_context context, const int32_t* tokens, size_t count,
                      const cow_mlx_generation_params* COW_MLX_NULLABLE params);

/**
 * Begin a generation without waiting: the prompt is processed while the host does other things.
 *
 * Never blocks. cow_mlx_context_poll(), or the descriptor of cow_mlx_context_wake_fd(), reports
 * when cow_mlx_context_next() has the first piece or a failure. next returns that failure until the
 * next begin, with the statuses of cow_mlx_context_begin() and the message of this call. Polls, and
 * a next that waits, call prompt_progress on their thread, with the current progress.
 *
 * Until then the context is busy: calls that would change it are COW_MLX_ESTATE.
 * cow_mlx_context_cancel() ends it, and next returns COW_MLX_ECANCELED; freeing the context ends
 * it, too. After the first piece, pieces are computed ahead, and poll and next do not wait for
 * other contexts.
 *
 * @param tokens  the whole sequence so far; copied, as are params and all that they point to
 * @param count   at least 1
 * @param params  NULL for the defaults
 * @retval COW_MLX_ESTATE  an earlier asynchronous call on the context has not ended; it continues.
 *                         For other running calls, next returns this status
 * @retval COW_MLX_ENOMEM  also: there is no memory for the copies
 */
COW_MLX_API cow_mlx_status
cow_mlx_context_begin_async(cow_mlx_context context, const int32_t* tokens, size_t count,
                            const cow_mlx_generation_params* COW_MLX_NULLABLE params);

/**
 * Process a prompt with rows of embeddings among its tokens, and prepare to generate.
 *
 * A token of -1 is the place of a row: the first one that of the first row, and so on. A row is
 * what the model's table of embeddings would give for a token, before the network scales or
 * normalizes it; a row of the table itself gives what its token does. Rows are copied.
 *
 * A context knows rows by their bytes: its next begin_embeddings reuses the tokens and rows that
 * the prompts have in common, and forks, checkpoints, trims, rolling windows and other contexts'
 * processed prompts work as with tokens. cow_mlx_context_tokens() gives -1 for a row. Penalties and
 * DRY do not see rows. A context that holds rows cannot be saved, and the prompt cache on disk does
 * not keep its prompts. The fused kernels of a CPU do not take rows: chunks with rows are processed
 * by the layers one by one.
 *
 * @param tokens      the whole sequence so far, with -1 for each row
 * @param count       at least 1
 * @param embeddings  float32, float16 or bfloat16 of [rows, "embedding_width" of
 *                    cow_mlx_model_info()]
 * @param params      NULL for the defaults
 * @retval COW_MLX_EINVAL        also: embeddings has another dtype or shape, another number of rows
 *                               than there are places, or numbers that are not finite
 * @retval COW_MLX_EUNSUPPORTED  also: this architecture takes no embeddings; params has a draft;
 *                               the model runs on several machines
 * @retval COW_MLX_ESTATE        also: a run that was submitted has not given embeddings yet
 *
 * Otherwise as cow_mlx_context_begin().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_begin_embeddings(
    cow_mlx_context context, const int32_t* tokens, size_t count, cow_mlx_array embeddings,
    const cow_mlx_generation_params* COW_MLX_NULLABLE params);

/**
 * Generate one token.
 *
 * Blocks until the scheduler has stepped this context. Contexts that generate at the same time take
 * turns.
 *
 * Text that may be the beginning of a stop text, or of a character, is held back until that is
 * known. When a generation ends while text is held back, the text comes with a last COW_MLX_OK. So
 * a loop that prints while the status is COW_MLX_OK prints all text. After a cancel or a timeout,
 * next returns no more text, except for a token that was computed and that the cache cannot drop.
 *
 * @param context   a context on which a generation has begun
 * @param text      receives whole UTF-8 characters; may be NULL if capacity is 0,
 *                  which is enough only for a token without text
 * @param capacity  bytes; 256 is plenty for most tokens
 * @param length    receives the bytes written, or needed on EBUFFER
 * @param piece     receives the token and, at the end, the reason; may be NULL
 * @retval COW_MLX_OK       one token
 * @retval COW_MLX_DONE     the generation has ended, *length is 0 and *piece has the reason; so
 *                          does every further call until the next begin
 * @retval COW_MLX_EBUFFER  too small: nothing was consumed, call again
 * @retval COW_MLX_ESTATE   nothing has begun, or another call is running, or a
 *                          cow_mlx_context_chat_async() has begun
 * @retval COW_MLX_EINVAL   also: the grammar became too complex here. The generation has ended, and
 *                          the context is empty
 */
COW_MLX_API cow_mlx_status cow_mlx_context_next(cow_mlx_context context,
                                                char* COW_MLX_NULLABLE text, size_t capacity,
                                                size_t* length,
                                                cow_mlx_piece* COW_MLX_NULLABLE piece);

/**
 * Wait until cow_mlx_context_next() or next_event would not block: a piece, an event or a failure
 * is ready, or none will come.
 *
 * The library computes meanwhile, also after the time limit, so one thread can serve many contexts
 * with timeouts of 0. After an asynchronous call, and on a context with a descriptor, such a poll
 * does not wait, nor does the next after it: the result is ready.
 *
 * @param timeout_ms  milliseconds to wait at most; UINT32_MAX: no limit
 * @retval COW_MLX_ETIMEDOUT  not yet
 * @retval COW_MLX_ESTATE     nothing has begun, or another call is running
 * @retval COW_MLX_ECANCELED  the context was freed meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_context_poll(cow_mlx_context context, uint32_t timeout_ms);

/**
 * Get a file descriptor that is readable while cow_mlx_context_next() or next_event would not
 * block, for the select, poll, epoll, kqueue or run loop of an application.
 *
 * From then on a piece is always computed ahead. The descriptor belongs to the context; freeing the
 * context closes it. Only wait for it, do not read or close it. (If a host does read it, the next
 * call makes it readable again; if a host closes it, this function opens another.)
 *
 * With a prompt_progress of an asynchronous call, it is also readable when there is new progress.
 * So call cow_mlx_context_poll() with a timeout of 0, which reports the progress, and take a result
 * only if it returns COW_MLX_OK.
 *
 * @param out  receives the descriptor, the same one every time
 * @retval COW_MLX_EIO  the process has too many open files
 */
COW_MLX_API cow_mlx_status cow_mlx_context_wake_fd(cow_mlx_context context, int32_t* out);

/**
 * Begin a generation and run it to the end.
 *
 * @param on_text  receives the text as it comes, on this thread; may be NULL
 * @param stats    receives sizes and times; may be NULL
 * @retval COW_MLX_OK         the generation has ended by itself
 * @retval COW_MLX_ECANCELED  on_text returned false, or the context was cancelled; it keeps the
 *                            processed tokens
 * @retval COW_MLX_ETIMEDOUT  likewise, since params.timeout has passed
 * @retval COW_MLX_EINVAL     also: logprobs is not 0; only cow_mlx_context_next() supports them
 *
 * Otherwise as cow_mlx_context_begin().
 */
COW_MLX_API cow_mlx_status
cow_mlx_context_generate(cow_mlx_context context, const int32_t* tokens, size_t count,
                         const cow_mlx_generation_params* COW_MLX_NULLABLE params,
                         cow_mlx_text_fn COW_MLX_NULLABLE on_text, void* user_data,
                         cow_mlx_stats* COW_MLX_NULLABLE stats);

/**
 * Cancel the work of a context, within one step or prompt chunk. Never blocks. A prompt chunk takes
 * about a tenth of a second on a CPU. On a GPU it has 256 tokens or more, and takes up to 1.6 s.
 *
 * A running begin, generate or chat returns COW_MLX_ECANCELED. So do next while the prompt of a
 * cow_mlx_context_begin_async() is processed, and next_event of a chat that has not ended.
 * Otherwise next returns COW_MLX_DONE with COW_MLX_FINISH_CANCELED. An idle context does not
 * change. The context stays usable.
 *
 * Async-signal-safe: a signal handler may call it at any time. It changes neither errno nor the
 * thread's error message, even if it fails.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_cancel(cow_mlx_context context);

/**
 * Get the most probable tokens at the last piece, and their log probabilities.
 *
 * The number is generation_params.logprobs, the most probable token first: natural logarithms of
 * the model's softmax, before penalties, filters and temperature.
 *
 * @param tokens    receives token ids; may be NULL if capacity is 0
 * @param logprobs  receives as many values
 * @param capacity  size of both buffers
 * @param count     receives the number of tokens
 * @retval COW_MLX_ESTATE   no piece has been delivered, or its generation has no logprobs
 * @retval COW_MLX_EBUFFER  capacity is too small; *count is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_context_logprobs(cow_mlx_context context,
                                                    int32_t* COW_MLX_NULLABLE tokens,
                                                    float* logprobs, size_t capacity,
                                                    size_t* count);

/**
 * Get the model's logits after the last token of cow_mlx_context_tokens(): one value for every
 * token of the vocabulary.
 *
 * @retval COW_MLX_ESTATE   no token has been processed since the last change of the context; begin
 *                          first, with max_tokens 0 to generate nothing
 * @retval COW_MLX_EBUFFER  capacity is too small; *count is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_context_logits(cow_mlx_context context, float* logits,
                                                  size_t capacity, size_t* count);

/**
 * Get sizes and times of the last generation, so far.
 *
 * @retval COW_MLX_ESTATE  nothing has begun
 */
COW_MLX_API cow_mlx_status cow_mlx_context_stats(cow_mlx_context context, cow_mlx_stats* stats);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_GENERATION_H */

/* Answering conversations.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_CHAT_H
#define COW_MLX_CHAT_H

#include "generation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ Chat */

/** Kinds of chat events. */
enum {
  COW_MLX_EVENT_TEXT = 1,        /**< a part of the answer */
  COW_MLX_EVENT_REASONING = 2,   /**< a part of the model's thinking before the answer */
  COW_MLX_EVENT_TOOL_CALL = 3,   /**< a whole tool call */
  COW_MLX_EVENT_END = 4,         /**< the last event */
  COW_MLX_EVENT_THINKING_CUT = 5 /**< behind thinking that thinking_tokens has cut; text is "" */
};

/** An event of a chat. Texts are valid during the callback, or until the thread takes the next
 *  event. New members are added at the end. For cow_mlx_context_next_event() the host sets
 *  struct_size. */
typedef struct cow_mlx_event {
  size_t struct_size;
  int32_t kind COW_MLX_ONE_OF(EVENT); /**< one of COW_MLX_EVENT_ */
  const char* text; /**< the part; for a tool call the arguments, a JSON object; never NULL, and
                         NUL-terminated */
  size_t length;    /**< of text, in bytes */
  const char* name; /**< of the tool; "" otherwise */
  int32_t finish;   /**< for the end: one of COW_MLX_FINISH_ */
} cow_mlx_event;

/** Receives one event. @return false to cancel the call */
typedef bool (*cow_mlx_event_fn)(const cow_mlx_event* event, void* user_data);

/**
 * Answer a conversation: render it, process its new part, generate, and report events.
 *
 * Takes the arguments of cow_mlx_model_chat_prompt(). The same conversation with one more message
 * continues from the context's tokens. Markers of thinking and of tool calls are removed from the
 * text, with the whitespace next to them. All other text is reported as soon as it cannot be the
 * beginning of a marker. Tool calls are reported with and without "tools" in the options. Text
 * between tool markers that is not a call, or is cut short, is reported as text, markers included,
 * so that no output is lost. The template has the bounds of cow_mlx_model_chat_prompt(): if it
 * passes one, the call fails with COW_MLX_EFORMAT and the context does not change.
 *
 * A grammar applies after the model's thinking, whether the prompt or the model itself has opened
 * it. While the model thinks, it cannot end the generation. If max_tokens are used up by then, the
 * last event has COW_MLX_FINISH_LENGTH and there is no text. With "enable_thinking": false the
 * grammar applies from the first token. Inside JSON of a schema, markers are not recognized.
 *
 * The options may have "thinking_tokens" and "thinking_end_text", which replace those of params.
 * When thinking_tokens are used up, the thinking is closed, and the answer follows; with a grammar,
 * the model chooses the whitespace between them. Behind the last event of the thinking comes
 * COW_MLX_EVENT_THINKING_CUT.
 *
 * With "tool_choice" "required" the answer, after the thinking, is at least one call of the tools;
 * with the name of a tool, one call of that tool. It uses the model's notation, and its arguments
 * match the tool's schema. With "auto", the default, the model decides: text is free up to the
 * marker of a call, and from there on the call is held to the notation and to the tool's schema,
 * if the model's notation is known and can follow it; otherwise the call is what the model makes of
 * it, and the log says why. With "none", no text is treated as a call.
 *
 * A cancel while a long conversation is tokenized leaves the context unchanged.
 *
 * If the call succeeds, the last event is COW_MLX_EVENT_END, once. A cancelled or failed call has
 * no such event.
 *
 * @param messages_json  the whole conversation
 * @param length         bytes of messages_json, or COW_MLX_NUL
 * @param params         NULL for the defaults
 * @param options_json   NULL, or as for cow_mlx_model_chat_prompt()
 * @param on_event       receives the events, on this thread; may be NULL
 * @param stats          receives sizes and times; may be NULL
 *
 * @retval COW_MLX_EINVAL        also: a tool call is required, but there is no tool, none of that
 *                               name, or also a grammar
 * @retval COW_MLX_EUNSUPPORTED  also: a tool call is required, but the model's tool-call format is
 *                               unknown, or cannot follow the tool's schema
 *
 * Otherwise as cow_mlx_model_chat_prompt() and cow_mlx_context_generate().
 */
COW_MLX_API cow_mlx_status cow_mlx_context_chat(
    cow_mlx_context context, const char* messages_json, size_t length,
    const cow_mlx_generation_params* COW_MLX_NULLABLE params,
    const char* COW_MLX_NULLABLE options_json, cow_mlx_event_fn COW_MLX_NULLABLE on_event,
    void* user_data, cow_mlx_stats* COW_MLX_NULLABLE stats);

/**
 * Answer a conversation without waiting: cow_mlx_context_next_event() takes the events.
 *
 * Never blocks. cow_mlx_context_poll(), or the descriptor of cow_mlx_context_wake_fd(), reports
 * when there is an event. Otherwise as cow_mlx_context_begin_async(): the context is busy until the
 * chat has ended, next_event returns failures, and cow_mlx_context_cancel() ends it. Up to 64
 * events are stored; then the generation waits for its host.
 *
 * @param messages_json  the whole conversation; copied, as are options_json, params and all that
 *                       they point to
 * @param length         bytes of messages_json, or COW_MLX_NUL
 * @param params         NULL for the defaults
 * @param options_json   NULL, or as for cow_mlx_model_chat_prompt()
 * @retval COW_MLX_ESTATE  an earlier asynchronous call on the context has not ended; it continues.
 *                         For other running calls, next_event returns this status
 * @retval COW_MLX_ENOMEM  also: there is no memory for the copies
 */
COW_MLX_API cow_mlx_status
cow_mlx_context_chat_async(cow_mlx_context context, const char* messages_json, size_t length,
                           const cow_mlx_generation_params* COW_MLX_NULLABLE params,
                           const char* COW_MLX_NULLABLE options_json);

/**
 * Take the next event of a cow_mlx_context_chat_async(); waits for it if there is none.
 *
 * @param event  receives the event. Its texts are valid until this thread takes the next event
 * @retval COW_MLX_OK         one event
 * @retval COW_MLX_DONE       the last one, COW_MLX_EVENT_END; so does every further call until the
 *                            next chat
 * @retval COW_MLX_ESTATE     no chat has begun
 * @retval COW_MLX_ECANCELED  the chat was cancelled, or the context freed meanwhile
 *
 * Otherwise as cow_mlx_context_chat(): a chat that has failed says so until the next one begins.
 */
COW_MLX_API cow_mlx_status cow_mlx_context_next_event(cow_mlx_context context,
                                                      cow_mlx_event* event);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_CHAT_H */

/* Answering conversations.
 * Part of cow_mlx.h, which is what hosts include. */
#ifndef COW_MLX_CHAT_H
#define COW_MLX_CHAT_H

#include "generation.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_CHAT_H */

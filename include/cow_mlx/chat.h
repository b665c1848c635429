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

/** What a chat gives. Texts are valid during the callback, or until the next event is taken; new
 *  members come at the end. For cow_mlx_context_next_event() the host sets struct_size. */
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

/**
 * The same without waiting: cow_mlx_context_next_event() takes the events.
 *
 * Returns at once, whatever else runs; cow_mlx_context_poll(), or the descriptor of
 * cow_mlx_context_wake_fd(), tells when there is an event. Otherwise as
 * cow_mlx_context_begin_async(): the context is busy until the chat has ended, what fails is told
 * by next_event, and cow_mlx_context_cancel() ends it. Up to 64 events lie ready; then the
 * generation waits for its host.
 *
 * @param messages_json  the whole conversation; copied, as are options_json, params and all that
 *                       they point to
 * @param length         bytes of messages_json, or COW_MLX_NUL
 * @param params         NULL for the defaults
 * @param options_json   NULL, or as for cow_mlx_model_chat_prompt()
 * @retval COW_MLX_ESTATE  the last call on the context that returned at once has not ended; it goes
 *                         on. Of other calls that run there, next_event tells
 * @retval COW_MLX_ENOMEM  also: there is no memory for the copies
 */
COW_MLX_API cow_mlx_status cow_mlx_context_chat_async(cow_mlx_context context,
                                                      const char* messages_json, size_t length,
                                                      const cow_mlx_generation_params* params,
                                                      const char* options_json);

/**
 * Take one event of a cow_mlx_context_chat_async(), the first that was not taken; waits for it if
 * there is none.
 *
 * @param event  receives the event. Its texts are valid until the next event is taken, another call
 *               begins on the context, or the context is freed
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

// A conversation's answer, as events that come one after the other.
import { call, wait } from "./calls.js";

/**
 * @typedef {object} ChatEvent
 * @property {"text" | "reasoning" | "tool_call" | "end"} kind
 * @property {string} text
 * @property {string} name
 * @property {string} finish
 */

/**
 * The events of one chat call on a context; see Context.chat().
 * @param {import("./handle.js").Handle} context
 * @param {{messages: object[], chat?: object, params: object, signal?: AbortSignal}} given
 * @returns {AsyncGenerator<ChatEvent, void, void>}
 */
export async function* chatEvents(context, { messages, chat, params, signal }) {
  const events = [];
  let wake = () => {};
  let ended = false;
  const hear = (event) => {
    events.push(event);
    wake();
  };
  const given = { context, messages_json: JSON.stringify(messages), options_json: chat, params };
  const answer = wait("context_chat", { ...given, on_event: hear }, { signal }).finally(() => {
    ended = true;
    wake();
  });
  answer.catch(() => {}); // it is awaited below
  try {
    for (;;) {
      if (events.length > 0) {
        yield events.shift();
      } else if (ended) {
        await answer;
        return;
      } else {
        await new Promise((resolve) => (wake = resolve));
      }
    }
  } finally {
    if (!ended) call("context_cancel", { context });
    await answer.catch(() => {});
  }
}

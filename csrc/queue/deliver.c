#include "queue/deliver.h"

static bool tell_event(const cow_callbacks* to, const cow_event* event) {
  cow_mlx_event told = {.struct_size = sizeof told,
                        .kind = event->chat_kind,
                        .text = event->text,
                        .length = event->length,
                        .name = event->name ? event->name : "",
                        .finish = event->finish};
  return to->event(&told, to->event_data);
}

/* What the host leaves out of its handles is refused later, by the engine. */
static bool ask_batch(const cow_callbacks* to, cow_batch* batch) {
  batch->given = to->batch(batch->step, batch->arrays, batch->count, to->batch_data);
  return true;
}

bool cow_deliver(const cow_request* request) {
  const cow_callbacks* to = &request->callbacks;
  const cow_event* event = &request->event;
  switch (event->kind) {
    case COW_EVENT_PROGRESS:
      return !to->progress || to->progress(event->fraction, event->text, to->progress_data);
    case COW_EVENT_PROMPT:
      return !to->prompt || to->prompt(event->processed, event->total, to->prompt_data);
    case COW_EVENT_TEXT:
      return !to->text || to->text(event->text, event->length, to->text_data);
    case COW_EVENT_CHAT:
      return !to->event || tell_event(to, event);
    case COW_EVENT_TRAINING:
      return !to->training || to->training(&event->training, to->training_data);
    case COW_EVENT_BATCH:
      return ask_batch(to, request->batch);
    case COW_EVENT_NONE:
      break;
  }
  return true;
}

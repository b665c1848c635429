#include "queue/outlet.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/handles.h"
#include "queue/logits.h"

pthread_mutex_t cow_outlet_lock = PTHREAD_MUTEX_INITIALIZER;
cow_outlet* cow_outlet_models[COW_HANDLE_SLOTS];
static cow_outlet* contexts[COW_HANDLE_SLOTS];

static cow_outlet** place_of(int32_t handle) {
  cow_outlet** table = cow_handle_kind(handle) == COW_KIND_MODEL ? cow_outlet_models : contexts;
  return &table[(uint32_t)handle % COW_HANDLE_SLOTS];
}

static cow_outlet* find(int32_t handle) {
  cow_outlet* it = *place_of(handle);
  return it && it->handle == handle ? it : NULL;
}

cow_outlet* cow_outlet_lock_and_find(int32_t handle) {
  pthread_mutex_lock(&cow_outlet_lock);
  return find(handle);
}

void cow_outlet_show(cow_outlet* it) {
  cow_wake_fd_show(&it->wake, it->first || cow_outlet_has_progress(it));
  pthread_cond_broadcast(&it->changed);
}

void cow_outlet_drop_progress(cow_outlet* it) {
  free(it->progress.text);
  it->progress = (cow_event){.kind = COW_EVENT_NONE};
}

void cow_outlet_drop_items(cow_outlet* it) {
  while (it->first) {
    cow_item* dropped = it->first;
    it->first = dropped->next;
    if (dropped->offer.is_end && !it->spare) {
      it->spare = dropped;
    } else {
      free(dropped);
    }
  }
  it->last = NULL;
  it->count = 0;
  cow_logits_let_go(it->asked.logits);
  it->asked = (cow_event){.kind = COW_EVENT_NONE};
}

void cow_outlet_leave(cow_outlet* it) {
  if (--it->users > 0) return;
  free(it->kept);
  free(it->spare);
  free(it->log);
  pthread_cond_destroy(&it->changed);
  free(it);
}

void cow_outlet_close(cow_outlet* it) {
  it->state = COW_OUTLET_CLOSED;
  *place_of(it->handle) = NULL;
  cow_outlet_drop_items(it);
  cow_outlet_drop_progress(it);
  pthread_cond_broadcast(&it->changed);
  cow_wake_fd_close(&it->wake);
  cow_outlet_leave(it);
}

cow_outlet* cow_outlet_find_or_make(int32_t handle) {
  cow_outlet* it = find(handle);
  if (it) return it;
  cow_outlet** place = place_of(handle);
  if (*place) cow_outlet_close(*place); /* of an earlier handle, which is closing */
  it = calloc(1, sizeof *it);
  if (!it) return NULL;
  it->handle = handle;
  it->users = 1;
  pthread_cond_init(&it->changed, NULL);
  *place = it;
  return it;
}

bool cow_outlet_begin_round(cow_outlet* it, int state) {
  if (!it->spare) it->spare = malloc(sizeof(cow_item) + COW_MESSAGE_SIZE + COW_DETAILS_SIZE);
  if (!it->spare) return false;
  if (++it->round == 0) it->round = 1;
  it->state = state;
  it->lacks_memory = false;
  cow_outlet_drop_items(it);
  cow_outlet_drop_progress(it);
  it->callbacks = (cow_callbacks){0};
  cow_outlet_show(it);
  return true;
}

static cow_item* make_item(cow_outlet* it, const cow_offer* offer, size_t texts) {
  if (!offer->is_end) return malloc(sizeof(cow_item) + texts);
  cow_item* spare = it->spare;
  it->spare = NULL;
  return spare;
}

bool cow_outlet_append(cow_outlet* it, const cow_offer* offer) {
  if (cow_outlet_has_ended(it)) return true; /* nothing comes after an end */
  size_t name = offer->name ? strlen(offer->name) + 1 : 1;
  cow_item* added = make_item(it, offer, offer->length + 1 + name);
  if (!added) return false;
  char* texts = (char*)(added + 1);
  *added = (cow_item){.offer = *offer};
  if (offer->length) memcpy(texts, offer->text, offer->length);
  texts[offer->length] = '\0';
  memcpy(texts + offer->length + 1, offer->name ? offer->name : "", name);
  added->offer.text = texts;
  added->offer.name = texts + offer->length + 1;
  if (it->last) {
    it->last->next = added;
  } else {
    it->first = added;
  }
  it->last = added;
  it->count++;
  cow_outlet_show(it);
  return true;
}

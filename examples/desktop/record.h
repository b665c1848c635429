/* What was said in a conversation, and what of it is given to the model, learnt and kept. */
#ifndef RECORD_H
#define RECORD_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct Part {
  int32_t kind; /* one of COW_MLX_EVENT_ */
  GString* text;
} Part;

/* A question and its answer. */
typedef struct Turn {
  char* question;
  GPtrArray* parts; /* of the answer */
  bool whole;       /* the answer was neither stopped nor cut */
} Turn;

typedef struct Record {
  char* id;    /* of its files */
  char* title; /* or NULL, as long as nothing was said */
  GPtrArray* turns;
  int lock; /* the store's: a descriptor, or -1 */
} Record;

Record* record_new(void);

/* What record_json() has made of one, or NULL and why it is none. */
Record* record_read(const char* id, const char* json, gsize length, GError** error);

void record_free(Record* self);

/* Add a turn that has no answer yet. */
Turn* record_ask(Record* self, const char* question);

/* Take the turns from one on; they are the caller's. */
GPtrArray* record_cut(Record* self, guint turn);

/* Put turns back that were cut. */
void record_put_back(Record* self, GPtrArray* turns);

/* Parts of one kind become one, but for tool calls, which are whole. text is UTF-8. */
void turn_append(Turn* self, int32_t kind, const char* text);

/* What was said, without reasoning and tool calls. */
char* turn_answer(const Turn* self);

/* All that was said, as the library takes it: a JSON array of messages. system may be NULL. */
char* record_messages(const Record* self, const char* system);

/* All of it, to be kept. */
char* record_json(const Record* self);

/* A turn as a JSON object with "messages", to learn from. */
char* turn_line(const Turn* self, const char* system);

#endif

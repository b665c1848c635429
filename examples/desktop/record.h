/* The turns of a conversation, and their forms as messages, as training data and as a file. */
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
  char* title; /* or NULL before the first question */
  GPtrArray* turns;
  int lock; /* the store's: a descriptor, or -1 */
} Record;

Record* record_new(void);

/* Read the JSON of record_json(), or return NULL and the error. */
Record* record_read(const char* id, const char* json, gsize length, GError** error);

void record_free(Record* self);

/* Add a turn that has no answer yet. */
Turn* record_ask(Record* self, const char* question);

/* Cut the turns from one on; the caller owns them. */
GPtrArray* record_cut(Record* self, guint turn);

/* Put turns back that were cut. */
void record_put_back(Record* self, GPtrArray* turns);

/* Append UTF-8 text; parts of one kind become one, except whole tool calls. */
void turn_append(Turn* self, int32_t kind, const char* text);

/* The answer without reasoning and tool calls. */
char* turn_answer(const Turn* self);

/* All turns as a JSON array of messages for the library. system may be NULL. */
char* record_messages(const Record* self, const char* system);

/* The record as JSON, for a file. */
char* record_json(const Record* self);

/* A turn as a line of training data: a JSON object with "messages". */
char* turn_line(const Turn* self, const char* system);

#endif

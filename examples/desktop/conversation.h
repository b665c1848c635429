/* A conversation: a context of the library and the thread that waits for its answers. */
#ifndef CONVERSATION_H
#define CONVERSATION_H

#include "learning.h"
#include "record.h"

typedef struct Settings {
  const char* system; /* prompt, or NULL */
  double temperature;
  int max_tokens;
  int epochs; /* of training on a conversation */
} Settings;

/* How an answer ended. */
typedef struct Ending {
  char* error;    /* the library's message, or NULL */
  int32_t finish; /* one of COW_MLX_FINISH_ */
  bool kept;      /* the question and its answer belong to the conversation now; otherwise it is as
                     it was before */
  size_t held;    /* tokens in the context */
  cow_mlx_stats stats;
} Ending;

/* Callbacks, all in the main loop. */
typedef struct Listener {
  void (*part)(int32_t kind, const char* text, gpointer data); /* kind: COW_MLX_EVENT_ */
  void (*end)(const Ending* ending, gpointer data);
  void (*problem)(const char* text, gpointer data); /* with its files */
  gpointer data;
} Listener;

typedef struct Conversation Conversation;

/* None of these functions waits for the library or a disk. The record is the conversation's. */
Conversation* conversation_new(cow_mlx_model model, const Settings* settings, Learning* learning,
                               Record* record, Listener listener);

/* Ask a question as turn number `turn`; once it has an answer, it replaces that turn and all later
 * ones. One question at a time. */
void conversation_ask(Conversation* self, guint turn, const char* question);

/* Make the answer end where it is. */
void conversation_stop(Conversation* self);

/* Its training data: a line for each question with a whole answer; the caller frees it. */
GPtrArray* conversation_lines(Conversation* self);

void conversation_rename(Conversation* self, const char* title);

/* Delete its files for good. */
void conversation_discard(Conversation* self);

/* Stop, call no callback again, write its files, and free everything. Then call ended, which may be
 * NULL, in the main loop; the application lives until then. */
void conversation_close(Conversation* self, void (*ended)(gpointer), gpointer data);

#endif

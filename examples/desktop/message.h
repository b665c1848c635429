/* A message as widgets: a question, or an answer as it comes. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <cow_mlx.h>

#include "gtk48.h"

/* Messages of a turn. Their buttons copy, or activate "message.edit" and "message.retry" with the
 * turn's number (uint32). */
GtkWidget* question_new(const char* text, guint turn);
GtkWidget* answer_new(guint turn);

/* The text of a message, as it was written. */
const char* message_text(GtkWidget* message);

/* kind: COW_MLX_EVENT_. Text and reasoning come in parts, a tool call whole. */
void answer_append(GtkWidget* answer, int32_t kind, const char* text);

/* Nothing more comes. */
void answer_end(GtkWidget* answer);

#endif

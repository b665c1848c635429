/* A message as widgets: a question, or an answer as it comes. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <cow_mlx.h>

#include "gtk48.h"

GtkWidget* question_new(const char* text);

GtkWidget* answer_new(void);

/* kind: COW_MLX_EVENT_. Text and reasoning come in parts, a tool call whole. */
void answer_append(GtkWidget* answer, int32_t kind, const char* text);

/* Nothing more comes. */
void answer_end(GtkWidget* answer);

#endif

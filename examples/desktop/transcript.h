/* All messages of a conversation, which scroll. */
#ifndef TRANSCRIPT_H
#define TRANSCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "widgets.h"

typedef struct Transcript Transcript;

/* It lives until its widget is destroyed. */
Transcript* transcript_new(void);

GtkWidget* transcript_widget(Transcript* self);

/* A question, as the turn of this number; turns from there on are hidden. */
void transcript_begin(Transcript* self, guint turn, const char* question);

/* A part of its answer; kind: COW_MLX_EVENT_. */
void transcript_append(Transcript* self, int32_t kind, const char* text);

/* With an answer, the hidden turns go; without one, they are shown again. */
void transcript_end(Transcript* self, bool answered);

/* The question of a turn. */
const char* transcript_question(Transcript* self, guint turn);

/* The text of the last answer, or "". */
const char* transcript_answer(Transcript* self);

/* Mark the question that is being edited: the number of its turn, or -1. */
void transcript_mark(Transcript* self, int turn);

#endif

/* What the user sees of learning: a button, its progress, and what came of it. */
#ifndef LEARNING_BAR_H
#define LEARNING_BAR_H

#include "gtk48.h"
#include "learning.h"

typedef struct LearningBar LearningBar;

/* It lives until its widget is destroyed; the window has actions to learn and to cancel that. */
LearningBar* learning_bar_new(Learning* learning, GActionMap* window);

GtkWidget* learning_bar_widget(LearningBar* self);

/* Learn lines; nothing happens while others are being learnt. */
void learning_bar_learn(LearningBar* self, GPtrArray* lines, int epochs);

/* End what is being learnt, if anything is. */
void learning_bar_cancel(LearningBar* self);

#endif

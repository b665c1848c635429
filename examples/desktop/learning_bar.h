/* The bar for learning: a button, progress, the result. */
#ifndef LEARNING_BAR_H
#define LEARNING_BAR_H

#include "widgets.h"
#include "learning.h"

typedef struct LearningBar LearningBar;

/* It lives until its widget is destroyed; the window has actions to learn and to cancel that. */
LearningBar* learning_bar_new(Learning* learning, GActionMap* window);

GtkWidget* learning_bar_widget(LearningBar* self);

/* Train on lines; does nothing during another lesson. */
void learning_bar_learn(LearningBar* self, GPtrArray* lines, int epochs);

/* Cancel the lesson, if there is one. */
void learning_bar_cancel(LearningBar* self);

#endif

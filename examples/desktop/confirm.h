/* A question before something that takes long or cannot be undone. */
#ifndef CONFIRM_H
#define CONFIRM_H

#include "gtk48.h"

typedef struct Question {
  const char *title, *text, *detail;
  const char *no, *yes; /* labels of the buttons, with mnemonics */
} Question;

/* Ask in a modal dialog, and call act with data once the answer is yes. The dialog goes with its
 * parent, and act is not called then. */
void confirm(GtkWindow* parent, const Question* question, void (*act)(gpointer), gpointer data);

#endif

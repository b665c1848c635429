/* Small widgets, the look of the window, and GTK as version 4.8 has it. */
#ifndef WIDGETS_H
#define WIDGETS_H

/* Newer versions of GTK do not warn of calls that they deprecate. */
#define GDK_VERSION_MIN_REQUIRED GDK_VERSION_4_8
#define GDK_VERSION_MAX_ALLOWED GDK_VERSION_4_8
#include <gtk/gtk.h>

/* A question before a long action, or one that cannot be undone. */
typedef struct Question {
  const char *title, *text, *detail;
  const char *no, *yes; /* labels of the buttons, with mnemonics */
} Question;

/* Ask in a modal dialog, and call act with data once the answer is yes. The dialog goes with its
 * parent, and act is not called then. */
void confirm(GtkWindow* parent, const Question* question, void (*act)(gpointer), gpointer data);

/* A button that copies a text to the clipboard; name: of the text. */
GtkWidget* copy_button_new(const char* name);

void copy_button_set_text(GtkWidget* button, const char* text);

/* A label for text of any length. It wraps, within words if necessary; its text can be selected. */
GtkWidget* label_new(const char* text);

/* Load the CSS of the window. */
void style_use(void);

#endif

/* A button that copies a text to the clipboard. */
#ifndef COPY_H
#define COPY_H

#include "gtk48.h"

/* name: what it copies. */
GtkWidget* copy_button_new(const char* name);

void copy_button_set_text(GtkWidget* button, const char* text);

#endif

/* A label for text of any length. */
#ifndef LABEL_H
#define LABEL_H

#include "gtk48.h"

/* It wraps, within words if it must, and its text can be selected. */
GtkWidget* label_new(const char* text);

#endif

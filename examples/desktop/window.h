/* The window: choose a model, watch it load, talk. */
#ifndef WINDOW_H
#define WINDOW_H

#include "conversation.h"
#include "widgets.h"

/* Open the window; folder is that of the model, or NULL to let the user choose. */
void window_open(GtkApplication* application, const char* folder, const Settings* settings);

#endif

/* The list of conversations beside the page of one; in a narrow window, one or the other. */
#ifndef PANES_H
#define PANES_H

#include "gtk48.h"

/* The window gets a stateful action "list", which shows and hides the list, and an action "page",
 * which brings the page to the front in a narrow window. The widget lives as long as the window. */
GtkWidget* panes_new(GtkWindow* window, GtkWidget* list, GtkWidget* page);

#endif

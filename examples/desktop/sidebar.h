/* The list of conversations, saved ones too, and the page of the one in front. */
#ifndef SIDEBAR_H
#define SIDEBAR_H

#include "view.h"

typedef struct Sidebar Sidebar;

/* It lives until its widget is destroyed. The window has actions to open a conversation, close it,
 * give it another title and delete it. */
Sidebar* sidebar_new(GtkWindow* window, GtkStack* pages, cow_mlx_model model,
                     const Settings* settings, Learning* learning);

GtkWidget* sidebar_widget(Sidebar* self);

/* The conversation in front. */
View* sidebar_view(Sidebar* self);

/* Stop renaming. */
bool sidebar_stop_renaming(Sidebar* self);

#endif

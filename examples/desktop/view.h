/* What one conversation looks like: a page with its text, and a row in the list of all. */
#ifndef VIEW_H
#define VIEW_H

#include "conversation.h"
#include "gtk48.h"

typedef struct View {
  GtkWidget *page, *row;
  GtkWidget *transcript, *status, *entry, *button; /* on the page */
  GtkWidget *title, *preview, *spinner;            /* in the row */
  GtkAdjustment* vertical;                         /* where the transcript is scrolled to */
  GtkWidget* answer;                               /* that is coming, or NULL */
  GString* tail;                                   /* the end of what was said last */
  bool following;                                  /* the end of the text is kept in sight */
  double top;                                      /* where the text was scrolled to last */
  guint scrolling;                                 /* source that scrolls to the end, or 0 */
  char* question;                                  /* that is being answered, or NULL */
  Conversation* conversation;
} View;

/* The view lives until its page is destroyed. */
View* view_new(cow_mlx_model model, const Settings* settings, Learning* learning);

/* The view of a row. */
View* view_of(GtkWidget* row);

/* Let the user type. */
void view_focus(View* self);

/* End the answer, if there is one. */
void view_stop(View* self);

#endif

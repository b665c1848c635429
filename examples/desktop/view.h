/* What one conversation looks like: a page with its text, and a row in the list of all. */
#ifndef VIEW_H
#define VIEW_H

#include "conversation.h"
#include "gtk48.h"
#include "transcript.h"

typedef struct View {
  GtkWidget *page, *row;
  GtkWidget *status, *entry, *button;   /* on the page */
  GtkWidget *title, *preview, *spinner; /* in the row */
  Transcript* transcript;               /* its messages */
  GSimpleActionGroup* actions;          /* of the messages */
  GString* tail;                        /* the end of what was said last */
  guint turns;                          /* questions that were answered */
  guint turn;                           /* number of the one that is being answered */
  char* question;                       /* that is being answered, or NULL */
  int editing;                          /* number of the one in the entry, or -1 */
  char* draft;                          /* was in the entry before that */
  Conversation* conversation;
} View;

/* The view lives until its page is destroyed. */
View* view_new(cow_mlx_model model, const Settings* settings, Learning* learning);

/* The view of a row. */
View* view_of(GtkWidget* row);

/* Let the user type. */
void view_focus(View* self);

/* End the answer, if one is coming, or the editing of a message. */
void view_stop(View* self);

#endif

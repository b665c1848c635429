/* The page of a conversation; its row in the list shows its progress. */
#ifndef VIEW_H
#define VIEW_H

#include "conversation.h"
#include "widgets.h"
#include "row.h"
#include "transcript.h"

typedef struct View {
  GtkWidget *page, *row;
  GtkWidget *status, *entry, *button; /* on the page */
  Transcript* transcript;             /* its messages */
  GSimpleActionGroup* actions;        /* of the messages */
  bool renamed;                       /* the first question is not the title */
  guint turns;                        /* answered questions */
  guint turn;                         /* number of the turn in progress */
  char* question;                     /* in progress, or NULL */
  guint retried;                      /* number of the one to answer again */
  int editing;                        /* number of the one in the entry, or -1 */
  char* draft;                        /* was in the entry before that */
  Conversation* conversation;
  void (*ended)(gpointer);
  gpointer ended_data;
} View;

/* The view lives until its page is destroyed, and owns the record. */
View* view_new(cow_mlx_model model, const Settings* settings, Learning* learning, Record* record,
               GtkWidget* row);

/* Give the conversation another title. */
void view_rename(View* self, const char* title);

/* Call this before the page is removed; ended is called once everything is written. */
void view_on_ended(View* self, void (*ended)(gpointer), gpointer data);

/* Let the user type. */
void view_focus(View* self);

/* Stop the answer in progress, or the editing of a message. */
void view_stop(View* self);

#endif

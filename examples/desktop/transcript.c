#include "transcript.h"

#include "message.h"

struct Transcript {
  GtkWidget *scrolled, *box;
  GtkAdjustment* vertical;
  GtkWidget* answer; /* that is coming, or NULL */
  bool following;    /* the end of the text is kept in sight */
  double top;        /* where the text was scrolled to last */
  guint scrolling;   /* source that scrolls to the end, or 0 */
};

/* --------------------------------------------------------------- Messages */

/* The question of a turn; its answer is next to it. */
static GtkWidget* question_of(Transcript* self, guint turn) {
  GtkWidget* message = gtk_widget_get_first_child(self->box);
  for (guint i = 0; i < 2 * turn; i++) message = gtk_widget_get_next_sibling(message);
  return message;
}

static void show_from(Transcript* self, guint turn, bool visible) {
  GtkWidget* message = question_of(self, turn);
  for (; message; message = gtk_widget_get_next_sibling(message)) {
    gtk_widget_set_visible(message, visible);
  }
}

static void remove_hidden(Transcript* self) {
  GtkWidget* message = gtk_widget_get_first_child(self->box);
  while (message) {
    GtkWidget* next = gtk_widget_get_next_sibling(message);
    if (!gtk_widget_get_visible(message)) gtk_box_remove(GTK_BOX(self->box), message);
    message = next;
  }
}

void transcript_begin(Transcript* self, guint turn, const char* question) {
  show_from(self, turn, false);
  self->answer = answer_new(turn);
  gtk_box_append(GTK_BOX(self->box), question_new(question, turn));
  gtk_box_append(GTK_BOX(self->box), self->answer);
  self->following = true;
}

void transcript_append(Transcript* self, int32_t kind, const char* text) {
  answer_append(self->answer, kind, text);
}

void transcript_end(Transcript* self, bool answered) {
  answer_end(self->answer);
  if (answered) {
    remove_hidden(self);
  } else {
    gtk_box_remove(GTK_BOX(self->box), gtk_widget_get_prev_sibling(self->answer));
    gtk_box_remove(GTK_BOX(self->box), self->answer);
    show_from(self, 0, true);
  }
  self->answer = NULL;
}

const char* transcript_question(Transcript* self, guint turn) {
  return message_text(question_of(self, turn));
}

const char* transcript_answer(Transcript* self) {
  GtkWidget* last = gtk_widget_get_last_child(self->box);
  return last ? message_text(last) : "";
}

void transcript_mark(Transcript* self, int turn) {
  GtkWidget* marked = turn < 0 ? NULL : question_of(self, (guint)turn);
  GtkWidget* message = gtk_widget_get_first_child(self->box);
  for (; message; message = gtk_widget_get_next_sibling(message)) {
    bool on = message == marked;
    (on ? gtk_widget_add_css_class : gtk_widget_remove_css_class)(message, "edited");
  }
}

/* -------------------------------------------------------------- Scrolling */

/* New text keeps its end in sight, until the user scrolls up, and again from where it ends. */
static void on_scrolled(GtkAdjustment* vertical, Transcript* self) {
  double top = gtk_adjustment_get_value(vertical);
  double end = gtk_adjustment_get_upper(vertical) - gtk_adjustment_get_page_size(vertical);
  self->following = top >= end || (self->following && top >= self->top - 1);
  self->top = top;
}

static gboolean scroll_to_end(gpointer data) {
  Transcript* self = data;
  gtk_adjustment_set_value(self->vertical, gtk_adjustment_get_upper(self->vertical));
  self->scrolling = 0;
  return G_SOURCE_REMOVE;
}

/* This comes while the text is laid out, and what it is scrolled to then does not last. */
static void on_resized(GtkAdjustment* vertical, Transcript* self) {
  (void)vertical;
  if (self->following && !self->scrolling) self->scrolling = g_idle_add(scroll_to_end, self);
}

static void on_destroy(Transcript* self) {
  g_signal_handlers_disconnect_by_data(self->vertical, self);
  g_object_unref(self->vertical);
  g_clear_handle_id(&self->scrolling, g_source_remove);
  g_free(self);
}

Transcript* transcript_new(void) {
  Transcript* self = g_new0(Transcript, 1);
  self->box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 0);
  gtk_accessible_update_property(GTK_ACCESSIBLE(self->box), GTK_ACCESSIBLE_PROPERTY_LABEL,
                                 "Transcript", -1);
  self->scrolled = gtk_scrolled_window_new();
  gtk_widget_add_css_class(self->scrolled, "transcript");
  GtkScrolledWindow* scrolled = GTK_SCROLLED_WINDOW(self->scrolled);
  gtk_scrolled_window_set_policy(scrolled, GTK_POLICY_NEVER, GTK_POLICY_AUTOMATIC);
  gtk_scrolled_window_set_child(scrolled, self->box);
  gtk_widget_set_vexpand(self->scrolled, TRUE);
  self->vertical = g_object_ref(gtk_scrolled_window_get_vadjustment(scrolled));
  g_signal_connect(self->vertical, "changed", G_CALLBACK(on_resized), self);
  g_signal_connect(self->vertical, "value-changed", G_CALLBACK(on_scrolled), self);
  g_signal_connect_swapped(self->scrolled, "destroy", G_CALLBACK(on_destroy), self);
  return self;
}

GtkWidget* transcript_widget(Transcript* self) { return self->scrolled; }

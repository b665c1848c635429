#include "transcript.h"

#include <cow_mlx.h>

#include "markdown.h"

/* ------------------------------------------------- Messages as widgets
 * Their buttons copy, or activate "message.edit" and "message.retry" with the turn's number. */

typedef struct Message {
  GString* text;     /* without reasoning and tool calls */
  GtkWidget* parts;  /* box */
  GtkWidget* last;   /* its last part, or NULL */
  int32_t last_kind; /* its kind */
  GtkWidget* copy;   /* button */
} Message;

static void free_message(gpointer data) {
  Message* self = data;
  g_string_free(self->text, TRUE);
  g_free(self);
}

static Message* message_of(GtkWidget* widget) {
  return g_object_get_data(G_OBJECT(widget), "message");
}

static GtkWidget* build_button(const char* icon, const char* name, const char* action, guint turn) {
  GtkWidget* button = gtk_button_new_from_icon_name(icon);
  gtk_widget_add_css_class(button, "flat");
  gtk_widget_set_focus_on_click(button, FALSE);
  gtk_widget_set_tooltip_text(button, name);
  gtk_accessible_update_property(GTK_ACCESSIBLE(button), GTK_ACCESSIBLE_PROPERTY_LABEL, name, -1);
  gtk_actionable_set_action_name(GTK_ACTIONABLE(button), action);
  gtk_actionable_set_action_target(GTK_ACTIONABLE(button), "u", turn);
  return button;
}

/* The buttons are below the text, at its side of the page. */
static GtkWidget* build(const char* name, const char* css_class, GtkAlign side, GtkWidget* button) {
  GtkWidget* box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 4);
  gtk_widget_add_css_class(box, "message");
  gtk_widget_add_css_class(box, css_class);
  gtk_accessible_update_property(GTK_ACCESSIBLE(box), GTK_ACCESSIBLE_PROPERTY_LABEL, name, -1);
  Message* self = g_new0(Message, 1);
  self->text = g_string_new(NULL);
  self->parts = gtk_box_new(GTK_ORIENTATION_VERTICAL, 8);
  gtk_widget_add_css_class(self->parts, "parts");
  self->copy = copy_button_new("Copy message");
  GtkWidget* buttons = gtk_box_new(GTK_ORIENTATION_HORIZONTAL, 0);
  gtk_widget_add_css_class(buttons, "buttons");
  gtk_widget_set_halign(buttons, side);
  gtk_box_append(GTK_BOX(buttons), self->copy);
  gtk_box_append(GTK_BOX(buttons), button);
  gtk_box_append(GTK_BOX(box), self->parts);
  gtk_box_append(GTK_BOX(box), buttons);
  g_object_set_data_full(G_OBJECT(box), "message", self, free_message);
  return box;
}

static GtkWidget* question_new(const char* text, guint turn) {
  GtkWidget* edit =
      build_button("document-edit-symbolic", "Edit and ask again", "message.edit", turn);
  GtkWidget* box = build("Question", "question", GTK_ALIGN_END, edit);
  gtk_widget_set_halign(box, GTK_ALIGN_END);
  Message* self = message_of(box);
  g_string_append(self->text, text);
  GtkWidget* label = label_new(text);
  gtk_label_set_max_width_chars(GTK_LABEL(label), 60);
  gtk_box_append(GTK_BOX(self->parts), label);
  copy_button_set_text(self->copy, text);
  return box;
}

static GtkWidget* answer_new(guint turn) {
  GtkWidget* retry = build_button("view-refresh-symbolic", "Answer again", "message.retry", turn);
  return build("Answer", "answer", GTK_ALIGN_START, retry);
}

static void add_part(Message* self, int32_t kind, GtkWidget* part) {
  static const char* const classes[] = {[COW_MLX_EVENT_TEXT] = "said",
                                        [COW_MLX_EVENT_REASONING] = "reasoning",
                                        [COW_MLX_EVENT_TOOL_CALL] = "tool-call"};
  if (self->last && self->last_kind != COW_MLX_EVENT_TOOL_CALL) markdown_end(self->last);
  gtk_widget_add_css_class(part, classes[kind]);
  gtk_box_append(GTK_BOX(self->parts), part);
  self->last = part;
  self->last_kind = kind;
}

static void answer_append(GtkWidget* answer, int32_t kind, const char* text) {
  Message* self = message_of(answer);
  if (kind == COW_MLX_EVENT_TOOL_CALL) {
    add_part(self, kind, label_new(text));
    return;
  }
  if (kind == COW_MLX_EVENT_TEXT) g_string_append(self->text, text);
  if (!self->last || self->last_kind != kind) add_part(self, kind, markdown_new());
  markdown_append(self->last, text);
}

static void answer_end(GtkWidget* answer) {
  Message* self = message_of(answer);
  if (self->last && self->last_kind != COW_MLX_EVENT_TOOL_CALL) markdown_end(self->last);
  copy_button_set_text(self->copy, self->text->str);
}

static const char* message_text(GtkWidget* message) { return message_of(message)->text->str; }

struct Transcript {
  GtkWidget *scrolled, *box;
  GtkAdjustment* vertical;
  GtkWidget* answer; /* in progress, or NULL */
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

/* Follow the end of new text, until the user scrolls up; follow again at the end. */
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

/* This runs while the text is laid out; a position that is set now would be lost. */
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

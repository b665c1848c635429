#include "message.h"

#include "copy.h"
#include "label.h"
#include "markdown.h"

typedef struct Message {
  GString* text;     /* of an answer what was said, without the rest */
  GtkWidget* parts;  /* box */
  GtkWidget* last;   /* its last part, or NULL */
  int32_t last_kind; /* what that is */
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

GtkWidget* question_new(const char* text, guint turn) {
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

GtkWidget* answer_new(guint turn) {
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

void answer_append(GtkWidget* answer, int32_t kind, const char* text) {
  Message* self = message_of(answer);
  if (kind == COW_MLX_EVENT_TOOL_CALL) {
    add_part(self, kind, label_new(text));
    return;
  }
  if (kind == COW_MLX_EVENT_TEXT) g_string_append(self->text, text);
  if (!self->last || self->last_kind != kind) add_part(self, kind, markdown_new());
  markdown_append(self->last, text);
}

void answer_end(GtkWidget* answer) {
  Message* self = message_of(answer);
  if (self->last && self->last_kind != COW_MLX_EVENT_TOOL_CALL) markdown_end(self->last);
  copy_button_set_text(self->copy, self->text->str);
}

const char* message_text(GtkWidget* message) { return message_of(message)->text->str; }

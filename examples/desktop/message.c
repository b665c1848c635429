#include "message.h"

#include "markdown.h"

typedef struct Answer {
  GtkWidget* last;   /* its last part, or NULL */
  int32_t last_kind; /* what that is */
} Answer;

static GtkWidget* build(const char* name, const char* css_class) {
  GtkWidget* box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 8);
  gtk_widget_add_css_class(box, "message");
  gtk_widget_add_css_class(box, css_class);
  gtk_accessible_update_property(GTK_ACCESSIBLE(box), GTK_ACCESSIBLE_PROPERTY_LABEL, name, -1);
  return box;
}

/* Text as it was written. */
static GtkWidget* build_plain(const char* text) {
  GtkLabel* label = GTK_LABEL(gtk_label_new(text));
  gtk_label_set_xalign(label, 0);
  gtk_label_set_wrap(label, TRUE);
  gtk_label_set_wrap_mode(label, PANGO_WRAP_WORD_CHAR);
  gtk_label_set_selectable(label, TRUE);
  return GTK_WIDGET(label);
}

GtkWidget* question_new(const char* text) {
  GtkWidget* box = build("Question", "question");
  gtk_box_append(GTK_BOX(box), build_plain(text));
  return box;
}

GtkWidget* answer_new(void) {
  GtkWidget* box = build("Answer", "answer");
  g_object_set_data_full(G_OBJECT(box), "answer", g_new0(Answer, 1), g_free);
  return box;
}

static void add_part(GtkWidget* box, Answer* self, int32_t kind, GtkWidget* part) {
  static const char* const classes[] = {[COW_MLX_EVENT_TEXT] = "said",
                                        [COW_MLX_EVENT_REASONING] = "reasoning",
                                        [COW_MLX_EVENT_TOOL_CALL] = "tool-call"};
  answer_end(box);
  gtk_widget_add_css_class(part, classes[kind]);
  gtk_box_append(GTK_BOX(box), part);
  self->last = part;
  self->last_kind = kind;
}

void answer_append(GtkWidget* answer, int32_t kind, const char* text) {
  Answer* self = g_object_get_data(G_OBJECT(answer), "answer");
  if (kind == COW_MLX_EVENT_TOOL_CALL) {
    add_part(answer, self, kind, build_plain(text));
    return;
  }
  if (!self->last || self->last_kind != kind) add_part(answer, self, kind, markdown_new());
  markdown_append(self->last, text);
}

void answer_end(GtkWidget* answer) {
  Answer* self = g_object_get_data(G_OBJECT(answer), "answer");
  if (self->last && self->last_kind != COW_MLX_EVENT_TOOL_CALL) markdown_end(self->last);
}

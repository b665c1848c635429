#include "learning_bar.h"

#include <math.h>

#include "widgets.h"

struct LearningBar {
  Learning* learning;
  GtkWidget *box, *label, *progress, *cancel;
  GSimpleAction* learn;
  GCancellable* lesson; /* in progress, or NULL */
  bool closed;          /* the widgets are gone */
};

static void free_bar(gpointer data) {
  LearningBar* self = data;
  learning_release(self->learning);
  g_object_unref(self->learn);
}

static void show(LearningBar* self, const char* text, bool is_error) {
  gtk_label_set_text(GTK_LABEL(self->label), text);
  gtk_widget_set_visible(self->label, TRUE);
  (is_error ? gtk_widget_add_css_class : gtk_widget_remove_css_class)(self->label, "error");
}

/* A lesson in progress can be cancelled, and no other one can begin. */
static void update(LearningBar* self) {
  gtk_widget_set_visible(self->progress, self->lesson != NULL);
  gtk_widget_set_visible(self->cancel, self->lesson != NULL);
  g_simple_action_set_enabled(self->learn, !self->lesson);
}

static void on_progress(size_t step, size_t steps, double remaining, gpointer data) {
  LearningBar* self = data;
  if (self->closed) return;
  char* text = g_strdup_printf("Learning: step %zu of %zu, %.0f s left", step, steps,
                               isfinite(remaining) ? remaining : 0);
  show(self, text, false);
  g_free(text);
  gtk_progress_bar_set_fraction(GTK_PROGRESS_BAR(self->progress),
                                steps ? (double)step / (double)steps : 0);
}

static void on_trained(GObject* source, GAsyncResult* result, gpointer data) {
  LearningBar* self = data;
  (void)source;
  GError* error = NULL;
  size_t lines = learning_finish(result, &error);
  g_clear_object(&self->lesson);
  if (!self->closed) {
    if (!error) {
      char* text = g_strdup_printf("Answers use what was learned from %zu question%s", lines,
                                   lines == 1 ? "" : "s");
      show(self, text, false);
      g_free(text);
    } else if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) {
      show(self, "Learning was canceled, and nothing was learned", false);
    } else {
      show(self, error->message, true);
    }
    update(self);
  }
  g_clear_error(&error);
  g_rc_box_release_full(self, free_bar);
}

void learning_bar_learn(LearningBar* self, GPtrArray* lines, int epochs) {
  if (self->lesson) return;
  if (!lines->len) {
    show(self, "There is nothing to learn before a question has got its whole answer", true);
    return;
  }
  self->lesson = g_cancellable_new();
  gtk_progress_bar_set_fraction(GTK_PROGRESS_BAR(self->progress), 0);
  show(self, "Learning", false);
  update(self);
  learning_start(self->learning, lines, epochs, self->lesson, on_progress, on_trained,
                 g_rc_box_acquire(self));
}

void learning_bar_cancel(LearningBar* self) {
  if (self->lesson) g_cancellable_cancel(self->lesson);
}

static void on_destroy(LearningBar* self) {
  self->closed = true;
  learning_bar_cancel(self);
  g_rc_box_release_full(self, free_bar);
}

static GtkWidget* build_button(const char* label, const char* action) {
  GtkWidget* button = gtk_button_new_with_label(label);
  GtkWidget* text = gtk_button_get_child(GTK_BUTTON(button));
  gtk_label_set_ellipsize(GTK_LABEL(text), PANGO_ELLIPSIZE_END);
  gtk_actionable_set_action_name(GTK_ACTIONABLE(button), action);
  return button;
}

LearningBar* learning_bar_new(Learning* learning, GActionMap* window) {
  LearningBar* self = g_rc_box_new0(LearningBar);
  self->learning = learning_acquire(learning);
  self->learn = g_object_ref(G_SIMPLE_ACTION(g_action_map_lookup_action(window, "learn")));
  self->label = label_new("");
  gtk_widget_set_visible(self->label, FALSE);
  self->progress = gtk_progress_bar_new();
  gtk_accessible_update_property(GTK_ACCESSIBLE(self->progress), GTK_ACCESSIBLE_PROPERTY_LABEL,
                                 "Learning", -1);
  self->cancel = build_button("Cancel learning", "win.cancel-learning");
  GtkWidget* learn = build_button("Learn from this conversation", "win.learn");
  gtk_widget_set_tooltip_text(learn, "Learn from this conversation (Ctrl+L)");
  self->box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 8);
  gtk_widget_add_css_class(self->box, "learning");
  GtkWidget* buttons = gtk_box_new(GTK_ORIENTATION_HORIZONTAL, 8);
  gtk_widget_set_halign(buttons, GTK_ALIGN_END);
  gtk_box_append(GTK_BOX(buttons), self->cancel);
  gtk_box_append(GTK_BOX(buttons), learn);
  gtk_box_append(GTK_BOX(self->box), self->label);
  gtk_box_append(GTK_BOX(self->box), self->progress);
  gtk_box_append(GTK_BOX(self->box), buttons);
  g_signal_connect_swapped(self->box, "destroy", G_CALLBACK(on_destroy), self);
  update(self);
  return self;
}

GtkWidget* learning_bar_widget(LearningBar* self) { return self->box; }

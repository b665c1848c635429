#include "view.h"

#include "widgets.h"

/* ---------------------------------------------------------- State of the page */

static void show_status(View* self, const char* text, bool is_error) {
  gtk_label_set_text(GTK_LABEL(self->status), text);
  (is_error ? gtk_widget_add_css_class : gtk_widget_remove_css_class)(self->status, "error");
}

static char* typed(View* self) {
  return g_strstrip(g_strdup(gtk_editable_get_text(GTK_EDITABLE(self->entry))));
}

/* The button sends, or stops an answer in progress. */
static void update_button(View* self) {
  char* text = typed(self);
  gtk_button_set_label(GTK_BUTTON(self->button), self->question ? "Stop" : "Send");
  gtk_widget_set_sensitive(self->button, self->question || *text);
  g_free(text);
}

/* One question at a time. */
static void update_actions(View* self) {
  static const char* const names[] = {"edit", "retry"};
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    GAction* action = g_action_map_lookup_action(G_ACTION_MAP(self->actions), names[i]);
    g_simple_action_set_enabled(G_SIMPLE_ACTION(action), !self->question);
  }
}

static void set_entry(View* self, const char* text) {
  gtk_editable_set_text(GTK_EDITABLE(self->entry), text);
  gtk_editable_set_position(GTK_EDITABLE(self->entry), -1);
}

static void edit(View* self, int turn) {
  self->editing = turn;
  transcript_mark(self->transcript, turn);
}

/* A question without an answer returns to the entry. */
static void take_back(View* self) {
  row_show(self->row, transcript_answer(self->transcript));
  if (gtk_entry_get_text_length(GTK_ENTRY(self->entry))) return;
  set_entry(self, self->question);
  if (self->turn < self->turns) edit(self, (int)self->turn);
}

/* -------------------------------------------------- News of the conversation */

static void on_part(int32_t kind, const char* text, gpointer data) {
  View* self = data;
  transcript_append(self->transcript, kind, text);
  row_add(self->row, text);
  show_status(self, kind == COW_MLX_EVENT_REASONING ? "Thinking…" : "Answering…", false);
}

static void on_problem(const char* text, gpointer data) { show_status(data, text, true); }

static char* describe(const Ending* ending) {
  static const char* const reasons[] = {
      [COW_MLX_FINISH_NONE] = "",
      [COW_MLX_FINISH_STOP] = "",
      [COW_MLX_FINISH_STOP_TEXT] = "",
      [COW_MLX_FINISH_LENGTH] = "Cut at the longest answer allowed. ",
      [COW_MLX_FINISH_CONTEXT] = "The model can hold no more: start a new conversation. ",
      [COW_MLX_FINISH_CANCELED] = "Stopped. ",
      [COW_MLX_FINISH_TIMEOUT] = "Out of time. ",
  };
  const cow_mlx_stats* stats = &ending->stats;
  double seconds = stats->generation_seconds;
  return g_strdup_printf("%s%zu tokens, %.0f tokens/s · %zu tokens in the context, %zu reused",
                         reasons[ending->finish], stats->generated_tokens,
                         seconds > 0 ? (double)stats->generated_tokens / seconds : 0, ending->held,
                         stats->reused_tokens);
}

static void on_end(const Ending* ending, gpointer data) {
  View* self = data;
  transcript_end(self->transcript, ending->kept);
  if (ending->kept) {
    self->turns = self->turn + 1;
  } else {
    take_back(self);
  }
  char* text = ending->error ? g_strdup(ending->error) : describe(ending);
  show_status(self, text, ending->error != NULL);
  g_free(text);
  g_clear_pointer(&self->question, g_free);
  row_set_busy(self->row, false);
  update_button(self);
  update_actions(self);
}

/* ------------------------------------------------------------ User actions */

/* Ask a question as turn number `turn`. */
static void ask(View* self, guint turn, char* question) {
  self->question = question;
  self->turn = turn;
  if (!self->turns && !self->renamed) row_set_title(self->row, question);
  edit(self, -1);
  transcript_begin(self->transcript, turn, question);
  row_show(self->row, "");
  show_status(self, "Reading…", false);
  row_set_busy(self->row, true);
  update_button(self);
  update_actions(self);
  conversation_ask(self->conversation, turn, question);
}

static void send(View* self) {
  char* question = typed(self);
  if (self->question || !*question) {
    g_free(question);
    return;
  }
  guint turn = self->editing >= 0 ? (guint)self->editing : self->turns;
  set_entry(self, self->editing >= 0 && self->draft ? self->draft : "");
  ask(self, turn, question);
}

static void leave_editing(View* self) {
  edit(self, -1);
  set_entry(self, self->draft ? self->draft : "");
  show_status(self, "", false);
}

static void retry(gpointer data) {
  View* self = data;
  if (self->editing >= 0) leave_editing(self);
  ask(self, self->retried, g_strdup(transcript_question(self->transcript, self->retried)));
  view_focus(self);
}

static void on_retry(GSimpleAction* action, GVariant* turn, gpointer data) {
  (void)action;
  View* self = data;
  self->retried = g_variant_get_uint32(turn);
  if (self->retried + 1 == self->turns) {
    retry(self);
    return;
  }
  static const Question question = {"Answer again", "Answer this question again?",
                                    "The messages after it are deleted once there is an answer.",
                                    "_Keep", "_Answer Again"};
  confirm(GTK_WINDOW(gtk_widget_get_root(self->page)), &question, retry, self);
}

static void on_edit(GSimpleAction* action, GVariant* turn, gpointer data) {
  (void)action;
  View* self = data;
  guint number = g_variant_get_uint32(turn);
  if (self->editing < 0) {
    g_free(self->draft);
    self->draft = g_strdup(gtk_editable_get_text(GTK_EDITABLE(self->entry)));
  }
  edit(self, (int)number);
  set_entry(self, transcript_question(self->transcript, number));
  show_status(self, "Enter asks this instead, and what followed goes. Escape leaves all as it is.",
              false);
  view_focus(self);
}

static void on_button(View* self) {
  if (self->question) {
    view_stop(self);
  } else {
    send(self);
  }
}

static void on_destroy(View* self) {
  conversation_close(self->conversation, self->ended, self->ended_data);
  g_object_unref(self->row);
  g_object_unref(self->actions);
  g_free(self->draft);
  g_free(self->question);
  g_free(self);
}

/* --------------------------------------------------------------- Building */

static void set_name(GtkWidget* widget, const char* text) {
  gtk_accessible_update_property(GTK_ACCESSIBLE(widget), GTK_ACCESSIBLE_PROPERTY_LABEL, text, -1);
}

static GtkWidget* build_input(View* self) {
  GtkWidget* box = gtk_box_new(GTK_ORIENTATION_HORIZONTAL, 8);
  gtk_widget_add_css_class(box, "input");
  self->entry = gtk_entry_new();
  gtk_entry_set_placeholder_text(GTK_ENTRY(self->entry), "Ask the model");
  gtk_widget_set_hexpand(self->entry, TRUE);
  set_name(self->entry, "Message");
  g_signal_connect_swapped(self->entry, "activate", G_CALLBACK(send), self);
  g_signal_connect_swapped(self->entry, "changed", G_CALLBACK(update_button), self);
  self->button = gtk_button_new();
  g_signal_connect_swapped(self->button, "clicked", G_CALLBACK(on_button), self);
  gtk_box_append(GTK_BOX(box), self->entry);
  gtk_box_append(GTK_BOX(box), self->button);
  return box;
}

static void add_actions(View* self, GtkWidget* page) {
  static const GActionEntry actions[] = {
      {.name = "edit", .activate = on_edit, .parameter_type = "u"},
      {.name = "retry", .activate = on_retry, .parameter_type = "u"}};
  self->actions = g_simple_action_group_new();
  g_action_map_add_action_entries(G_ACTION_MAP(self->actions), actions, G_N_ELEMENTS(actions),
                                  self);
  gtk_widget_insert_action_group(page, "message", G_ACTION_GROUP(self->actions));
}

static GtkWidget* build_page(View* self) {
  GtkBox* page = GTK_BOX(gtk_box_new(GTK_ORIENTATION_VERTICAL, 0));
  self->status = label_new("");
  gtk_widget_add_css_class(self->status, "status");
  self->transcript = transcript_new();
  gtk_box_append(page, transcript_widget(self->transcript));
  gtk_box_append(page, self->status);
  gtk_box_append(page, build_input(self));
  g_signal_connect_swapped(page, "destroy", G_CALLBACK(on_destroy), self);
  add_actions(self, GTK_WIDGET(page));
  return GTK_WIDGET(page);
}

/* Show the turns of an earlier time. */
static void show(View* self, const Record* record) {
  for (guint i = 0; i < record->turns->len; i++) {
    const Turn* turn = record->turns->pdata[i];
    transcript_begin(self->transcript, i, turn->question);
    for (guint p = 0; p < turn->parts->len; p++) {
      const Part* part = turn->parts->pdata[p];
      transcript_append(self->transcript, part->kind, part->text->str);
    }
    transcript_end(self->transcript, true);
  }
  self->turns = record->turns->len;
}

View* view_new(cow_mlx_model model, const Settings* settings, Learning* learning, Record* record,
               GtkWidget* row) {
  View* self = g_new0(View, 1);
  self->editing = -1;
  self->row = g_object_ref(row);
  self->page = build_page(self);
  show(self, record);
  Listener listener = {on_part, on_end, on_problem, self};
  self->conversation = conversation_new(model, settings, learning, record, listener);
  update_button(self);
  return self;
}

void view_rename(View* self, const char* title) {
  self->renamed = true;
  row_set_title(self->row, title);
  conversation_rename(self->conversation, title);
}

void view_on_ended(View* self, void (*ended)(gpointer), gpointer data) {
  self->ended = ended;
  self->ended_data = data;
}

void view_focus(View* self) { gtk_widget_grab_focus(self->entry); }

void view_stop(View* self) {
  if (self->question) {
    conversation_stop(self->conversation);
  } else if (self->editing >= 0) {
    leave_editing(self);
  }
}

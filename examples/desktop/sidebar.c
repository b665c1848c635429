#include "sidebar.h"

#include <string.h>

#include "widgets.h"
#include "store.h"

struct Sidebar {
  GtkWindow* window;
  GtkStack* pages;
  GtkWidget *box, *notice;
  GtkListBox* list;
  cow_mlx_model model;
  const Settings* settings;
  Learning* learning;
  bool closed; /* the widgets are gone */
};

static void add_new(Sidebar* self);

static void report(Sidebar* self, const char* text) {
  gtk_label_set_text(GTK_LABEL(self->notice), text);
  gtk_widget_set_visible(self->notice, *text != '\0');
}

/* ----------------------------------------------------------- Conversations */

static GtkWidget* current_row(Sidebar* self) {
  return GTK_WIDGET(gtk_list_box_get_selected_row(self->list));
}

/* The view of a row, or NULL if its conversation has not been opened. */
static View* view_of(GtkWidget* row) { return g_object_get_data(G_OBJECT(row), "view"); }

View* sidebar_view(Sidebar* self) { return view_of(current_row(self)); }

static void bring_to_front(GtkWidget* row) {
  gtk_widget_activate_action(row, "win.page", NULL);
  view_focus(view_of(row));
}

/* Select the row of the shown page again. */
static void stay(Sidebar* self) {
  GtkWidget* page = gtk_stack_get_visible_child(self->pages);
  GtkWidget* row = gtk_widget_get_first_child(GTK_WIDGET(self->list));
  while (row && !(view_of(row) && view_of(row)->page == page && gtk_widget_get_sensitive(row))) {
    row = gtk_widget_get_next_sibling(row);
  }
  if (row) {
    gtk_list_box_select_row(self->list, GTK_LIST_BOX_ROW(row));
    bring_to_front(row);
  } else {
    add_new(self);
  }
}

/* The view owns the record. */
static void open_page(Sidebar* self, GtkWidget* row, Record* record) {
  View* view = view_new(self->model, self->settings, self->learning, record, row);
  g_object_set_data(G_OBJECT(row), "view", view);
  gtk_stack_add_child(self->pages, view->page);
}

static void on_row_selected(GtkListBox* list, GtkListBoxRow* selected, Sidebar* self) {
  (void)list;
  if (!selected || self->closed) return;
  GtkWidget* row = GTK_WIDGET(selected);
  if (view_of(row) && gtk_stack_get_visible_child(self->pages) == view_of(row)->page) return;
  if (!view_of(row)) {
    GError* error = NULL;
    Record* record = store_read(row_id(row), &error);
    if (!record) {
      report(self, error->message);
      if (!g_error_matches(error, G_IO_ERROR, G_IO_ERROR_BUSY)) {
        gtk_list_box_remove(self->list, row);
      }
      g_error_free(error);
      stay(self);
      return;
    }
    open_page(self, row, record);
  }
  gtk_widget_grab_focus(row); /* or the stack would focus, and select, the first message */
  gtk_stack_set_visible_child(self->pages, view_of(row)->page);
  bring_to_front(row);
}

/* A click gives a row the focus, even if its conversation cannot be opened. */
static void on_row_activated(GtkListBox* list, GtkListBoxRow* row) {
  (void)list;
  if (view_of(GTK_WIDGET(row))) bring_to_front(GTK_WIDGET(row));
}

static void add_new(Sidebar* self) {
  Record* record = record_new();
  GtkWidget* row = row_new(record->id, NULL);
  open_page(self, row, record);
  gtk_list_box_prepend(self->list, row);
  gtk_list_box_select_row(self->list, GTK_LIST_BOX_ROW(row));
}

/* Another conversation comes to the front. */
static void leave(Sidebar* self, GtkWidget* row) {
  GtkWidget* next = gtk_widget_get_next_sibling(row);
  if (!next) next = gtk_widget_get_prev_sibling(row);
  if (next && gtk_widget_get_sensitive(next)) {
    gtk_list_box_select_row(self->list, GTK_LIST_BOX_ROW(next));
  } else {
    add_new(self);
  }
}

/* Everything is written. */
static void on_ended(gpointer row) {
  GtkWidget* list = gtk_widget_get_parent(row);
  gtk_widget_set_sensitive(row, TRUE);
  if (list && !store_has(row_id(row))) gtk_list_box_remove(GTK_LIST_BOX(list), row);
  g_object_unref(row);
}

/* Its row stays, and opens it again once everything is written. */
static void on_remove(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  Sidebar* self = data;
  GtkWidget* row = current_row(self);
  View* view = view_of(row);
  bool kept = view->turns || view->question;
  g_object_set_data(G_OBJECT(row), "view", NULL);
  gtk_widget_set_sensitive(row, FALSE);
  row_set_busy(row, false);
  leave(self, row);
  if (kept) {
    view_on_ended(view, on_ended, g_object_ref(row));
  } else {
    gtk_list_box_remove(self->list, row);
  }
  gtk_stack_remove(self->pages, view->page);
}

static void on_new(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  add_new(data);
}

/* ------------------------------------------------------ Titles, and deleting */

static void on_rename(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  Sidebar* self = data;
  g_action_group_change_action_state(G_ACTION_GROUP(self->window), "list",
                                     g_variant_new_boolean(TRUE));
  row_rename(current_row(self));
}

static void on_renamed(GSimpleAction* action, GVariant* title, gpointer data) {
  (void)action;
  view_rename(sidebar_view(data), g_variant_get_string(title, NULL));
  bring_to_front(current_row(data));
}

bool sidebar_stop_renaming(Sidebar* self) {
  bool renaming = row_stop_renaming(current_row(self));
  if (renaming) bring_to_front(current_row(self));
  return renaming;
}

static void delete_current(gpointer data) {
  Sidebar* self = data;
  GtkWidget* row = current_row(self);
  View* view = view_of(row);
  GError* error = NULL;
  if (!store_delete(row_id(row), &error)) {
    report(self, error->message);
    g_error_free(error);
    return;
  }
  conversation_discard(view->conversation);
  gtk_widget_set_sensitive(row, FALSE);
  leave(self, row);
  gtk_list_box_remove(self->list, row);
  gtk_stack_remove(self->pages, view->page);
}

static void on_delete(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  Sidebar* self = data;
  Question question = {"Delete a conversation", "Delete this conversation?",
                       row_title(current_row(self)), "_Keep", "_Delete"};
  confirm(self->window, &question, delete_current, self);
}

/* -------------------------------------------------------------------- Kept */

typedef struct Listing {
  GString* problems;
  GPtrArray* records;
} Listing;

static void free_listing(gpointer data) {
  Listing* self = data;
  g_string_free(self->problems, TRUE);
  if (self->records) g_ptr_array_unref(self->records);
  g_free(self);
}

static void list(GTask* task, gpointer source, gpointer data, GCancellable* cancellable) {
  (void)source, (void)cancellable;
  Listing* self = data;
  self->records = store_list(self->problems);
  g_task_return_boolean(task, TRUE);
}

static bool has_row(Sidebar* self, const char* id) {
  GtkWidget* row = gtk_widget_get_first_child(GTK_WIDGET(self->list));
  while (row && strcmp(row_id(row), id) != 0) row = gtk_widget_get_next_sibling(row);
  return row != NULL;
}

static void add_kept(Sidebar* self, const Record* record) {
  if (has_row(self, record->id)) return;
  GtkWidget* row = row_new(record->id, record->title);
  if (record->turns->len) {
    char* answer = turn_answer(record->turns->pdata[0]);
    row_show(row, answer);
    g_free(answer);
  }
  gtk_list_box_append(self->list, row);
}

static void on_listed(GObject* source, GAsyncResult* result, gpointer data) {
  (void)source;
  Sidebar* self = data;
  Listing* listing = g_task_get_task_data(G_TASK(result));
  for (guint i = 0; !self->closed && i < listing->records->len; i++) {
    add_kept(self, listing->records->pdata[i]);
  }
  if (!self->closed) report(self, listing->problems->str);
  g_rc_box_release(self);
  g_application_release(g_application_get_default());
}

static void start_listing(Sidebar* self) {
  GTask* task = g_task_new(NULL, NULL, on_listed, g_rc_box_acquire(self));
  Listing* listing = g_new0(Listing, 1);
  listing->problems = g_string_new(NULL);
  g_task_set_task_data(task, listing, free_listing);
  g_application_hold(g_application_get_default());
  g_task_run_in_thread(task, list);
  g_object_unref(task);
}

/* ---------------------------------------------------------------- Building */

static void on_destroy(Sidebar* self) {
  self->closed = true;
  g_rc_box_release(self);
}

static void build(Sidebar* self) {
  self->box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 0);
  self->list = GTK_LIST_BOX(gtk_list_box_new());
  gtk_list_box_set_selection_mode(self->list, GTK_SELECTION_BROWSE);
  gtk_widget_add_css_class(GTK_WIDGET(self->list), "navigation-sidebar");
  g_signal_connect(self->list, "row-selected", G_CALLBACK(on_row_selected), self);
  g_signal_connect(self->list, "row-activated", G_CALLBACK(on_row_activated), NULL);
  GtkWidget* scrolled = gtk_scrolled_window_new();
  gtk_scrolled_window_set_child(GTK_SCROLLED_WINDOW(scrolled), GTK_WIDGET(self->list));
  gtk_widget_set_vexpand(scrolled, TRUE);
  self->notice = label_new("");
  gtk_widget_add_css_class(self->notice, "notice");
  gtk_box_append(GTK_BOX(self->box), scrolled);
  gtk_box_append(GTK_BOX(self->box), self->notice);
  g_signal_connect_swapped(self->box, "destroy", G_CALLBACK(on_destroy), self);
}

Sidebar* sidebar_new(GtkWindow* window, GtkStack* pages, cow_mlx_model model,
                     const Settings* settings, Learning* learning) {
  static const GActionEntry actions[] = {
      {.name = "new", .activate = on_new},
      {.name = "remove", .activate = on_remove},
      {.name = "rename", .activate = on_rename},
      {.name = "renamed", .activate = on_renamed, .parameter_type = "s"},
      {.name = "delete", .activate = on_delete}};
  Sidebar* self = g_rc_box_new0(Sidebar);
  self->window = window;
  self->pages = pages;
  self->model = model;
  self->settings = settings;
  self->learning = learning;
  build(self);
  report(self, "");
  g_action_map_add_action_entries(G_ACTION_MAP(window), actions, G_N_ELEMENTS(actions), self);
  add_new(self);
  start_listing(self);
  return self;
}

GtkWidget* sidebar_widget(Sidebar* self) { return self->box; }

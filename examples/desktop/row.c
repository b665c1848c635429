#include "row.h"

#define PREVIEW_CHARACTERS 60

typedef struct Row {
  char* id;
  GtkWidget *title, *entry, *preview, *spinner;
  GString* tail; /* the end of the last message */
} Row;

static void free_row(gpointer data) {
  Row* self = data;
  g_string_free(self->tail, TRUE);
  g_free(self->id);
  g_free(self);
}

static Row* row_of(GtkWidget* row) { return g_object_get_data(G_OBJECT(row), "row"); }

const char* row_id(GtkWidget* row) { return row_of(row)->id; }

const char* row_title(GtkWidget* row) { return gtk_label_get_text(GTK_LABEL(row_of(row)->title)); }

void row_set_title(GtkWidget* row, const char* title) {
  gtk_label_set_text(GTK_LABEL(row_of(row)->title), title);
}

void row_show(GtkWidget* row, const char* text) {
  g_string_truncate(row_of(row)->tail, 0);
  row_add(row, text);
}

void row_add(GtkWidget* row, const char* text) {
  GString* tail = row_of(row)->tail;
  g_string_append(tail, text);
  const char* start = tail->str + tail->len;
  for (int i = 0; i < PREVIEW_CHARACTERS && start > tail->str; i++) start = g_utf8_prev_char(start);
  g_string_erase(tail, 0, start - tail->str);
  g_strdelimit(tail->str, "\n", ' ');
  gtk_label_set_text(GTK_LABEL(row_of(row)->preview), tail->str);
}

void row_set_busy(GtkWidget* row, bool busy) {
  (busy ? gtk_spinner_start : gtk_spinner_stop)(GTK_SPINNER(row_of(row)->spinner));
}

/* --------------------------------------------------------------- Renaming */

void row_rename(GtkWidget* row) {
  Row* self = row_of(row);
  gtk_editable_set_text(GTK_EDITABLE(self->entry), row_title(row));
  gtk_widget_set_visible(self->title, FALSE);
  gtk_widget_set_visible(self->entry, TRUE);
  gtk_widget_grab_focus(self->entry);
}

bool row_stop_renaming(GtkWidget* row) {
  Row* self = row_of(row);
  if (!gtk_widget_get_visible(self->entry)) return false;
  gtk_widget_set_visible(self->entry, FALSE);
  gtk_widget_set_visible(self->title, TRUE);
  return true;
}

static void on_renamed(GtkWidget* row) {
  char* title = g_strstrip(g_strdup(gtk_editable_get_text(GTK_EDITABLE(row_of(row)->entry))));
  row_stop_renaming(row);
  gtk_widget_activate_action(row, "win.renamed", "s", *title ? title : row_title(row));
  g_free(title);
}

static void on_left(GtkWidget* row) { row_stop_renaming(row); }

static GtkWidget* build_entry(GtkWidget* row) {
  GtkWidget* entry = gtk_entry_new();
  gtk_widget_set_visible(entry, FALSE);
  gtk_accessible_update_property(GTK_ACCESSIBLE(entry), GTK_ACCESSIBLE_PROPERTY_LABEL, "Title", -1);
  g_signal_connect_swapped(entry, "activate", G_CALLBACK(on_renamed), row);
  GtkEventController* focus = gtk_event_controller_focus_new();
  g_signal_connect_swapped(focus, "leave", G_CALLBACK(on_left), row);
  gtk_widget_add_controller(entry, focus);
  return entry;
}

/* --------------------------------------------------------------- Building */

static GtkWidget* build_label(const char* text, const char* css_class, PangoEllipsizeMode cut) {
  GtkWidget* label = gtk_label_new(text);
  gtk_label_set_xalign(GTK_LABEL(label), 0);
  gtk_label_set_ellipsize(GTK_LABEL(label), cut);
  gtk_widget_set_hexpand(label, TRUE);
  gtk_widget_add_css_class(label, css_class);
  return label;
}

GtkWidget* row_new(const char* id, const char* title) {
  GtkWidget* row = gtk_list_box_row_new();
  Row* self = g_new0(Row, 1);
  self->id = g_strdup(id);
  self->tail = g_string_new(NULL);
  self->title = build_label(title ? title : "New conversation", "title", PANGO_ELLIPSIZE_END);
  self->preview = build_label("", "preview", PANGO_ELLIPSIZE_START);
  self->entry = build_entry(row);
  self->spinner = gtk_spinner_new();
  g_object_set_data_full(G_OBJECT(row), "row", self, free_row);
  GtkGrid* grid = GTK_GRID(gtk_grid_new());
  gtk_grid_set_column_spacing(grid, 8);
  gtk_grid_attach(grid, self->title, 0, 0, 1, 1);
  gtk_grid_attach(grid, self->entry, 0, 1, 1, 1);
  gtk_grid_attach(grid, self->preview, 0, 2, 1, 1);
  gtk_grid_attach(grid, self->spinner, 1, 0, 1, 3);
  gtk_list_box_row_set_child(GTK_LIST_BOX_ROW(row), GTK_WIDGET(grid));
  return row;
}

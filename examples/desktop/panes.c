#include "panes.h"

#include <stdbool.h>

#define LIST_WIDTH 240
#define NARROW 640 /* a window of fewer pixels has no room for both */

typedef struct Panes {
  GtkWidget *list, *page;
  GSimpleAction* action; /* whether the list is shown */
  bool narrow;
  bool beside; /* whether the list is shown in a wide window */
} Panes;

static void show_list(Panes* self, bool shown) {
  if (!self->narrow) self->beside = shown;
  gtk_widget_set_visible(self->list, shown);
  gtk_widget_set_visible(self->page, !shown || !self->narrow);
  if (shown && self->narrow) gtk_widget_child_focus(self->list, GTK_DIR_TAB_FORWARD);
  g_simple_action_set_state(self->action, g_variant_new_boolean(shown));
}

static void on_list(GSimpleAction* action, GVariant* state, gpointer data) {
  Panes* self = data;
  (void)action;
  show_list(self, g_variant_get_boolean(state));
}

static void on_page(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  Panes* self = data;
  if (self->narrow) show_list(self, false);
}

static void on_layout(GdkSurface* surface, int width, int height, Panes* self) {
  (void)surface, (void)height;
  if (self->narrow == (width < NARROW)) return;
  self->narrow = width < NARROW;
  show_list(self, !self->narrow && self->beside);
}

GtkWidget* panes_new(GtkWindow* window, GtkWidget* list, GtkWidget* page) {
  static const GActionEntry actions[] = {{.name = "list", .state = "true", .change_state = on_list},
                                         {.name = "page", .activate = on_page}};
  Panes* self = g_new0(Panes, 1);
  self->list = list;
  self->page = page;
  self->beside = true;
  g_action_map_add_action_entries(G_ACTION_MAP(window), actions, G_N_ELEMENTS(actions), self);
  self->action = G_SIMPLE_ACTION(g_action_map_lookup_action(G_ACTION_MAP(window), "list"));

  GtkWidget* paned = gtk_paned_new(GTK_ORIENTATION_HORIZONTAL);
  gtk_paned_set_start_child(GTK_PANED(paned), list);
  gtk_paned_set_end_child(GTK_PANED(paned), page);
  gtk_paned_set_position(GTK_PANED(paned), LIST_WIDTH);
  gtk_paned_set_resize_start_child(GTK_PANED(paned), FALSE);
  GdkSurface* surface = gtk_native_get_surface(GTK_NATIVE(window));
  g_signal_connect(surface, "layout", G_CALLBACK(on_layout), self);
  on_layout(surface, gdk_surface_get_width(surface), 0, self);
  g_object_set_data_full(G_OBJECT(window), "panes", self, g_free);
  return paned;
}

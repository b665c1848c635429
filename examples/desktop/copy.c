#include "copy.h"

#define DONE_MS 1500

static gboolean show_ready(gpointer button) {
  gtk_button_set_icon_name(button, "edit-copy-symbolic");
  return G_SOURCE_REMOVE;
}

static void on_clicked(GtkWidget* button) {
  const char* text = g_object_get_data(G_OBJECT(button), "text");
  gdk_clipboard_set_text(gtk_widget_get_clipboard(button), text ? text : "");
  gtk_button_set_icon_name(GTK_BUTTON(button), "object-select-symbolic");
  g_timeout_add_full(G_PRIORITY_DEFAULT, DONE_MS, show_ready, g_object_ref(button), g_object_unref);
}

GtkWidget* copy_button_new(const char* name) {
  GtkWidget* button = gtk_button_new_from_icon_name("edit-copy-symbolic");
  gtk_widget_add_css_class(button, "flat");
  gtk_widget_set_focus_on_click(button, FALSE);
  gtk_widget_set_tooltip_text(button, name);
  gtk_accessible_update_property(GTK_ACCESSIBLE(button), GTK_ACCESSIBLE_PROPERTY_LABEL, name, -1);
  g_signal_connect(button, "clicked", G_CALLBACK(on_clicked), NULL);
  return button;
}

void copy_button_set_text(GtkWidget* button, const char* text) {
  g_object_set_data_full(G_OBJECT(button), "text", g_strdup(text), g_free);
}

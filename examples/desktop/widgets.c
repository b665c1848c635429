#include "widgets.h"

/* -------------------------------------------------------------- The look */

static const char CSS[] =
    ".transcript { background-color: @theme_base_color; }"
    ".transcript viewport > box { padding: 10px 20px; }"
    ".message { padding: 3px 0px; font-size: 1.1em; }"
    ".question { margin-left: 40px; }"
    ".question .parts { padding: 8px 14px; border-radius: 12px;"
    " background-color: alpha(@theme_selected_bg_color, 0.16); }"
    ".question.edited .parts { background-color: alpha(@theme_selected_bg_color, 0.4); }"
    ".message .buttons { opacity: 0.4; }"
    ".message:hover .buttons { opacity: 1; }"
    ".message .buttons button { min-height: 20px; min-width: 20px; padding: 2px; }"
    ".reasoning { margin: 0px 16px; font-style: italic; opacity: 0.6; }"
    ".tool-call { margin: 0px 16px; font-family: monospace; }"
    ".h1, .h2, .h3, .h4, .h5, .h6 { font-weight: bold; margin-top: 6px; }"
    ".h1 { font-size: 1.5em; }"
    ".h2 { font-size: 1.3em; }"
    ".h3 { font-size: 1.15em; }"
    ".quote { padding-left: 12px; border-left: 3px solid alpha(currentColor, 0.3); }"
    ".preformatted { font-family: monospace; font-size: 0.9em; }"
    ".code { border-radius: 9px; background-color: alpha(currentColor, 0.06);"
    " border: 1px solid alpha(currentColor, 0.12); }"
    ".code .head { padding: 2px 4px 0px 12px; font-size: 0.85em; opacity: 0.7; }"
    ".code .lines { padding: 0px 12px 10px 12px; font-family: monospace; font-size: 0.9em; }"
    ".status { padding: 4px 20px; font-size: 0.85em; opacity: 0.7; }"
    ".learning { padding: 0px 14px 14px 20px; }"
    ".learning label { font-size: 0.85em; }"
    ".learning button { border-radius: 9px; }"
    ".status.error, .learning .error { color: @error_color; opacity: 1; }"
    ".input { padding: 6px 14px 14px 14px; }"
    ".input entry { min-height: 36px; border-radius: 9px; }"
    ".input button { min-width: 64px; border-radius: 9px; }"
    ".notice { padding: 8px; font-size: 0.85em; color: @error_color; }"
    "row { padding: 8px; }"
    "row .title { font-weight: bold; }"
    "row .preview { font-size: 0.85em; opacity: 0.7; }";

void style_use(void) {
  GtkCssProvider* provider = gtk_css_provider_new();
  gtk_css_provider_load_from_data(provider, CSS, -1);
  gtk_style_context_add_provider_for_display(gdk_display_get_default(),
                                             GTK_STYLE_PROVIDER(provider),
                                             GTK_STYLE_PROVIDER_PRIORITY_APPLICATION);
  g_object_unref(provider);
}

/* ---------------------------------------------------------------- Labels */

GtkWidget* label_new(const char* text) {
  GtkLabel* label = GTK_LABEL(gtk_label_new(text));
  gtk_label_set_xalign(label, 0);
  gtk_label_set_wrap(label, TRUE);
  gtk_label_set_wrap_mode(label, PANGO_WRAP_WORD_CHAR);
  gtk_label_set_selectable(label, TRUE);
  PangoAttrList* attributes = pango_attr_list_new();
  /* A hyphen at the end of a line would look like a part of an address or of code. */
  pango_attr_list_insert(attributes, pango_attr_insert_hyphens_new(FALSE));
  gtk_label_set_attributes(label, attributes);
  pango_attr_list_unref(attributes);
  return GTK_WIDGET(label);
}

/* --------------------------------------------------------------- Copying */

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

/* ------------------------------------------------------------- Questions */

static void on_response(GtkDialog* dialog, int response, gpointer data) {
  void (*act)(gpointer) = (void (*)(gpointer))g_object_get_data(G_OBJECT(dialog), "act");
  gtk_window_destroy(GTK_WINDOW(dialog));
  if (response == GTK_RESPONSE_ACCEPT) act(data);
}

void confirm(GtkWindow* parent, const Question* question, void (*act)(gpointer), gpointer data) {
  GtkWidget* dialog =
      gtk_message_dialog_new(parent, GTK_DIALOG_MODAL | GTK_DIALOG_DESTROY_WITH_PARENT,
                             GTK_MESSAGE_QUESTION, GTK_BUTTONS_NONE, "%s", question->text);
  gtk_message_dialog_format_secondary_text(GTK_MESSAGE_DIALOG(dialog), "%s", question->detail);
  gtk_dialog_add_buttons(GTK_DIALOG(dialog), question->no, GTK_RESPONSE_CANCEL, question->yes,
                         GTK_RESPONSE_ACCEPT, NULL);
  gtk_window_set_title(GTK_WINDOW(dialog), question->title);
  g_object_set_data(G_OBJECT(dialog), "act", (gpointer)act);
  g_signal_connect(dialog, "response", G_CALLBACK(on_response), data);
  gtk_window_present(GTK_WINDOW(dialog));
}

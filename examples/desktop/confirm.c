#include "confirm.h"

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

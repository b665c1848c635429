#include "label.h"

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

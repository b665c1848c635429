#include "style.h"

#include "gtk48.h"

static const char CSS[] =
    "textview { font-size: 1.1em; }"
    ".status { padding: 4px 20px; font-size: 0.85em; opacity: 0.7; }"
    ".learning { padding: 0px 14px 14px 20px; }"
    ".learning label { font-size: 0.85em; }"
    ".learning button { border-radius: 9px; }"
    ".status.error, .learning .error { color: @error_color; opacity: 1; }"
    ".input { padding: 6px 14px 14px 14px; }"
    ".input entry { min-height: 36px; border-radius: 9px; }"
    ".input button { min-width: 64px; border-radius: 9px; }"
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

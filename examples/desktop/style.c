#include "style.h"

#include "gtk48.h"

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

/*
 * Talk with a model in a window: desktop [MODEL FOLDER]
 *
 * Every call that can wait runs on a separate thread: loading.c loads the model on one, learning.c
 * trains it on another, and each conversation has one (conversation.c), which also writes its
 * files. Their news goes to GLib's main loop; only the main loop touches widgets (window.c,
 * sidebar.c, view.c, learning_bar.c).
 */
#include "widgets.h"
#include "window.h"

#define DEFAULT_MODEL "models/calf" /* if started in the repository */

static Settings settings = {.max_tokens = 1024, .epochs = 20};
static char** folders;

static const GOptionEntry options[] = {
    {"system", 's', 0, G_OPTION_ARG_STRING, &settings.system, "System prompt", "TEXT"},
    {"temperature", 't', 0, G_OPTION_ARG_DOUBLE, &settings.temperature, "Default 0: greedy", "T"},
    {"max-tokens", 'n', 0, G_OPTION_ARG_INT, &settings.max_tokens, "Longest answer", "N"},
    {"epochs", 'e', 0, G_OPTION_ARG_INT, &settings.epochs, "Epochs of learning; default 20", "N"},
    {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &folders, NULL, "[MODEL FOLDER]"},
    {0}};

static void on_activate(GtkApplication* application) {
  const char* folder = folders ? folders[0] : NULL;
  if (!folder && g_file_test(DEFAULT_MODEL, G_FILE_TEST_IS_DIR)) folder = DEFAULT_MODEL;
  style_use();
  window_open(application, folder, &settings);
}

int main(int argc, char** argv) {
  GError* error = NULL;
  GOptionContext* context = g_option_context_new("- talk with a model");
  g_option_context_add_main_entries(context, options, NULL);
  if (!g_option_context_parse(context, &argc, &argv, &error)) {
    g_printerr("%s\n", error->message);
    return 2;
  }
  if (settings.max_tokens < 1 || settings.epochs < 1 || (folders && folders[1])) {
    g_printerr(
        "--max-tokens and --epochs must be at least 1, and there is one model folder at most\n");
    return 2;
  }
  g_option_context_free(context);

  GtkApplication* application = gtk_application_new("org.cowmlx.Desktop", G_APPLICATION_NON_UNIQUE);
  g_signal_connect(application, "activate", G_CALLBACK(on_activate), NULL);
  int status = g_application_run(G_APPLICATION(application), 1, argv);
  g_object_unref(application);
  cow_mlx_runtime_stop(); /* frees the model, too; an error if there was none */
  return status;
}

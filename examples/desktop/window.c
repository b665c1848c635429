#include "window.h"

#include "widgets.h"
#include "learning_bar.h"
#include "loading.h"
#include "sidebar.h"

/* ------------------------------------------------------------------ Panes */

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

static void on_list_state(GSimpleAction* action, GVariant* state, gpointer data) {
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

/* The list of conversations beside the page of one; in a narrow window, one or the other. The
 * window gets a stateful action "list", which shows and hides the list, and an action "page", which
 * brings the page to the front in a narrow window. The widget lives as long as the window. */
static GtkWidget* panes_new(GtkWindow* window, GtkWidget* list, GtkWidget* page) {
  static const GActionEntry actions[] = {
      {.name = "list", .state = "true", .change_state = on_list_state},
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

/* ----------------------------------------------------------------- Window */

typedef struct Window {
  GtkWindow* window;
  GtkProgressBar* progress; /* while a model is being loaded */
  Sidebar* sidebar;         /* the conversations */
  GtkStack* pages;          /* and their pages */
  GCancellable* closing;
  cow_mlx_model model;
  Learning* learning; /* the model's, or NULL before it is loaded */
  LearningBar* learning_bar;
  const Settings* settings;
} Window;

static void choose(Window* self, const char* message);

/* ------------------------------------------------- The conversation in front */

static void on_stop(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  Window* self = data;
  if (!sidebar_stop_renaming(self->sidebar)) view_stop(sidebar_view(self->sidebar));
}

static void learn(gpointer data) {
  Window* self = data;
  GPtrArray* lines = conversation_lines(sidebar_view(self->sidebar)->conversation);
  learning_bar_learn(self->learning_bar, lines, self->settings->epochs);
  g_ptr_array_unref(lines);
  view_focus(sidebar_view(self->sidebar));
}

/* It takes long, and changes the answers in all conversations. */
static void on_learn(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  Window* self = data;
  static const Question question = {
      "Learn from a conversation", "Learn from this conversation?",
      "The model is trained on the answers in it, which may take minutes. All conversations then "
      "answer with what it learns, until the window is closed.",
      "_Cancel", "_Learn"};
  GPtrArray* lines = conversation_lines(sidebar_view(self->sidebar)->conversation);
  if (lines->len) {
    confirm(self->window, &question, learn, self);
  } else {
    learn(self); /* the bar says that there is nothing to learn */
  }
  g_ptr_array_unref(lines);
}

static void on_cancel_learning(GSimpleAction* action, GVariant* parameter, gpointer data) {
  (void)action, (void)parameter;
  Window* self = data;
  learning_bar_cancel(self->learning_bar);
  view_focus(sidebar_view(self->sidebar));
}

/* With the list hidden, the user can type again. */
static void on_list(GActionGroup* actions, const char* name, GVariant* shown, Window* self) {
  (void)actions, (void)name;
  if (!g_variant_get_boolean(shown)) view_focus(sidebar_view(self->sidebar));
}

static GtkWidget* build_right(Window* self) {
  GtkWidget* box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 0);
  self->pages = GTK_STACK(gtk_stack_new());
  self->learning = learning_new(self->model);
  self->learning_bar = learning_bar_new(self->learning, G_ACTION_MAP(self->window));
  gtk_box_append(GTK_BOX(box), GTK_WIDGET(self->pages));
  gtk_box_append(GTK_BOX(box), learning_bar_widget(self->learning_bar));
  return box;
}

static void talk(Window* self) {
  static const GActionEntry actions[] = {
      {.name = "stop", .activate = on_stop},
      {.name = "learn", .activate = on_learn},
      {.name = "cancel-learning", .activate = on_cancel_learning}};
  g_action_map_add_action_entries(G_ACTION_MAP(self->window), actions, G_N_ELEMENTS(actions), self);
  GtkWidget* right = build_right(self);
  self->sidebar =
      sidebar_new(self->window, self->pages, self->model, self->settings, self->learning);
  gtk_window_set_child(self->window, panes_new(self->window, sidebar_widget(self->sidebar), right));
  g_signal_connect(self->window, "action-state-changed::list", G_CALLBACK(on_list), self);
  view_focus(sidebar_view(self->sidebar));
}

/* ------------------------------------------------------- Getting a model */

static void show_centred(Window* self, const char* message, GtkWidget* below) {
  GtkWidget* box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 18);
  GtkWidget* label = label_new(message);
  gtk_label_set_max_width_chars(GTK_LABEL(label), 60);
  gtk_widget_set_valign(box, GTK_ALIGN_CENTER);
  gtk_widget_set_halign(box, GTK_ALIGN_CENTER);
  gtk_box_append(GTK_BOX(box), label);
  gtk_box_append(GTK_BOX(box), below);
  gtk_window_set_child(self->window, box);
  gtk_window_set_focus(self->window, below);
}

static void on_progress(double fraction, const char* stage, gpointer data) {
  Window* self = data;
  if (g_cancellable_is_cancelled(self->closing)) return;
  gtk_progress_bar_set_fraction(self->progress, fraction);
  gtk_progress_bar_set_text(self->progress, stage);
}

static void on_loaded(GObject* source, GAsyncResult* result, gpointer data) {
  Window* self = data;
  (void)source;
  GError* error = NULL;
  self->model = loading_finish(result, &error);
  if (!g_cancellable_is_cancelled(self->closing)) {
    if (error) {
      choose(self, error->message);
    } else {
      talk(self);
    }
  }
  g_clear_error(&error);
  g_object_unref(self->window);
}

static void load(Window* self, const char* folder) {
  char* name = g_path_get_basename(folder);
  GtkWidget* progress = gtk_progress_bar_new();
  self->progress = GTK_PROGRESS_BAR(progress);
  gtk_progress_bar_set_show_text(self->progress, TRUE);
  gtk_widget_set_size_request(progress, 360, -1);
  gtk_window_set_title(self->window, name);
  show_centred(self, "Loading the model", progress);
  on_progress(0, "starting", self);
  g_object_ref(self->window); /* and with it self, until on_loaded */
  loading_start(folder, self->closing, on_progress, on_loaded, self);
  g_free(name);
}

static void on_chosen(GtkNativeDialog* dialog, int response, Window* self) {
  if (response == GTK_RESPONSE_ACCEPT) {
    GFile* file = gtk_file_chooser_get_file(GTK_FILE_CHOOSER(dialog));
    char* folder = g_file_get_path(file);
    load(self, folder);
    g_free(folder);
    g_object_unref(file);
  }
  g_object_unref(dialog);
}

static void on_choose(Window* self) {
  GtkFileChooserNative* dialog = gtk_file_chooser_native_new(
      "Choose a model folder", self->window, GTK_FILE_CHOOSER_ACTION_SELECT_FOLDER, "_Open", NULL);
  gtk_native_dialog_set_modal(GTK_NATIVE_DIALOG(dialog), TRUE);
  g_signal_connect(dialog, "response", G_CALLBACK(on_chosen), self);
  gtk_native_dialog_show(GTK_NATIVE_DIALOG(dialog));
}

static void choose(Window* self, const char* message) {
  GtkWidget* button = gtk_button_new_with_label("Open a Model…");
  gtk_widget_add_css_class(button, "suggested-action");
  gtk_widget_set_halign(button, GTK_ALIGN_CENTER);
  g_signal_connect_swapped(button, "clicked", G_CALLBACK(on_choose), self);
  show_centred(self, message, button);
}

/* ------------------------------------------------------------- The window */

static void free_window(gpointer data) {
  Window* self = data;
  g_object_unref(self->closing);
  if (self->learning) learning_release(self->learning);
  g_free(data);
}

static void add_button(GtkWidget* header, GtkWidget* button, const char* action, const char* name,
                       const char* key) {
  gtk_actionable_set_action_name(GTK_ACTIONABLE(button), action);
  char* tooltip = g_strdup_printf("%s (%s)", name, key);
  gtk_widget_set_tooltip_text(button, tooltip);
  g_free(tooltip);
  gtk_accessible_update_property(GTK_ACCESSIBLE(button), GTK_ACCESSIBLE_PROPERTY_LABEL, name, -1);
  gtk_header_bar_pack_start(GTK_HEADER_BAR(header), button);
}

void window_open(GtkApplication* application, const char* folder, const Settings* settings) {
  static const char* const keys[][2] = {{"win.new", "<Control>n"}, {"win.remove", "<Control>w"},
                                        {"win.rename", "F2"},      {"win.delete", "<Control>d"},
                                        {"win.stop", "Escape"},    {"win.learn", "<Control>l"},
                                        {"win.list", "F9"},        {"window.close", "<Control>q"}};
  for (size_t i = 0; i < G_N_ELEMENTS(keys); i++) {
    const char* accelerators[] = {keys[i][1], NULL};
    gtk_application_set_accels_for_action(application, keys[i][0], accelerators);
  }
  GtkWidget* header = gtk_header_bar_new();
  GtkWidget* list = gtk_toggle_button_new();
  gtk_button_set_icon_name(GTK_BUTTON(list), "view-list-symbolic");
  add_button(header, list, "win.list", "Conversations", "F9");
  add_button(header, gtk_button_new_from_icon_name("list-add-symbolic"), "win.new",
             "New conversation", "Ctrl+N");
  add_button(header, gtk_button_new_from_icon_name("document-edit-symbolic"), "win.rename",
             "Rename conversation", "F2");
  add_button(header, gtk_button_new_from_icon_name("user-trash-symbolic"), "win.delete",
             "Delete conversation", "Ctrl+D");

  Window* self = g_new0(Window, 1);
  self->window = GTK_WINDOW(gtk_application_window_new(application));
  self->closing = g_cancellable_new();
  self->settings = settings;
  g_object_set_data_full(G_OBJECT(self->window), "window", self, free_window);
  g_signal_connect_swapped(self->window, "unrealize", G_CALLBACK(g_cancellable_cancel),
                           self->closing); /* "destroy" would wait for what is being loaded */
  gtk_window_set_title(self->window, "libcowmlx");
  gtk_window_set_default_size(self->window, 900, 600);
  gtk_window_set_titlebar(self->window, header);
  if (folder) {
    load(self, folder);
  } else {
    choose(self, "Choose the folder of a model to talk with.");
  }
  gtk_window_present(self->window);
}

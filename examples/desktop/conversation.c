#include "conversation.h"

#include "messages.h"

#define GATHERED_MS 33

/* What the thread has for the main loop: a part of the answer, or its end. */
typedef struct News {
  int32_t kind; /* COW_MLX_EVENT_ */
  GString* text;
  Ending ending;
} News;

struct Conversation {
  cow_mlx_model model;
  const Settings* settings;
  Learning* learning;     /* its adapter answers */
  GAsyncQueue* questions; /* to the thread; CLOSE ends it */
  gint context;           /* atomic: the thread opens it, the main loop cancels it */
  gint stopped;           /* atomic */

  GMutex lock; /* of what follows */
  GQueue news;
  gboolean scheduled; /* the main loop will look at the news */
  GPtrArray* lines;   /* what can be learnt from it */

  cow_mlx_adapter used; /* the thread's: what the context answers with, of learning */
  GString* messages;    /* the thread's: all that was said, as JSON */
  GString* answer;      /* the thread's: the text of this answer */
  int32_t finish;       /* the thread's: why it ended */
  Listener listener;    /* the main loop's; cleared by close */
};

static char CLOSE[] = "";

static void free_news(gpointer data) {
  News* news = data;
  g_string_free(news->text, TRUE);
  g_free(news->ending.error);
  g_free(news);
}

static void free_conversation(gpointer data) {
  Conversation* self = data;
  g_async_queue_unref(self->questions);
  g_queue_clear_full(&self->news, free_news);
  g_ptr_array_unref(self->lines);
  learning_release(self->learning);
  g_mutex_clear(&self->lock);
  g_string_free(self->messages, TRUE);
  g_string_free(self->answer, TRUE);
}

static void release(gpointer self) { g_atomic_rc_box_release_full(self, free_conversation); }

static gboolean deliver(gpointer data) {
  Conversation* self = data;
  g_mutex_lock(&self->lock);
  GQueue all = self->news;
  g_queue_init(&self->news);
  self->scheduled = FALSE;
  g_mutex_unlock(&self->lock);

  for (News* news; (news = g_queue_pop_head(&all)); free_news(news)) {
    Listener* to = &self->listener;
    if (news->kind == COW_MLX_EVENT_END) {
      if (to->end) to->end(&news->ending, to->data);
    } else if (to->part) {
      to->part(news->kind, news->text->str, to->data);
    }
  }
  return G_SOURCE_REMOVE;
}

/* Tokens can come faster than a window draws, so text is gathered for a moment. */
static void post(Conversation* self, int32_t kind, const char* text, const Ending* ending) {
  g_mutex_lock(&self->lock);
  News* last = g_queue_peek_tail(&self->news);
  if (last && last->kind == kind && kind != COW_MLX_EVENT_TOOL_CALL) {
    g_string_append(last->text, text);
  } else {
    News* news = g_new0(News, 1);
    *news = (News){kind, g_string_new(text), ending ? *ending : (Ending){0}};
    g_queue_push_tail(&self->news, news);
  }
  if (!self->scheduled) {
    self->scheduled = TRUE;
    g_timeout_add_full(G_PRIORITY_DEFAULT_IDLE, GATHERED_MS, deliver, g_atomic_rc_box_acquire(self),
                       release);
  }
  g_mutex_unlock(&self->lock);
}

static bool on_event(const cow_mlx_event* event, void* user_data) {
  Conversation* self = user_data;
  switch (event->kind) {
    case COW_MLX_EVENT_TEXT:
      g_string_append_len(self->answer, event->text, (gssize)event->length);
      post(self, event->kind, event->text, NULL);
      break;
    case COW_MLX_EVENT_REASONING: /* is shown, and no part of what was said */
      post(self, event->kind, event->text, NULL);
      break;
    case COW_MLX_EVENT_TOOL_CALL: {
      char* call = g_strdup_printf("%s(%s)", event->name, event->text);
      post(self, event->kind, call, NULL);
      g_free(call);
      break;
    }
    case COW_MLX_EVENT_END:
      self->finish = event->finish;
      break;
  }
  return !g_atomic_int_get(&self->stopped);
}

/* A stop may come before the library has begun, when there is nothing to cancel yet. */
static bool on_prompt(size_t processed, size_t total, void* user_data) {
  (void)processed, (void)total;
  return !g_atomic_int_get(&((Conversation*)user_data)->stopped);
}

static cow_mlx_status chat(Conversation* self) {
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.temperature = (float)self->settings->temperature;
  params.max_tokens = (size_t)self->settings->max_tokens;
  params.seed = g_random_int();
  params.prompt_progress = on_prompt;
  params.user_data = self;
  if (!self->context) {
    cow_mlx_context context;
    cow_mlx_status status = cow_mlx_context_create(self->model, NULL, &context);
    if (status != COW_MLX_OK) return status;
    g_atomic_int_set(&self->context, context);
  }
  cow_mlx_status status = learning_use(self->learning, self->context, &self->used);
  if (status != COW_MLX_OK) return status;
  return cow_mlx_context_chat(self->context, self->messages->str, self->messages->len, &params,
                              NULL, on_event, self, NULL);
}

/* An answer that was cut is not: it would be learnt as if it had to end there. */
static void keep_line(Conversation* self, const char* question) {
  if (self->finish != COW_MLX_FINISH_STOP || !self->answer->len) return;
  char* line = messages_line(self->settings->system, question, self->answer->str);
  g_mutex_lock(&self->lock);
  g_ptr_array_add(self->lines, line);
  g_mutex_unlock(&self->lock);
}

static void answer(Conversation* self, const char* question) {
  Ending ending = {.stats.struct_size = sizeof ending.stats};
  gsize before = self->messages->len;
  messages_append(self->messages, "user", question);
  g_string_truncate(self->answer, 0);
  self->finish = COW_MLX_FINISH_NONE;

  cow_mlx_status status = chat(self);
  if (status < 0 && status != COW_MLX_ECANCELED) ending.error = g_strdup(cow_mlx_error_message());
  ending.finish = status == COW_MLX_ECANCELED ? COW_MLX_FINISH_CANCELED : self->finish;
  if (self->context) {
    cow_mlx_context_stats(self->context, &ending.stats);
    cow_mlx_context_tokens(self->context, NULL, 0, &ending.held);
  }
  ending.kept = status == COW_MLX_OK || self->answer->len > 0;
  if (ending.kept) {
    messages_append(self->messages, "assistant", self->answer->str);
    if (status == COW_MLX_OK) keep_line(self, question);
  } else {
    messages_truncate(self->messages, before); /* as if the question had not been asked */
  }
  post(self, COW_MLX_EVENT_END, "", &ending);
}

static gboolean on_thread_end(gpointer application) {
  g_application_release(application);
  return G_SOURCE_REMOVE;
}

static gpointer run(gpointer data) {
  Conversation* self = data;
  for (char* question; (question = g_async_queue_pop(self->questions)) != CLOSE;) {
    answer(self, question);
    g_free(question);
  }
  if (self->context) cow_mlx_context_free(self->context);
  release(self);
  g_idle_add(on_thread_end, g_application_get_default());
  return NULL;
}

Conversation* conversation_new(cow_mlx_model model, const Settings* settings, Learning* learning,
                               Listener listener) {
  Conversation* self = g_atomic_rc_box_new0(Conversation);
  self->model = model;
  self->settings = settings;
  self->learning = learning_acquire(learning);
  self->lines = g_ptr_array_new_with_free_func(g_free);
  self->listener = listener;
  self->questions = g_async_queue_new();
  self->answer = g_string_new(NULL);
  self->messages = g_string_new(NULL);
  if (settings->system) messages_append(self->messages, "system", settings->system);
  g_mutex_init(&self->lock);
  g_application_hold(g_application_get_default());
  g_thread_unref(g_thread_new("conversation", run, g_atomic_rc_box_acquire(self)));
  return self;
}

void conversation_ask(Conversation* self, const char* question) {
  g_atomic_int_set(&self->stopped, FALSE);
  g_async_queue_push(self->questions, g_strdup(question));
}

void conversation_stop(Conversation* self) {
  g_atomic_int_set(&self->stopped, TRUE);
  cow_mlx_context_cancel(g_atomic_int_get(&self->context));
}

static gpointer copy_line(gconstpointer line, gpointer data) {
  (void)data;
  return g_strdup(line);
}

GPtrArray* conversation_lines(Conversation* self) {
  g_mutex_lock(&self->lock);
  GPtrArray* lines = g_ptr_array_copy(self->lines, copy_line, NULL);
  g_mutex_unlock(&self->lock);
  return lines;
}

void conversation_close(Conversation* self) {
  self->listener = (Listener){0};
  conversation_stop(self);
  g_async_queue_push(self->questions, CLOSE);
  release(self);
}

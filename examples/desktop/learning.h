/* What a model learns from conversations: an adapter of it, trained while they go on. */
#ifndef LEARNING_H
#define LEARNING_H

#include <cow_mlx.h>
#include <gio/gio.h>

typedef struct Learning Learning;

typedef void (*LearningProgress)(size_t step, size_t steps, double remaining, gpointer data);

/* It lives as long as somebody holds it. */
Learning* learning_new(cow_mlx_model model);
Learning* learning_acquire(Learning* self);
void learning_release(Learning* self);

/* Learn lines (strings, each a JSON object), and again all that was learnt before; one lesson at a
 * time. Both callbacks run in the main loop, progress no more once learnt has run. The application
 * lives on until then, and cancelling makes that soon. */
void learning_start(Learning* self, GPtrArray* lines, int epochs, GCancellable* cancellable,
                    LearningProgress progress, GAsyncReadyCallback learnt, gpointer data);

/* How many lines the model has learnt by now, or 0 and why it has not learnt these. */
size_t learning_finish(GAsyncResult* result, GError** error);

/* Let a context use what is learnt now; waits for the library. used, 0 at first, is the context's
 * own: it tells what it uses already. */
cow_mlx_status learning_use(Learning* self, cow_mlx_context context, cow_mlx_adapter* used);

#endif

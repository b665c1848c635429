/* An adapter of a model, trained on conversations while they continue. */
#ifndef LEARNING_H
#define LEARNING_H

#include <cow_mlx.h>
#include <gio/gio.h>

typedef struct Learning Learning;

typedef void (*LearningProgress)(size_t step, size_t steps, double remaining, gpointer data);

/* Reference-counted. */
Learning* learning_new(cow_mlx_model model);
Learning* learning_acquire(Learning* self);
void learning_release(Learning* self);

/* Train on lines (strings, each a JSON object) and on all earlier lines; one lesson at a time. Both
 * callbacks run in the main loop, progress never after trained. The application lives until then; a
 * cancel ends the lesson soon. */
void learning_start(Learning* self, GPtrArray* lines, int epochs, GCancellable* cancellable,
                    LearningProgress progress, GAsyncReadyCallback trained, gpointer data);

/* The number of trained lines, or 0 and the error. */
size_t learning_finish(GAsyncResult* result, GError** error);

/* Give a context the current adapter; waits for the library. used is the context's present adapter,
 * 0 at first. */
cow_mlx_status learning_use(Learning* self, cow_mlx_context context, cow_mlx_adapter* used);

#endif

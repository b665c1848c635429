/* Start the library and load a model without blocking the main loop. */
#ifndef LOADING_H
#define LOADING_H

#include <cow_mlx.h>
#include <gio/gio.h>

typedef void (*LoadingProgress)(double fraction, const char* stage, gpointer data);

/* Both callbacks run in the main loop, progress never after loaded. The application lives until
 * then; a cancel ends the load soon. */
void loading_start(const char* folder, GCancellable* cancellable, LoadingProgress progress,
                   GAsyncReadyCallback loaded, gpointer data);

/* The model, or 0 and the error. */
cow_mlx_model loading_finish(GAsyncResult* result, GError** error);

#endif

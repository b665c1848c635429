/* Start the library and load a model without holding up the main loop. */
#ifndef LOADING_H
#define LOADING_H

#include <cow_mlx.h>
#include <gio/gio.h>

typedef void (*LoadingProgress)(double fraction, const char* stage, gpointer data);

/* Both callbacks run in the main loop, progress no more once loaded has run. The application
 * lives on until then, and cancelling makes that soon. */
void loading_start(const char* folder, GCancellable* cancellable, LoadingProgress progress,
                   GAsyncReadyCallback loaded, gpointer data);

/* The model, or 0 and why there is none. */
cow_mlx_model loading_finish(GAsyncResult* result, GError** error);

#endif

/* LoRA and DoRA adapters.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_ADAPTER_H
#define COW_MLX_ADAPTER_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- Adapters */

/**
 * Load a LoRA or DoRA adapter for a model: adapter_config.json and adapters.safetensors, as
 * mlx-lm writes them.
 *
 * The adapter shares the model's weights: contexts of one model can use different adapters, or
 * none, at once.
 *
 * @param scale  strength: 1 as it was trained, 0 without effect; from -1000 to 1000
 * @param out    receives the handle
 * @retval COW_MLX_ENOENT        the folder, or one of its files, is missing
 * @retval COW_MLX_EFORMAT       malformed, without some parameters of its layers, or an adapter of
 *                               another model
 * @retval COW_MLX_EUNSUPPORTED  scale is not 1 for a kind of adapter that cannot be scaled (DoRA,
 *                               full); or the model was loaded with an adapter_path
 */
COW_MLX_API cow_mlx_status cow_mlx_adapter_load(cow_mlx_model model, const char* path, float scale,
                                                cow_mlx_adapter* out);

/** Free the handle. The adapter lives until no context uses it. */
COW_MLX_API cow_mlx_status cow_mlx_adapter_free(cow_mlx_adapter adapter);

/**
 * Set the adapter that a context uses from now on, or remove it.
 *
 * A change clears the context's tokens, since other weights have processed them.
 *
 * @param adapter  an adapter of the context's model; 0: none
 * @retval COW_MLX_EINVAL  the adapter belongs to another model
 * @retval COW_MLX_ESTATE  another call is running on the context
 */
COW_MLX_API cow_mlx_status cow_mlx_context_set_adapter(cow_mlx_context context,
                                                       cow_mlx_adapter adapter);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_ADAPTER_H */

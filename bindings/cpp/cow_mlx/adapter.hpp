/* Adapters of models. See cow_mlx.hpp. */
#ifndef COW_MLX_ADAPTER_HPP
#define COW_MLX_ADAPTER_HPP

#include <string>

#include "model.hpp"

namespace cowmlx {

/** A LoRA or DoRA adapter of one model. */
class Adapter {
 public:
  Adapter(const Model& model, const std::string& path, float scale = 1)
      : handle_(load(model, path, scale)) {}

  cow_mlx_adapter handle() const noexcept { return handle_.get(); }

 private:
  friend class Training;
  explicit Adapter(cow_mlx_adapter adapter) : handle_(adapter) {}

  static cow_mlx_adapter load(const Model& model, const std::string& path, float scale) {
    cow_mlx_adapter adapter = 0;
    detail::check(cow_mlx_adapter_load(model.handle(), detail::c_string(path, "adapter_load: path"),
                                       scale, &adapter));
    return adapter;
  }

  detail::Handle<cow_mlx_adapter_free> handle_;
};

}  // namespace cowmlx

#endif /* COW_MLX_ADAPTER_HPP */

/* The runtime: its start and its end. See cow_mlx.hpp. */
#ifndef COW_MLX_RUNTIME_HPP
#define COW_MLX_RUNTIME_HPP

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base.hpp"

namespace cowmlx {

/** Receives a message of the log. What it throws is dropped. */
using LogFn = std::function<void(std::int32_t level, std::string_view message)>;

namespace detail {

/* Log functions live as long as the process: the library may use one until the last stop, which
 * need not be that of the Runtime it came with. */
inline LogFn* keep_log(const LogFn& log) {
  static auto* mutex = new std::mutex;
  static auto* kept = new std::deque<LogFn>;
  std::lock_guard<std::mutex> lock(*mutex);
  kept->push_back(log);
  return &kept->back();
}

inline void log(std::int32_t level, const char* message, void* user_data) {
  try {
    (*static_cast<LogFn*>(user_data))(level, message);
  } catch (...) { /* there is no call to end */
  }
}

}  // namespace detail

/** It begins with the defaults. What is not named here has its meaning in cow_mlx.h. */
struct RuntimeParams : private cow_mlx_runtime_params {
  using cow_mlx_runtime_params::cache_limit;
  using cow_mlx_runtime_params::log_level;
  using cow_mlx_runtime_params::memory_limit;
  using cow_mlx_runtime_params::threads;

  std::string python_home; /**< empty: the library's own search */
  std::string device;      /**< "gpu", "cpu", or empty for the best there is */
  LogFn log;               /**< kept until the process ends */

  RuntimeParams() { cow_mlx_runtime_params_init(this, sizeof(cow_mlx_runtime_params)); }

 private:
  friend class Runtime;

  cow_mlx_runtime_params lowered() const {
    cow_mlx_runtime_params params = *this;
    params.python_home = detail::optional(python_home, "runtime_start: python_home");
    params.device = detail::optional(device, "runtime_start: device");
    if (log) {
      params.log = detail::log;
      params.log_user_data = detail::keep_log(log);
    }
    return params;
  }
};

/** One start of the runtime; its end is one stop. Declare it before what uses it. */
class Runtime {
 public:
  /** Start it with the defaults, or as it runs already. */
  Runtime() { detail::check(cow_mlx_runtime_start(nullptr)); }

  explicit Runtime(const RuntimeParams& params) {
    cow_mlx_runtime_params lowered = params.lowered();
    detail::check(cow_mlx_runtime_start(&lowered));
  }

  Runtime(Runtime&& other) noexcept : started_(std::exchange(other.started_, false)) {}
  Runtime& operator=(Runtime&& other) noexcept {
    if (this != &other) {
      if (started_) cow_mlx_runtime_stop();
      started_ = std::exchange(other.started_, false);
    }
    return *this;
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    if (started_) cow_mlx_runtime_stop();
  }

  /** Undo the start now. A second time is COW_MLX_ESTATE. */
  void stop() {
    if (!started_)
      throw Error(COW_MLX_ESTATE, "runtime_stop: this Runtime was stopped before", "not_running");
    started_ = false;
    detail::check(cow_mlx_runtime_stop());
  }

  /** Tell about the runtime, as a JSON object. */
  static std::string info() { return detail::fill<std::string>(4096, cow_mlx_runtime_info); }

  /** Give unused buffers and kept prompts back to the system. */
  static void trim_memory() { detail::check(cow_mlx_memory_trim()); }

 private:
  bool started_ = true;
};

}  // namespace cowmlx

#endif /* COW_MLX_RUNTIME_HPP */

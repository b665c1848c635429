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
#include "params.hpp"

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

/** The options of the runtime, which begin with the defaults. */
struct RuntimeParams : detail::RuntimeFields {
  LogFn log; /**< kept until the process ends */

 private:
  friend class Runtime;
};

/** One start of the runtime; its end is one stop. Declare it before what uses it. */
class Runtime {
 public:
  /** Start it with the defaults, or as it runs already. */
  Runtime() { detail::check(cow_mlx_runtime_start(nullptr)); }

  explicit Runtime(const RuntimeParams& params) {
    detail::Texts texts;
    cow_mlx_runtime_params lowered = params.lowered("runtime_start", texts);
    if (params.log) {
      lowered.log = detail::log;
      lowered.log_user_data = detail::keep_log(params.log);
    }
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

  /** Describe the runtime as a JSON object. */
  static std::string info() { return detail::fill<std::string>(4096, cow_mlx_runtime_info); }

  /** Give unused buffers and kept prompts back to the system. */
  static void trim_memory() { detail::check(cow_mlx_memory_trim()); }

 private:
  bool started_ = true;
};

}  // namespace cowmlx

#endif /* COW_MLX_RUNTIME_HPP */

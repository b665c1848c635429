/* What is called while a call lasts. See cow_mlx.hpp. */
#ifndef COW_MLX_CALLBACKS_HPP
#define COW_MLX_CALLBACKS_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>

#include "base.hpp"

namespace cowmlx {

/** Receives the progress of a load. @return false to cancel */
using ProgressFn = std::function<bool(float fraction, std::string_view stage)>;

/** Receives the progress of a prompt. @return false to cancel */
using PromptFn = std::function<bool(std::size_t processed, std::size_t total)>;

/** Changes the logits of every token of the vocabulary in place, behind all tokens of the context.
 *  @return false to cancel */
using LogitsFn = std::function<bool(const std::int32_t* tokens, std::size_t count, float* logits,
                                    std::size_t vocabulary)>;

/** Receives text as it is generated: whole UTF-8 characters. @return false to cancel */
using TextFn = std::function<bool(std::string_view text)>;

/** What a chat gives. The views are valid during the callback, or until the next event is taken. */
struct Event {
  std::int32_t kind;     /**< one of COW_MLX_EVENT_ */
  std::string_view text; /**< the part; of a tool call its arguments, a JSON object */
  std::string_view name; /**< of the tool */
  std::int32_t finish;   /**< of the end: one of COW_MLX_FINISH_ */
};

/** Receives an event of a chat. @return false to cancel */
using EventFn = std::function<bool(const Event& event)>;

namespace detail {

/* The callbacks of one call: user_data of them all. It lies on the stack of a call that waits for
 * the end of a generation or a load. */
struct Callbacks {
  const ProgressFn* on_progress = nullptr;
  const PromptFn* on_prompt = nullptr;
  const LogitsFn* on_logits = nullptr;
  const TextFn* on_text = nullptr;
  const EventFn* on_event = nullptr;
  std::exception_ptr thrown;

  /* No exception may pass through C: it is kept, and cancels the call. */
  template <typename Call>
  static bool guarded(void* user_data, Call call) noexcept {
    auto* self = static_cast<Callbacks*>(user_data);
    try {
      return call(*self);
    } catch (...) {
      self->thrown = std::current_exception();
      return false;
    }
  }

  void check(cow_mlx_status status) {
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
    detail::check(status);
  }

  static bool progress(float fraction, const char* stage, void* user_data) {
    return guarded(user_data,
                   [&](Callbacks& self) { return (*self.on_progress)(fraction, stage); });
  }

  static bool prompt(std::size_t processed, std::size_t total, void* user_data) {
    return guarded(user_data, [&](Callbacks& self) { return (*self.on_prompt)(processed, total); });
  }

  static bool logits(const std::int32_t* tokens, std::size_t count, float* logits,
                     std::size_t vocabulary, void* user_data) {
    return guarded(user_data, [&](Callbacks& self) {
      return (*self.on_logits)(tokens, count, logits, vocabulary);
    });
  }

  static bool text(const char* data, std::size_t length, void* user_data) {
    return guarded(user_data, [&](Callbacks& self) {
      return (*self.on_text)(std::string_view(data, length));
    });
  }

  static bool event(const cow_mlx_event* event, void* user_data) {
    return guarded(user_data, [&](Callbacks& self) {
      return (*self.on_event)(
          Event{event->kind, {event->text, event->length}, event->name, event->finish});
    });
  }
};

}  // namespace detail

}  // namespace cowmlx

#endif /* COW_MLX_CALLBACKS_HPP */

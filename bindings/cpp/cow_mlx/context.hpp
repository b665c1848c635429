/* Contexts: sequences of tokens with their caches. See cow_mlx.hpp. */
#ifndef COW_MLX_CONTEXT_HPP
#define COW_MLX_CONTEXT_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array.hpp"
#include "model.hpp"
#include "generation.hpp"
#include "methods.hpp"

namespace cowmlx {

struct ContextParams : cow_mlx_context_params {
  ContextParams() { cow_mlx_context_params_init(this, sizeof(cow_mlx_context_params)); }
};

/** What a context held at one moment; freed with its context at the latest. */
class Checkpoint {
 public:
  cow_mlx_checkpoint handle() const noexcept { return handle_.get(); }

 private:
  friend class Context;
  explicit Checkpoint(cow_mlx_checkpoint checkpoint) : handle_(checkpoint) {}

  detail::Handle<cow_mlx_checkpoint_free> handle_;
};

/** A context: one sequence of tokens and its cache. */
class Context : public detail::ContextMethods<Context> {
 public:
  explicit Context(const Model& model, const ContextParams& params = {})
      : handle_(create(model, params)) {}

  cow_mlx_context handle() const noexcept { return handle_.get(); }

  /** Open a context that holds what this one holds. */
  Context fork() const {
    cow_mlx_context copy = 0;
    detail::check(cow_mlx_context_fork(handle(), &copy));
    return Context(copy);
  }

  /** Keep what the context holds, to come back to it. */
  Checkpoint checkpoint() const {
    cow_mlx_checkpoint checkpoint = 0;
    detail::check(cow_mlx_context_checkpoint(handle(), &checkpoint));
    return Checkpoint(checkpoint);
  }

  /** Restore the state of a checkpoint. */
  void rewind(const Checkpoint& checkpoint) {
    detail::check(cow_mlx_context_rewind(handle(), checkpoint.handle()));
  }

  /** Save what the context holds to an array of bytes. */
  Array save_array() const {
    cow_mlx_array array = 0;
    detail::check(cow_mlx_context_save_array(handle(), &array));
    return Array(array);
  }

  /** Load what a context has saved to an array of bytes. */
  void load_array(const Array& array) {
    detail::check(cow_mlx_context_load_array(handle(), array.handle()));
  }

  /** Use an adapter from now on; a change forgets the tokens. */
  void set_adapter(const Adapter& adapter) {
    const cow_mlx_adapter open = detail::open(&adapter, "context_set_adapter: adapter");
    detail::check(cow_mlx_context_set_adapter(handle(), open));
  }

  /** Use no adapter from now on; a change forgets the tokens. */
  void clear_adapter() { detail::check(cow_mlx_context_set_adapter(handle(), 0)); }

  /** Process a prompt, and be ready to generate. */
  void begin(const Tokens& tokens, const GenerationParams& params = {}) {
    auto later = std::make_shared<Later>(params);
    GenerationParams::Lowered lowered(later->params, later->callbacks, "context_begin");
    later->callbacks.check(
        cow_mlx_context_begin(handle(), tokens.data(), tokens.size(), lowered.get()));
    later_ = std::move(later);
  }

  /** The same with rows of embeddings, floats of [rows, width], in the places of tokens of -1. */
  void begin_embeddings(const Tokens& tokens, const Array& embeddings,
                        const GenerationParams& params = {}) {
    auto later = std::make_shared<Later>(params);
    GenerationParams::Lowered lowered(later->params, later->callbacks, "context_begin_embeddings");
    later->callbacks.check(cow_mlx_context_begin_embeddings(handle(), tokens.data(), tokens.size(),
                                                            embeddings.handle(), lowered.get()));
    later_ = std::move(later);
  }

  /** As begin() without waiting; next() takes the pieces, and throws what went wrong. The params'
   *  prompt_progress is called by poll(). */
  void begin_async(const Tokens& tokens, const GenerationParams& params = {}) {
    auto later = std::make_shared<Later>(params);
    GenerationParams::Lowered lowered(later->params, later->callbacks, "context_begin_async");
    detail::check(
        cow_mlx_context_begin_async(handle(), tokens.data(), tokens.size(), lowered.get()));
    later_ = std::move(later);
  }

  /** Generate one token. @return false at the end: piece has no text then, but the reason */
  bool next(Piece& piece) {
    return rethrowing([&] { return detail::next(handle(), piece); });
  }

  /** Wait until next(), or next_event(), would not block.
   *  @return false if it still would after the time */
  bool poll(std::uint32_t timeout_ms = UINT32_MAX) {
    return rethrowing([&] {
      cow_mlx_status status = cow_mlx_context_poll(handle(), timeout_ms);
      if (status != COW_MLX_ETIMEDOUT) detail::check(status);
      return status == COW_MLX_OK;
    });
  }

  /** Process a prompt; the range generates. */
  [[nodiscard]] Pieces generate(const Tokens& tokens, const GenerationParams& params = {}) {
    begin(tokens, params);
    return Pieces(handle(), {later_, &later_->callbacks});
  }

  /** Process a prompt and generate to the end. @param on_text  receives the text; may be empty */
  Stats generate(const Tokens& tokens, const TextFn& on_text, const GenerationParams& params = {}) {
    detail::Callbacks callbacks;
    callbacks.on_text = &on_text;
    GenerationParams::Lowered lowered(params, callbacks, "context_generate");
    Stats stats = sized_stats();
    callbacks.check(cow_mlx_context_generate(handle(), tokens.data(), tokens.size(), lowered.get(),
                                             on_text ? detail::Callbacks::text : nullptr,
                                             &callbacks, &stats));
    return stats;
  }

  /** Answer a conversation. @param options_json  an object, or empty */
  Stats chat(std::string_view messages_json, const EventFn& on_event,
             const GenerationParams& params = {}, const std::string& options_json = {}) {
    detail::Callbacks callbacks;
    callbacks.on_event = &on_event;
    GenerationParams::Lowered lowered(params, callbacks, "context_chat");
    Stats stats = sized_stats();
    callbacks.check(
        cow_mlx_context_chat(handle(), messages_json.data(), messages_json.size(), lowered.get(),
                             detail::optional(options_json, "context_chat: options_json"),
                             on_event ? detail::Callbacks::event : nullptr, &callbacks, &stats));
    return stats;
  }

  Stats chat(const std::vector<Message>& messages, const EventFn& on_event,
             const GenerationParams& params = {}, const std::string& options_json = {}) {
    return chat(std::string_view(to_json(messages)), on_event, params, options_json);
  }

  /** The same without waiting: next_event() takes the events, and throws what went wrong. */
  void chat_async(std::string_view messages_json, const GenerationParams& params = {},
                  const std::string& options_json = {}) {
    auto later = std::make_shared<Later>(params);
    GenerationParams::Lowered lowered(later->params, later->callbacks, "context_chat_async");
    detail::check(cow_mlx_context_chat_async(
        handle(), messages_json.data(), messages_json.size(), lowered.get(),
        detail::optional(options_json, "context_chat_async: options_json")));
    later_ = std::move(later);
  }

  void chat_async(const std::vector<Message>& messages, const GenerationParams& params = {},
                  const std::string& options_json = {}) {
    chat_async(std::string_view(to_json(messages)), params, options_json);
  }

  /** Take an event of chat_async(); its views are valid until this thread takes the next one.
   *  @return false with the last one, which is COW_MLX_EVENT_END */
  bool next_event(Event& event) {
    return rethrowing([&] {
      cow_mlx_event taken = {};
      taken.struct_size = sizeof taken;
      const cow_mlx_status status = cow_mlx_context_next_event(handle(), &taken);
      detail::check(status);
      event = {taken.kind, {taken.text, taken.length}, taken.name, taken.finish};
      return status == COW_MLX_OK;
    });
  }

  /** End what the context is doing. Never blocks; for any thread, at any time. */
  void cancel() const { detail::check_cancel(cow_mlx_context_cancel(handle()), "context"); }

  /** The most probable tokens where the last piece was chosen. */
  std::vector<Candidate> logprobs() const {
    std::size_t count = 0;
    detail::check(cow_mlx_context_logprobs(handle(), nullptr, nullptr, 0, &count));
    Tokens tokens(count);
    std::vector<float> values(count);
    detail::check(cow_mlx_context_logprobs(handle(), tokens.data(), values.data(), count, &count));
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < count; i++) candidates.push_back({tokens[i], values[i]});
    return candidates;
  }

  /** The log probability of each token given those before it, behind those that the context holds:
   *  a row of the token itself and of the `top` most probable ones. */
  std::vector<std::vector<Candidate>> prompt_logprobs(const Tokens& tokens, int top = 0) const {
    const auto scored = [&](std::int32_t* ids, float* values, std::size_t room, std::size_t* size) {
      detail::check(cow_mlx_context_prompt_logprobs(handle(), tokens.data(), tokens.size(), top,
                                                    ids, values, room, size));
    };
    std::size_t count = 0;
    scored(nullptr, nullptr, 0, &count);
    Tokens ids(count);
    std::vector<float> values(count);
    scored(ids.data(), values.data(), count, &count);
    std::vector<std::vector<Candidate>> rows(tokens.size());
    for (std::size_t i = 0; i < count; i++) {
      rows[i / (count / rows.size())].push_back({ids[i], values[i]});
    }
    return rows;
  }

  /** Sizes and times of the last generation, so far. */
  Stats stats() const {
    Stats stats = sized_stats();
    detail::check(cow_mlx_context_stats(handle(), &stats));
    return stats;
  }

 private:
  explicit Context(cow_mlx_context context) : handle_(context) {}

  static cow_mlx_context create(const Model& model, const ContextParams& params) {
    cow_mlx_context context = 0;
    detail::check(cow_mlx_context_create(model.handle(), &params, &context));
    return context;
  }

  /* Kept for a call that returned at once. */
  struct Later {
    explicit Later(const GenerationParams& given) : params(given) {}

    GenerationParams params;
    detail::Callbacks callbacks;
  };

  /* A callback has thrown: that says more than the call that it has cancelled. */
  template <typename Call>
  bool rethrowing(Call call) {
    const auto rethrow = [&] {
      if (later_) later_->callbacks.check(COW_MLX_OK);
    };
    try {
      const bool result = call();
      rethrow();
      return result;
    } catch (const Error&) {
      rethrow();
      throw;
    }
  }

  static Stats sized_stats() {
    Stats stats = {};
    stats.struct_size = sizeof stats;
    return stats;
  }

  std::shared_ptr<Later> later_;
  detail::Handle<cow_mlx_context_free> handle_;
};

}  // namespace cowmlx

#endif /* COW_MLX_CONTEXT_HPP */

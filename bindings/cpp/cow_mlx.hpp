/*
 * libcowmlx for C++17: cow_mlx.h with objects that free themselves, exceptions and ranges.
 * Copyright (c) 2026 the libcowmlx authors. MIT licence.
 *
 *     cowmlx::Runtime runtime;
 *     cowmlx::Model model("models/calf");
 *     cowmlx::Context context(model);
 *     auto tokens = model.chat_prompt({{"user", "What is 3 + 4?"}});
 *     for (const cowmlx::Piece& piece : context.generate(tokens)) std::cout << piece.text;
 *
 * cow_mlx.h is the manual: each function here calls the one of its name there, and means the same.
 * What differs:
 *
 *  1. A call that fails throws cowmlx::Error, which has the status and the message; a call that was
 *     cancelled throws cowmlx::Canceled, which is one too. That a range of pieces was cancelled is
 *     no error: the range ends, and its finish() tells.
 *  2. Runtime, Model, Context, Checkpoint, Adapter, Array and Program own a handle (Runtime: a
 * start) and free it. They can be moved, not copied. One that was moved from holds handle 0, which
 * every call refuses.
 *  3. Text is std::string or std::string_view and may hold NUL bytes. Paths, options, grammars and
 *     stop texts may not: one that does is COW_MLX_EINVAL.
 *  4. Callbacks are std::function, and run on the thread of the call. Returning false cancels it;
 *     an exception cancels it too, and comes out of the call, whatever else that would have
 *     thrown. The log function cancels nothing: what it throws is dropped.
 *
 * All objects may be used from any thread, as their handles may. Context::cancel() is the one call
 * to make while another thread is inside a call of the same context.
 */
#ifndef COW_MLX_HPP
#define COW_MLX_HPP

#if __cplusplus < 201703L
#error "cow_mlx.hpp needs C++17"
#endif

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cow_mlx.h"

namespace cowmlx {

/* ------------------------------------------------------------ Vocabulary */

/** Token ids. */
using Tokens = std::vector<std::int32_t>;

/** Sizes and times of one generation. */
using Stats = cow_mlx_stats;

/** Receives a message of the log. What it throws is dropped. */
using LogFn = std::function<void(std::int32_t level, std::string_view message)>;

/** Receives the progress of a load. @return false to cancel */
using ProgressFn = std::function<bool(float fraction, std::string_view stage)>;

/** Receives the progress of a prompt. @return false to cancel */
using PromptFn = std::function<bool(std::size_t processed, std::size_t total)>;

/** Receives text as it is generated: whole UTF-8 characters. @return false to cancel */
using TextFn = std::function<bool(std::string_view text)>;

/** What a chat gives. The views are valid during the callback. */
struct Event {
  std::int32_t kind;     /**< one of COW_MLX_EVENT_ */
  std::string_view text; /**< the part; of a tool call its arguments, a JSON object */
  std::string_view name; /**< of the tool */
  std::int32_t finish;   /**< of the end: one of COW_MLX_FINISH_ */
};

/** Receives an event of a chat. @return false to cancel */
using EventFn = std::function<bool(const Event& event)>;

/** One generated token. */
struct Piece {
  std::string text;        /**< whole UTF-8 characters; often none */
  std::int32_t token = -1; /**< its id */
  float logprob = std::numeric_limits<float>::quiet_NaN(); /**< NaN unless asked for */
  std::int32_t finish = COW_MLX_FINISH_NONE;               /**< one of COW_MLX_FINISH_ */
};

/** A token and its log probability. */
struct Candidate {
  std::int32_t token;
  float logprob;
};

/** A token and what is added to its logit. */
struct Bias {
  std::int32_t token;
  float value;
};

/** A message of a conversation. Tool calls and the like need JSON of one's own. */
struct Message {
  std::string role; /**< "system", "user" or "assistant" */
  std::string content;
};

/* ---------------------------------------------------- Versions and errors */

/** The library's version, such as "1.0.0"; COW_MLX_VERSION is that of the header. */
inline const char* version() noexcept { return cow_mlx_version(); }

/** The library's COW_MLX_ABI_VERSION. */
inline std::uint32_t abi_version() noexcept { return cow_mlx_abi_version(); }

/** The name of a status, such as "EINVAL". */
inline const char* status_name(cow_mlx_status status) noexcept {
  return cow_mlx_status_name(status);
}

/** A call that failed: what() is cow_mlx_error_message(). */
class Error : public std::runtime_error {
 public:
  Error(cow_mlx_status status, const std::string& message, const std::string& reason = "",
        const std::string& details = "{}")
      : std::runtime_error(message), status_(status), reason_(reason), details_(details) {}

  /** The status, such as COW_MLX_EINVAL. */
  cow_mlx_status status() const noexcept { return status_; }

  /** Its name, such as "EINVAL". */
  const char* name() const noexcept { return status_name(status_); }

  /** Why: a name of COW_MLX_REASONS, such as "out_of_range". */
  const char* reason() const noexcept { return reason_.what(); }

  /** What is known of it: the "details" of cow_mlx_error_details(), a JSON object. */
  const char* details() const noexcept { return details_.what(); }

 private:
  cow_mlx_status status_;
  /* Texts whose copy does not throw, as that of an exception must not. */
  std::runtime_error reason_, details_;
};

/** A call that was cancelled: by Context::cancel(), a callback, or the end of the runtime. */
class Canceled : public Error {
 public:
  using Error::Error;
};

namespace detail {

/* The thread's failure, as cow_mlx_error_details() tells it. */
inline std::string failure() {
  std::size_t length = 0;
  cow_mlx_error_details(nullptr, 0, &length);
  std::string text(length, '\0');
  cow_mlx_error_details(&text[0], length, &length);
  return text;
}

/* The text between a mark and an end that is looked for from the front or from the back. */
inline std::string cut(const std::string& text, const std::string& mark, std::size_t end) {
  std::size_t begin = text.find(mark);
  if (begin == std::string::npos || end < begin + mark.size()) return "";
  return text.substr(begin + mark.size(), end - begin - mark.size());
}

inline void check(cow_mlx_status status) {
  if (status >= 0) return;
  const std::string message = cow_mlx_error_message(), all = failure();
  const std::string reason = cut(all, "\"reason\": \"", all.find("\", \"details\""));
  const std::string details = cut(all, "\"details\": ", all.size() - 1);
  if (status == COW_MLX_ECANCELED) throw Canceled(status, message, reason, details);
  throw Error(status, message, reason, details);
}

/* A text for a parameter that ends at its first NUL byte. */
inline const char* c_string(const std::string& text, const char* name) {
  if (text.find('\0') != std::string::npos) {
    throw Error(COW_MLX_EINVAL, std::string(name) + " has a NUL byte in it", "out_of_range");
  }
  return text.c_str();
}

/* The same, where an empty text stands for none. */
inline const char* optional(const std::string& text, const char* name) {
  return text.empty() ? nullptr : c_string(text, name);
}

/* Make a call that fills (buffer, capacity, *length), again if the guess was too small. */
template <typename Buffer, typename Call>
Buffer fill(std::size_t guess, Call call) {
  Buffer buffer(std::max<std::size_t>(guess, 1), typename Buffer::value_type());
  for (;;) {
    std::size_t length = 0;
    cow_mlx_status status = call(buffer.data(), buffer.size(), &length);
    if (status != COW_MLX_EBUFFER) check(status);
    buffer.resize(length);
    if (status != COW_MLX_EBUFFER) return buffer;
  }
}

/* The callbacks of one call, on whose stack this lies: user_data of them all. */
struct Callbacks {
  const ProgressFn* on_progress = nullptr;
  const PromptFn* on_prompt = nullptr;
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

  void check(cow_mlx_status status) const {
    if (thrown) std::rethrow_exception(thrown);
    detail::check(status);
  }

  static bool progress(float fraction, const char* stage, void* user_data) {
    return guarded(user_data,
                   [&](Callbacks& self) { return (*self.on_progress)(fraction, stage); });
  }

  static bool prompt(std::size_t processed, std::size_t total, void* user_data) {
    return guarded(user_data, [&](Callbacks& self) { return (*self.on_prompt)(processed, total); });
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

/* A handle that is freed with its owner. */
template <auto Free>
class Handle {
  template <typename T>
  static T argument(cow_mlx_status (*)(T));
  using Value = decltype(argument(Free));

 public:
  explicit Handle(Value value = 0) noexcept : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      release();
      value_ = std::exchange(other.value_, 0);
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { release(); }

  Value get() const noexcept { return value_; }

 private:
  /* It fails where the runtime was stopped before, and nothing is left to free. */
  void release() noexcept {
    if (value_ != 0) Free(value_);
  }

  Value value_;
};

inline void append_json_string(std::string& json, std::string_view text) {
  static const char digits[] = "0123456789abcdef";
  json += '"';
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || byte < 0x20) {
      json.append("\\u00").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
    } else {
      json += c;
    }
  }
  json += '"';
}

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

/** A conversation as JSON: what chat_prompt() and chat() take. */
inline std::string to_json(const std::vector<Message>& messages) {
  std::string json = "[";
  for (const Message& message : messages) {
    json += json.size() > 1 ? ", {\"role\": " : "{\"role\": ";
    detail::append_json_string(json, message.role);
    json += ", \"content\": ";
    detail::append_json_string(json, message.content);
    json += "}";
  }
  return json += "]";
}

/* ------------------------------------------------------------- Parameters */
/* They begin with the defaults. What is not named here has its meaning in cow_mlx.h. */

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

struct ModelParams : private cow_mlx_model_params {
  using cow_mlx_model_params::activations;
  using cow_mlx_model_params::lazy;
  using cow_mlx_model_params::prefix_cache_bytes;
  using cow_mlx_model_params::trust_remote_code;

  std::string adapter_path; /**< folder of a LoRA adapter to apply, or empty */
  ProgressFn progress;

  ModelParams() { cow_mlx_model_params_init(this, sizeof(cow_mlx_model_params)); }

 private:
  friend class Model;

  cow_mlx_model_params lowered(detail::Callbacks& callbacks) const {
    cow_mlx_model_params params = *this;
    params.adapter_path = detail::optional(adapter_path, "model_load: adapter_path");
    if (progress) {
      callbacks.on_progress = &progress;
      params.progress = detail::Callbacks::progress;
      params.user_data = &callbacks;
    }
    return params;
  }
};

struct ContextParams : cow_mlx_context_params {
  ContextParams() { cow_mlx_context_params_init(this, sizeof(cow_mlx_context_params)); }
};

struct EmbedParams : cow_mlx_embed_params {
  EmbedParams() { cow_mlx_embed_params_init(this, sizeof(cow_mlx_embed_params)); }
};

struct GenerationParams : private cow_mlx_generation_params {
  using cow_mlx_generation_params::draft; /**< Model::handle() of it, or 0 */
  using cow_mlx_generation_params::draft_tokens;
  using cow_mlx_generation_params::frequency_penalty;
  using cow_mlx_generation_params::frequency_window;
  using cow_mlx_generation_params::grammar_kind;
  using cow_mlx_generation_params::logprobs;
  using cow_mlx_generation_params::max_tokens;
  using cow_mlx_generation_params::min_p;
  using cow_mlx_generation_params::presence_penalty;
  using cow_mlx_generation_params::presence_window;
  using cow_mlx_generation_params::repetition_penalty;
  using cow_mlx_generation_params::repetition_window;
  using cow_mlx_generation_params::seed;
  using cow_mlx_generation_params::temperature;
  using cow_mlx_generation_params::timeout;
  using cow_mlx_generation_params::top_k;
  using cow_mlx_generation_params::top_p;
  using cow_mlx_generation_params::typical_p;
  using cow_mlx_generation_params::xtc_probability;
  using cow_mlx_generation_params::xtc_threshold;

  std::vector<Bias> bias;
  std::vector<std::string> stop; /**< texts that end the generation */
  std::string grammar;           /**< of grammar_kind, or empty */
  PromptFn prompt_progress;

  GenerationParams() { cow_mlx_generation_params_init(this, sizeof(cow_mlx_generation_params)); }

 private:
  friend class Context;

  /* The struct of C, and what it points at. */
  class Lowered {
   public:
    Lowered(const GenerationParams& from, detail::Callbacks& callbacks) : params_(from) {
      for (const Bias& each : from.bias) {
        bias_tokens_.push_back(each.token);
        bias_values_.push_back(each.value);
      }
      for (const std::string& text : from.stop) {
        stop_.push_back(detail::c_string(text, "generation_params.stop"));
      }
      params_.bias_tokens = bias_tokens_.data();
      params_.bias_values = bias_values_.data();
      params_.bias_count = bias_tokens_.size();
      params_.stop = stop_.data();
      params_.stop_count = stop_.size();
      params_.grammar = detail::optional(from.grammar, "generation_params.grammar");
      if (from.prompt_progress) {
        callbacks.on_prompt = &from.prompt_progress;
        params_.prompt_progress = detail::Callbacks::prompt;
        params_.user_data = &callbacks;
      }
    }
    Lowered(const Lowered&) = delete;
    Lowered& operator=(const Lowered&) = delete;

    const cow_mlx_generation_params* get() const { return &params_; }

   private:
    cow_mlx_generation_params params_;
    Tokens bias_tokens_;
    std::vector<float> bias_values_;
    std::vector<const char*> stop_;
  };
};

/* ---------------------------------------------------------------- Runtime */

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

/* ----------------------------------------------------------------- Models */

/** A model: weights, tokenizer and chat template of one folder. */
class Model {
 public:
  explicit Model(const std::string& path, const ModelParams& params = {})
      : handle_(load(path, params)) {}

  cow_mlx_model handle() const noexcept { return handle_.get(); }

  /** Tell about the model, as a JSON object. */
  std::string info() const {
    return detail::fill<std::string>(4096,
                                     [&](char* buffer, std::size_t size, std::size_t* length) {
                                       return cow_mlx_model_info(handle(), buffer, size, length);
                                     });
  }

  /** @param flags  COW_MLX_ADD_SPECIAL, COW_MLX_PARSE_SPECIAL */
  Tokens tokenize(std::string_view text, std::uint32_t flags = 0) const {
    return detail::fill<Tokens>(text.size() / 2 + 8, [&](std::int32_t* tokens, std::size_t size,
                                                         std::size_t* count) {
      return cow_mlx_model_tokenize(handle(), text.data(), text.size(), flags, tokens, size, count);
    });
  }

  /** @param flags  COW_MLX_SKIP_SPECIAL */
  std::string detokenize(const Tokens& tokens, std::uint32_t flags = 0) const {
    return detail::fill<std::string>(
        tokens.size() * 8, [&](char* buffer, std::size_t size, std::size_t* length) {
          return cow_mlx_model_detokenize(handle(), tokens.data(), tokens.size(), flags, buffer,
                                          size, length);
        });
  }

  /** Whether a token ends a generation. */
  bool is_end(std::int32_t token) const {
    bool end = false;
    detail::check(cow_mlx_model_is_end(handle(), token, &end));
    return end;
  }

  /** Render a conversation with the model's chat template, and tokenize it.
   *  @param options_json  an object, or empty */
  Tokens chat_prompt(std::string_view messages_json, const std::string& options_json = {}) const {
    const char* options = detail::optional(options_json, "model_chat_prompt: options_json");
    std::string_view json = messages_json.data() ? messages_json : std::string_view("");
    return detail::fill<Tokens>(messages_json.size() + 256,
                                [&](std::int32_t* tokens, std::size_t size, std::size_t* count) {
                                  return cow_mlx_model_chat_prompt(handle(), json.data(),
                                                                   json.size(), options, tokens,
                                                                   size, count);
                                });
  }

  Tokens chat_prompt(const std::vector<Message>& messages,
                     const std::string& options_json = {}) const {
    return chat_prompt(std::string_view(to_json(messages)), options_json);
  }

  /** Turn texts into vectors, one for each. */
  std::vector<std::vector<float>> embed(const std::vector<std::string>& texts,
                                        const EmbedParams& params = {}) const {
    std::vector<cow_mlx_text> views;
    for (const std::string& text : texts) views.push_back({text.data(), text.size()});
    std::size_t dims = 0;
    detail::check(
        cow_mlx_model_embed(handle(), views.data(), views.size(), &params, nullptr, 0, &dims));
    std::vector<float> values(texts.size() * dims);
    detail::check(cow_mlx_model_embed(handle(), views.data(), views.size(), &params, values.data(),
                                      values.size(), &dims));
    std::vector<std::vector<float>> rows;
    for (std::size_t row = 0; row < texts.size(); row++) {
      const float* first = values.data() + row * dims;
      rows.emplace_back(first, first + dims);
    }
    return rows;
  }

 private:
  static cow_mlx_model load(const std::string& path, const ModelParams& params) {
    detail::Callbacks callbacks;
    cow_mlx_model_params lowered = params.lowered(callbacks);
    cow_mlx_model model = 0;
    callbacks.check(
        cow_mlx_model_load(detail::c_string(path, "model_load: path"), &lowered, &model));
    return model;
  }

  detail::Handle<cow_mlx_model_free> handle_;
};

/** A LoRA or DoRA adapter of one model. */
class Adapter {
 public:
  Adapter(const Model& model, const std::string& path, float scale = 1)
      : handle_(load(model, path, scale)) {}

  cow_mlx_adapter handle() const noexcept { return handle_.get(); }

 private:
  static cow_mlx_adapter load(const Model& model, const std::string& path, float scale) {
    cow_mlx_adapter adapter = 0;
    detail::check(cow_mlx_adapter_load(model.handle(), detail::c_string(path, "adapter_load: path"),
                                       scale, &adapter));
    return adapter;
  }

  detail::Handle<cow_mlx_adapter_free> handle_;
};

/* --------------------------------------------------------------- Contexts */

/** What a context held at one moment; freed with its context at the latest. */
class Checkpoint {
 public:
  cow_mlx_checkpoint handle() const noexcept { return handle_.get(); }

 private:
  friend class Context;
  explicit Checkpoint(cow_mlx_checkpoint checkpoint) : handle_(checkpoint) {}

  detail::Handle<cow_mlx_checkpoint_free> handle_;
};

namespace detail {

/* The next piece; false at the end, where the piece has no text and tells why. */
inline bool next(cow_mlx_context context, Piece& out) {
  cow_mlx_piece piece = {};
  piece.struct_size = sizeof piece;
  cow_mlx_status status = COW_MLX_OK;
  out.text = fill<std::string>(256, [&](char* buffer, std::size_t size, std::size_t* length) {
    return status = cow_mlx_context_next(context, buffer, size, length, &piece);
  });
  out.token = piece.token;
  out.logprob = piece.logprob;
  out.finish = piece.finish;
  return status == COW_MLX_OK;
}

}  // namespace detail

/**
 * The pieces of a generation: an input range. Each step waits for the next piece.
 *
 * A loop may be left early; the context then holds what it has processed, and the next begin ends
 * the generation.
 */
class Pieces {
 public:
  struct End {};

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Piece;
    using difference_type = std::ptrdiff_t;
    using pointer = const Piece*;
    using reference = const Piece&;

    reference operator*() const { return pieces_->piece_; }
    pointer operator->() const { return &pieces_->piece_; }
    Iterator& operator++() {
      pieces_->advance();
      return *this;
    }
    void operator++(int) { pieces_->advance(); }

    friend bool operator==(const Iterator& self, End) { return self.ended(); }
    friend bool operator!=(const Iterator& self, End) { return !self.ended(); }
    friend bool operator==(End, const Iterator& self) { return self.ended(); }
    friend bool operator!=(End, const Iterator& self) { return !self.ended(); }

   private:
    friend class Pieces;
    explicit Iterator(Pieces* pieces) : pieces_(pieces) {}
    bool ended() const { return pieces_->ended_; }

    Pieces* pieces_;
  };

  /** Wait for the first piece, or go on where an earlier loop was left. */
  Iterator begin() {
    advance();
    return Iterator(this);
  }
  End end() const { return {}; }

  /** Why the generation ended, one of COW_MLX_FINISH_; COW_MLX_FINISH_NONE before its end. */
  std::int32_t finish() const noexcept { return piece_.finish; }

 private:
  friend class Context;
  explicit Pieces(cow_mlx_context context) : context_(context) {}

  void advance() {
    if (!ended_) ended_ = !detail::next(context_, piece_);
  }

  cow_mlx_context context_;
  Piece piece_;
  bool ended_ = false;
};

/** A context: one sequence of tokens and its cache. */
class Context {
 public:
  explicit Context(const Model& model, const ContextParams& params = {})
      : handle_(create(model, params)) {}

  cow_mlx_context handle() const noexcept { return handle_.get(); }

  /** Tell about the context, as a JSON object. */
  std::string info() const {
    return detail::fill<std::string>(4096,
                                     [&](char* buffer, std::size_t size, std::size_t* length) {
                                       return cow_mlx_context_info(handle(), buffer, size, length);
                                     });
  }

  /** Open a context that holds what this one holds. */
  Context fork() const {
    cow_mlx_context copy = 0;
    detail::check(cow_mlx_context_fork(handle(), &copy));
    return Context(copy);
  }

  /** Forget every token and end the generation. */
  void reset() { detail::check(cow_mlx_context_reset(handle())); }

  /** The tokens that the cache holds. */
  Tokens tokens() const {
    return detail::fill<Tokens>(1024,
                                [&](std::int32_t* tokens, std::size_t size, std::size_t* count) {
                                  return cow_mlx_context_tokens(handle(), tokens, size, count);
                                });
  }

  /** Drop the last tokens. @return how many were dropped */
  std::size_t trim_end(std::size_t count) {
    std::size_t trimmed = 0;
    detail::check(cow_mlx_context_trim_end(handle(), count, &trimmed));
    return trimmed;
  }

  /** Drop the first tokens. @return how many were dropped */
  std::size_t trim_front(std::size_t count) {
    std::size_t trimmed = 0;
    detail::check(cow_mlx_context_trim_front(handle(), count, &trimmed));
    return trimmed;
  }

  /** Keep what the context holds, to come back to it. */
  Checkpoint checkpoint() const {
    cow_mlx_checkpoint checkpoint = 0;
    detail::check(cow_mlx_context_checkpoint(handle(), &checkpoint));
    return Checkpoint(checkpoint);
  }

  /** Hold what was held at a checkpoint. */
  void rewind(const Checkpoint& checkpoint) {
    detail::check(cow_mlx_context_rewind(handle(), checkpoint.handle()));
  }

  /** Write what the context holds to a file. */
  void save(const std::string& path) const {
    detail::check(cow_mlx_context_save(handle(), detail::c_string(path, "context_save: path")));
  }

  /** Hold what another context has saved. */
  void load(const std::string& path) {
    detail::check(cow_mlx_context_load(handle(), detail::c_string(path, "context_load: path")));
  }

  /** Use an adapter from now on; a change forgets the tokens. */
  void set_adapter(const Adapter& adapter) {
    detail::check(cow_mlx_context_set_adapter(handle(), adapter.handle()));
  }

  /** Use no adapter from now on; a change forgets the tokens. */
  void clear_adapter() { detail::check(cow_mlx_context_set_adapter(handle(), 0)); }

  /** Process a prompt, and be ready to generate. */
  void begin(const Tokens& tokens, const GenerationParams& params = {}) {
    detail::Callbacks callbacks;
    GenerationParams::Lowered lowered(params, callbacks);
    callbacks.check(cow_mlx_context_begin(handle(), tokens.data(), tokens.size(), lowered.get()));
  }

  /** Generate one token. @return false at the end: piece has no text then, and tells why */
  bool next(Piece& piece) { return detail::next(handle(), piece); }

  /** Wait until next() would not block. @return false if it still would after the time */
  bool poll(std::uint32_t timeout_ms = UINT32_MAX) {
    cow_mlx_status status = cow_mlx_context_poll(handle(), timeout_ms);
    if (status != COW_MLX_ETIMEDOUT) detail::check(status);
    return status == COW_MLX_OK;
  }

  /** A file descriptor that is readable while next() would not block. */
  std::int32_t wake_fd() {
    std::int32_t descriptor = -1;
    detail::check(cow_mlx_context_wake_fd(handle(), &descriptor));
    return descriptor;
  }

  /** Process a prompt; the range generates. */
  [[nodiscard]] Pieces generate(const Tokens& tokens, const GenerationParams& params = {}) {
    begin(tokens, params);
    return Pieces(handle());
  }

  /** Process a prompt and generate to the end. @param on_text  receives the text; may be empty */
  Stats generate(const Tokens& tokens, const TextFn& on_text, const GenerationParams& params = {}) {
    detail::Callbacks callbacks;
    callbacks.on_text = &on_text;
    GenerationParams::Lowered lowered(params, callbacks);
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
    GenerationParams::Lowered lowered(params, callbacks);
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

  /** End what the context is doing. Never blocks; for any thread, at any time. */
  void cancel() const {
    const cow_mlx_status status = cow_mlx_context_cancel(handle()); /* sets no message */
    if (status < 0)
      throw Error(status, "context_cancel: no such context is open", "unknown_handle");
  }

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

  /** The model's logits behind the last token: one for every token of the vocabulary. */
  std::vector<float> logits() const {
    std::size_t size = 0;
    detail::check(cow_mlx_context_logits(handle(), nullptr, 0, &size));
    return detail::fill<std::vector<float>>(
        size, [&](float* values, std::size_t capacity, std::size_t* count) {
          return cow_mlx_context_logits(handle(), values, capacity, count);
        });
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

  static Stats sized_stats() {
    Stats stats = {};
    stats.struct_size = sizeof stats;
    return stats;
  }

  detail::Handle<cow_mlx_context_free> handle_;
};

/* ----------------------------------------------------------------- Arrays */

/** The type of an array's elements. */
enum class Dtype : std::int32_t {
  boolean = COW_MLX_BOOL,
  uint8 = COW_MLX_UINT8,
  uint16 = COW_MLX_UINT16,
  uint32 = COW_MLX_UINT32,
  uint64 = COW_MLX_UINT64,
  int8 = COW_MLX_INT8,
  int16 = COW_MLX_INT16,
  int32 = COW_MLX_INT32,
  int64 = COW_MLX_INT64,
  float16 = COW_MLX_FLOAT16,
  bfloat16 = COW_MLX_BFLOAT16,
  float32 = COW_MLX_FLOAT32,
  float64 = COW_MLX_FLOAT64,
  complex64 = COW_MLX_COMPLEX64
};

/** A 16-bit float as its bits. */
struct Float16 {
  std::uint16_t bits;
};

/** The upper half of a 32-bit float. */
struct BFloat16 {
  std::uint16_t bits;
};

namespace detail {

template <typename T>
struct DtypeOf;
template <>
struct DtypeOf<bool> {
  static constexpr Dtype value = Dtype::boolean;
};
template <>
struct DtypeOf<std::uint8_t> {
  static constexpr Dtype value = Dtype::uint8;
};
template <>
struct DtypeOf<std::uint16_t> {
  static constexpr Dtype value = Dtype::uint16;
};
template <>
struct DtypeOf<std::uint32_t> {
  static constexpr Dtype value = Dtype::uint32;
};
template <>
struct DtypeOf<std::uint64_t> {
  static constexpr Dtype value = Dtype::uint64;
};
template <>
struct DtypeOf<std::int8_t> {
  static constexpr Dtype value = Dtype::int8;
};
template <>
struct DtypeOf<std::int16_t> {
  static constexpr Dtype value = Dtype::int16;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::int32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype value = Dtype::int64;
};
template <>
struct DtypeOf<Float16> {
  static constexpr Dtype value = Dtype::float16;
};
template <>
struct DtypeOf<BFloat16> {
  static constexpr Dtype value = Dtype::bfloat16;
};
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::float32;
};
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::float64;
};
template <>
struct DtypeOf<std::complex<float>> {
  static constexpr Dtype value = Dtype::complex64;
};

}  // namespace detail

/** The dtype of elements of a C++ type. */
template <typename T>
inline constexpr Dtype dtype_of = detail::DtypeOf<std::remove_cv_t<T>>::value;

/** Sizes of the dimensions, the outermost first. */
using Shape = std::vector<std::int64_t>;

/** Elements in memory that something else owns. */
template <typename T>
class Span {
 public:
  Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  T* data_;
  std::size_t size_;
};

/** Numbers in up to eight dimensions: a value, which nothing changes. */
class Array {
 public:
  /** Copy the host's memory, in any layout. */
  explicit Array(const cow_mlx_tensor& from) : handle_(create(from)) {}

  /** Copy values in row-major order. */
  template <typename T>
  Array(Span<const T> values, const Shape& shape)
      : Array(tensor(values.data(), values.size(), shape, "array_create")) {}
  template <typename T>
  Array(const std::vector<T>& values, const Shape& shape)
      : Array(Span<const T>(values.data(), values.size()), shape) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> is no memory of bools");
  }

  /** Copy values into one dimension. */
  template <typename T>
  explicit Array(const std::vector<T>& values)
      : Array(values, Shape{static_cast<std::int64_t>(values.size())}) {}

  cow_mlx_array handle() const noexcept { return handle_.get(); }

  Dtype dtype() const { return type().first; }
  Shape shape() const { return type().second; }

  /** The number of elements. */
  std::size_t size() const { return count(shape()); }

  /** Copy the elements into the host's memory, in any layout. */
  void read(const cow_mlx_tensor& to) const { detail::check(cow_mlx_array_read(handle(), &to)); }

  /** Copy the elements in row-major order: as many as there are, and of this type. */
  template <typename T>
  void read(Span<T> to) const {
    const Shape sides = shape();
    read(tensor(to.data(), to.size(), sides, "array_read"));
  }

  /** The elements in row-major order. */
  template <typename T>
  std::vector<T> values() const {
    static_assert(!std::is_same_v<T, bool>, "read() bools into an array of bool");
    std::vector<T> values(size());
    read(Span<T>(values.data(), values.size()));
    return values;
  }

  /** The elements where they are, as long as this object and the runtime live. */
  template <typename T>
  Span<const T> view() const {
    if (dtype() != dtype_of<T>) {
      throw Error(COW_MLX_EINVAL, "array_view: the array is of another dtype", "dtype_mismatch");
    }
    const void* data = nullptr;
    detail::check(cow_mlx_array_view(handle(), &data, nullptr));
    return {static_cast<const T*>(data), size()};
  }

  /** Wait until the elements are computed; false if a run has not brought them in time. */
  bool wait(std::uint32_t timeout_ms = UINT32_MAX) const {
    cow_mlx_status status = cow_mlx_array_wait(handle(), timeout_ms);
    if (status != COW_MLX_ETIMEDOUT) detail::check(status);
    return status == COW_MLX_OK;
  }

  /** Apply one operation; nullptr stands for an input that is left out. Values are computed when
   * they are needed. */
  static std::vector<Array> apply(const std::string& operation,
                                  const std::vector<const Array*>& inputs,
                                  const std::string& attributes_json = {}) {
    const char* name = detail::c_string(operation, "array_apply: operation");
    const char* attributes = detail::optional(attributes_json, "array_apply: attributes_json");
    std::vector<cow_mlx_array> given;
    for (const Array* input : inputs) given.push_back(input != nullptr ? input->handle() : 0);
    const auto handles = detail::fill<std::vector<cow_mlx_array>>(
        4, [&](cow_mlx_array* out, std::size_t size, std::size_t* length) {
          return cow_mlx_array_apply(name, given.data(), given.size(), attributes, out, size,
                                     length);
        });
    std::vector<Array> results;
    for (cow_mlx_array handle : handles) results.push_back(Array(handle));
    return results;
  }

  /** Copy a DLPack tensor, and call its deleter. */
  static Array from_dlpack(DLManagedTensorVersioned* managed) {
    cow_mlx_array array = 0;
    detail::check(cow_mlx_array_from_dlpack(managed, &array));
    return Array(array);
  }

  /** A DLPack tensor of the elements, which the caller frees by its deleter. */
  DLManagedTensorVersioned* to_dlpack() const {
    DLManagedTensorVersioned* managed = nullptr;
    detail::check(cow_mlx_array_to_dlpack(handle(), &managed));
    return managed;
  }

  /** Load arrays of a safetensors file, in the order of the names. */
  static std::vector<Array> load(const std::string& path, const std::vector<std::string>& names) {
    const std::vector<const char*> texts = c_strings(names, "arrays_load: names");
    std::vector<cow_mlx_array> handles(names.size());
    detail::check(cow_mlx_arrays_load(detail::c_string(path, "arrays_load: path"), texts.data(),
                                      texts.size(), handles.data()));
    std::vector<Array> arrays;
    for (cow_mlx_array handle : handles) arrays.push_back(Array(handle));
    return arrays;
  }

  /** Save arrays, each under its name, as a safetensors file. */
  static void save(const std::string& path, const std::vector<std::string>& names,
                   const std::vector<const Array*>& arrays) {
    if (names.size() != arrays.size()) {
      throw Error(COW_MLX_EINVAL, "arrays_save: there are not as many names as arrays", "missing");
    }
    const std::vector<const char*> texts = c_strings(names, "arrays_save: names");
    std::vector<cow_mlx_array> handles;
    for (const Array* array : arrays) handles.push_back(array->handle());
    detail::check(cow_mlx_arrays_save(detail::c_string(path, "arrays_save: path"), texts.data(),
                                      handles.data(), handles.size()));
  }

  /** What a safetensors file holds, as a JSON object. */
  static std::string info(const std::string& path) {
    const char* file = detail::c_string(path, "arrays_info: path");
    return detail::fill<std::string>(4096, [&](char* text, std::size_t size, std::size_t* length) {
      return cow_mlx_arrays_info(file, text, size, length);
    });
  }

 private:
  friend class Input;
  friend class Output;
  friend class Program;

  explicit Array(cow_mlx_array array) : handle_(array) {}

  static std::vector<const char*> c_strings(const std::vector<std::string>& texts,
                                            const char* name) {
    std::vector<const char*> all;
    for (const std::string& text : texts) all.push_back(detail::c_string(text, name));
    return all;
  }

  static cow_mlx_array create(const cow_mlx_tensor& from) {
    cow_mlx_array array = 0;
    detail::check(cow_mlx_array_create(&from, &array));
    return array;
  }

  static std::size_t count(const Shape& shape) {
    std::size_t count = 1;
    for (std::int64_t side : shape) count *= static_cast<std::size_t>(side);
    return count;
  }

  /* Of elements in row-major order, exactly as many as the shape has: C finds one that has more. */
  template <typename T>
  static cow_mlx_tensor tensor(T* data, std::size_t size, const Shape& shape, const char* call) {
    cow_mlx_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.data = const_cast<std::remove_cv_t<T>*>(data);
    tensor.bytes = size * sizeof(T);
    tensor.dtype = static_cast<std::int32_t>(dtype_of<T>);
    tensor.rank = static_cast<std::int32_t>(shape.size());
    tensor.shape = shape.data();
    if (count(shape) != size) {
      throw Error(COW_MLX_EINVAL,
                  std::string(call) + ": the shape has " + std::to_string(count(shape)) +
                      " elements, but there are " + std::to_string(size) + " values",
                  "shape_mismatch");
    }
    return tensor;
  }

  std::pair<Dtype, Shape> type() const {
    std::int32_t dtype = 0;
    std::int64_t sides[COW_MLX_MAX_RANK];
    std::size_t rank = 0;
    detail::check(cow_mlx_array_type(handle(), &dtype, sides, COW_MLX_MAX_RANK, &rank));
    return {static_cast<Dtype>(dtype), Shape(sides, sides + rank)};
  }

  detail::Handle<cow_mlx_array_free> handle_;
};

/* --------------------------------------------------------------- Programs */

/** What a run is given: an array, which has to live until the run ends, or memory, which is copied
 * at once. */
class Input {
 public:
  Input(const Array& array) : array_(array.handle()) {}

  /** Elements in row-major order. */
  template <typename T>
  Input(Span<const T> values, Shape shape)
      : shape_(std::move(shape)),
        tensor_(Array::tensor(values.data(), values.size(), shape_, "program_run")) {}
  template <typename T>
  Input(const std::vector<T>& values, Shape shape)
      : Input(Span<const T>(values.data(), values.size()), std::move(shape)) {}

 private:
  friend class Program;

  cow_mlx_array array_ = 0;
  Shape shape_;
  cow_mlx_tensor tensor_ = {};
};

/** Memory that a run fills, in row-major order: of the result's type and shape. */
class Output {
 public:
  template <typename T>
  Output(Span<T> values, Shape shape)
      : shape_(std::move(shape)),
        tensor_(Array::tensor(values.data(), values.size(), shape_, "program_run")) {}
  template <typename T>
  Output(std::vector<T>& values, Shape shape)
      : Output(Span<T>(values.data(), values.size()), std::move(shape)) {}

 private:
  friend class Program;

  Shape shape_;
  cow_mlx_tensor tensor_;
};

/** How a program is run; see cow_mlx_run_params. */
struct RunParams {
  bool check_finite = false;
  /** Indices of inputs that the run is given: arrays that must not be used any more. */
  std::vector<std::int32_t> donate;
};

/** A computation on arrays: checked once, run many times, by any number of threads at once. */
class Program {
 public:
  /** @param json  the program; see cow_mlx_program_create() */
  explicit Program(std::string_view json) : Program(create(json)) {}

  cow_mlx_program handle() const noexcept { return handle_.get(); }

  /** Its gradient, the same for many rows, or with inputs bound; see cow_mlx_program_derive(). */
  Program derive(std::string_view spec_json) const {
    cow_mlx_program program = 0;
    detail::check(cow_mlx_program_derive(handle(), spec_json.data(), spec_json.size(), &program));
    return Program(program);
  }

  /** Run it, and fill memory with all its results. */
  void run(const std::vector<Input>& inputs, const std::vector<Output>& outputs,
           const RunParams& params = {}) const {
    std::vector<cow_mlx_tensor> tensors;
    for (const Output& output : outputs) tensors.push_back(placed(output.tensor_, output.shape_));
    std::vector<cow_mlx_value> values;
    for (const cow_mlx_tensor& tensor : tensors) values.push_back({0, &tensor});
    run(inputs, values, params, false);
  }

  /** Run it; returns its results, as many as it has. */
  std::vector<Array> run(const std::vector<Input>& inputs, std::size_t outputs = 1,
                         const RunParams& params = {}) const {
    return arrays(inputs, outputs, params, false);
  }

  /** Run it later; returns its results at once, and Array::wait() tells of them. */
  std::vector<Array> submit(const std::vector<Input>& inputs, std::size_t outputs = 1,
                            const RunParams& params = {}) const {
    return arrays(inputs, outputs, params, true);
  }

  /** End its runs. Never blocks; for any thread, at any time. */
  void cancel() const {
    const cow_mlx_status status = cow_mlx_program_cancel(handle()); /* sets no message */
    if (status < 0)
      throw Error(status, "program_cancel: no such program is open", "unknown_handle");
  }

  /** What it is, as a JSON object, and with a value of each dimension what a run takes. */
  std::string info(const std::string& dimensions = {}) const {
    const char* given = detail::optional(dimensions, "program_info: dimensions");
    return detail::fill<std::string>(4096, [&](char* text, std::size_t size, std::size_t* length) {
      return cow_mlx_program_info(handle(), given, text, size, length);
    });
  }

  /** All operations, as a JSON array. */
  static std::string operations() {
    return detail::fill<std::string>(1 << 19,
                                     [](char* text, std::size_t size, std::size_t* length) {
                                       return cow_mlx_operations_info(text, size, length);
                                     });
  }

 private:
  explicit Program(cow_mlx_program program) : handle_(program) {}

  static cow_mlx_program create(std::string_view json) {
    cow_mlx_program program = 0;
    cow_mlx_program_params params;
    cow_mlx_program_params_init(&params, sizeof params);
    detail::check(cow_mlx_program_create(json.data(), json.size(), &params, &program));
    return program;
  }

  static cow_mlx_tensor placed(cow_mlx_tensor tensor, const Shape& shape) {
    tensor.shape = shape.data(); /* which was elsewhere if it has been copied since */
    return tensor;
  }

  std::vector<Array> arrays(const std::vector<Input>& inputs, std::size_t outputs,
                            const RunParams& params, bool submit) const {
    std::vector<cow_mlx_value> values(outputs);
    std::vector<Array> results;
    results.reserve(outputs);
    run(inputs, values, params, submit);
    for (const cow_mlx_value& value : values) results.push_back(Array(value.array));
    return results;
  }

  void run(const std::vector<Input>& inputs, std::vector<cow_mlx_value>& outputs,
           const RunParams& params, bool submit) const {
    std::vector<cow_mlx_tensor> tensors;
    for (const Input& input : inputs) tensors.push_back(placed(input.tensor_, input.shape_));
    std::vector<cow_mlx_value> values;
    for (std::size_t i = 0; i < inputs.size(); i++) {
      values.push_back({inputs[i].array_, inputs[i].array_ != 0 ? nullptr : &tensors[i]});
    }
    cow_mlx_run_params given;
    cow_mlx_run_params_init(&given, sizeof given);
    given.submit = submit;
    given.check_finite = params.check_finite;
    given.donate = params.donate.data();
    given.donate_count = params.donate.size();
    detail::check(cow_mlx_program_run(handle(), values.data(), values.size(), outputs.data(),
                                      outputs.size(), &given));
  }

  detail::Handle<cow_mlx_program_free> handle_;
};

}  // namespace cowmlx

#endif /* COW_MLX_HPP */

/* Models: loading, tokenizing, embedding, ranking. See cow_mlx.hpp. */
#ifndef COW_MLX_MODEL_HPP
#define COW_MLX_MODEL_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base.hpp"
#include "callbacks.hpp"
#include "chat.hpp"

namespace cowmlx {

/** Token ids. */
using Tokens = std::vector<std::int32_t>;

/** They begin with the defaults. What is not named here has its meaning in cow_mlx.h. */
struct ModelParams : private cow_mlx_model_params {
  using cow_mlx_model_params::activations;
  using cow_mlx_model_params::connect_timeout_ms;
  using cow_mlx_model_params::lazy;
  using cow_mlx_model_params::prefix_cache_bytes;
  using cow_mlx_model_params::silence_timeout_ms;
  using cow_mlx_model_params::split;
  using cow_mlx_model_params::trust_remote_code;

  std::string adapter_path;         /**< folder of a LoRA adapter to apply, or empty */
  std::vector<std::string> workers; /**< the other machines that run it, "HOST:PORT" */
  std::string secret_path; /**< file with the secret that the workers have, too, or empty */
  ProgressFn progress;

  ModelParams() { cow_mlx_model_params_init(this, sizeof(cow_mlx_model_params)); }

 private:
  friend class Model;

  cow_mlx_model_params lowered(detail::Callbacks& callbacks,
                               std::vector<const char*>& addresses) const {
    cow_mlx_model_params params = *this;
    params.adapter_path = detail::optional(adapter_path, "model_load: adapter_path");
    for (const std::string& worker : workers) {
      addresses.push_back(detail::c_string(worker, "model_load: workers"));
    }
    params.workers = addresses.data();
    params.worker_count = addresses.size();
    params.secret_path = detail::optional(secret_path, "model_load: secret_path");
    if (progress) {
      callbacks.on_progress = &progress;
      params.progress = detail::Callbacks::progress;
      params.user_data = &callbacks;
    }
    return params;
  }
};

struct EmbedParams : cow_mlx_embed_params {
  EmbedParams() { cow_mlx_embed_params_init(this, sizeof(cow_mlx_embed_params)); }
};

/** They begin with the defaults. What is not named here has its meaning in cow_mlx.h. */
struct RankParams : private cow_mlx_rank_params {
  using cow_mlx_rank_params::batch_tokens;
  using cow_mlx_rank_params::max_tokens;
  using cow_mlx_rank_params::normalize;
  using cow_mlx_rank_params::truncate;

  std::string prompt, instruction, yes, no; /**< the model's own where empty */

  RankParams() { cow_mlx_rank_params_init(this, sizeof(cow_mlx_rank_params)); }

 private:
  friend class Model;

  cow_mlx_rank_params raw() const {
    cow_mlx_rank_params raw = *this;
    raw.prompt = detail::optional(prompt, "rank_params.prompt");
    raw.instruction = detail::optional(instruction, "rank_params.instruction");
    raw.yes = detail::optional(yes, "rank_params.yes");
    raw.no = detail::optional(no, "rank_params.no");
    return raw;
  }
};

/** A model: weights, tokenizer and chat template of one folder. */
class Model {
 public:
  explicit Model(const std::string& path, const ModelParams& params = {})
      : handle_(load(path, params)) {}

  /** Load without waiting: the model is there when poll() says so, which calls the params'
   *  progress. Until then, and after a failure, it is of no other use. */
  static Model load_async(const std::string& path, const ModelParams& params = {}) {
    auto later = std::make_unique<Later>(params);
    std::vector<const char*> addresses;
    const cow_mlx_model_params lowered = later->params.lowered(later->callbacks, addresses);
    cow_mlx_model model = 0;
    detail::check(cow_mlx_model_load_async(detail::c_string(path, "model_load_async: path"),
                                           &lowered, &model));
    return Model(model, std::move(later));
  }

  cow_mlx_model handle() const noexcept { return handle_.get(); }

  /** Wait until the model is loaded; throws what went wrong.
   *  @return false if it is not after the time */
  bool poll(std::uint32_t timeout_ms = UINT32_MAX) {
    const cow_mlx_status status = cow_mlx_model_poll(handle(), timeout_ms);
    if (later_) later_->callbacks.check(COW_MLX_OK);
    if (status != COW_MLX_ETIMEDOUT) detail::check(status);
    return status == COW_MLX_OK;
  }

  /** A file descriptor that is readable once poll() has something to tell. */
  std::int32_t wake_fd() {
    std::int32_t descriptor = -1;
    detail::check(cow_mlx_model_wake_fd(handle(), &descriptor));
    return descriptor;
  }

  /** Tell what is in a model's folder without loading it, as a JSON object.
   *  @param kv_bits  of a context: 0, 4 or 8 */
  static std::string inspect(const std::string& path, std::int32_t kv_bits = 0) {
    return detail::fill<std::string>(
        4096, [&](char* buffer, std::size_t size, std::size_t* length) {
          return cow_mlx_model_inspect(path.c_str(), kv_bits, buffer, size, length);
        });
  }

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
    return rows(
        texts, [&](const cow_mlx_text* views, float* out, std::size_t size, std::size_t* dims) {
          return cow_mlx_model_embed(handle(), views, texts.size(), &params, out, size, dims);
        });
  }

  /** Tell how well each document fits a query: a score for each, or one for each label. */
  std::vector<std::vector<float>> rank(const std::string& query,
                                       const std::vector<std::string>& documents,
                                       const RankParams& params = {}) const {
    const cow_mlx_rank_params raw = params.raw();
    const char* asked = detail::c_string(query, "query");
    return rows(documents, [&](const cow_mlx_text* views, float* out, std::size_t size,
                               std::size_t* labels) {
      return cow_mlx_model_rank(handle(), asked, views, documents.size(), &raw, out, size, labels);
    });
  }

 private:
  /* A row of numbers for each text, from a call that first tells how many that are. */
  template <class Call>
  static std::vector<std::vector<float>> rows(const std::vector<std::string>& texts, Call call) {
    std::vector<cow_mlx_text> views;
    for (const std::string& text : texts) views.push_back({text.data(), text.size()});
    std::size_t width = 0;
    detail::check(call(views.data(), nullptr, std::size_t{0}, &width));
    std::vector<float> values(texts.size() * width);
    detail::check(call(views.data(), values.data(), values.size(), &width));
    std::vector<std::vector<float>> found;
    for (std::size_t row = 0; row < texts.size(); row++) {
      const float* first = values.data() + row * width;
      found.emplace_back(first, first + width);
    }
    return found;
  }

  static cow_mlx_model load(const std::string& path, const ModelParams& params) {
    detail::Callbacks callbacks;
    std::vector<const char*> addresses;
    cow_mlx_model_params lowered = params.lowered(callbacks, addresses);
    cow_mlx_model model = 0;
    callbacks.check(
        cow_mlx_model_load(detail::c_string(path, "model_load: path"), &lowered, &model));
    return model;
  }

  /* What a load that returned at once goes on to use. */
  struct Later {
    explicit Later(const ModelParams& given) : params(given) {}

    ModelParams params;
    detail::Callbacks callbacks;
  };

  Model(cow_mlx_model model, std::unique_ptr<Later> later)
      : later_(std::move(later)), handle_(model) {}

  std::unique_ptr<Later> later_;
  detail::Handle<cow_mlx_model_free> handle_;
};

}  // namespace cowmlx

#endif /* COW_MLX_MODEL_HPP */

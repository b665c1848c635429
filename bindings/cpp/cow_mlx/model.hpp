/* Models and adapters: loading, tokenizing, embedding, ranking. See cow_mlx.hpp. */
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
#include "json.hpp"
#include "methods.hpp"
#include "params.hpp"

namespace cowmlx {

/** Token ids. */
using Tokens = std::vector<std::int32_t>;

/** The options of a load, which begin with the defaults. */
struct ModelParams : detail::ModelFields {
  ProgressFn progress;

 private:
  friend class Model;

  cow_mlx_model_params with(detail::Callbacks& callbacks, const char* call,
                            detail::Texts& texts) const {
    cow_mlx_model_params params = lowered(call, texts);
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

/** The options of a ranking, which begin with the defaults. */
struct RankParams : detail::RankFields {
 private:
  friend class Model;
};

/** A model: weights, tokenizer and chat template of one folder. */
class Model : public detail::ModelMethods<Model> {
 public:
  explicit Model(const std::string& path, const ModelParams& params = {})
      : handle_(load(path, params)) {}

  /** Load without waiting: the model is there when poll() says so, which calls the params'
   *  progress. Until then, and after a failure, it is of no other use. */
  static Model load_async(const std::string& path, const ModelParams& params = {}) {
    auto later = std::make_unique<Later>(params);
    detail::Texts texts;
    const cow_mlx_model_params lowered =
        later->params.with(later->callbacks, "model_load_async", texts);
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

  /** Tell what is in a model's folder without loading it, as a JSON object.
   *  @param kv_bits  of a context: 0, 4 or 8 */
  static std::string inspect(const std::string& path, std::int32_t kv_bits = 0) {
    return detail::fill<std::string>(
        4096, [&](char* buffer, std::size_t size, std::size_t* length) {
          return cow_mlx_model_inspect(path.c_str(), kv_bits, buffer, size, length);
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
    detail::Texts texts;
    const cow_mlx_rank_params raw = params.lowered("model_rank", texts);
    const char* asked = detail::c_string(query, "model_rank: query");
    return rows(documents, [&](const cow_mlx_text* views, float* out, std::size_t size,
                               std::size_t* labels) {
      return cow_mlx_model_rank(handle(), asked, views, documents.size(), &raw, out, size, labels);
    });
  }

 private:
  /* A row of numbers for each text, from a call that first reports the size. */
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
    detail::Texts texts;
    const cow_mlx_model_params lowered = params.with(callbacks, "model_load", texts);
    cow_mlx_model model = 0;
    callbacks.check(
        cow_mlx_model_load(detail::c_string(path, "model_load: path"), &lowered, &model));
    return model;
  }

  /* Kept for a load that returned at once. */
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

#endif /* COW_MLX_MODEL_HPP */

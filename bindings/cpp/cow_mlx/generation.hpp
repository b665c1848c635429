/* Generations: how they are asked for, and their pieces. See cow_mlx.hpp. */
#ifndef COW_MLX_GENERATION_HPP
#define COW_MLX_GENERATION_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base.hpp"
#include "callbacks.hpp"
#include "model.hpp"
#include "params.hpp"

namespace cowmlx {

/** Sizes and times of one generation. */
using Stats = cow_mlx_stats;

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

/** The options of a generation, which begin with the defaults. */
struct GenerationParams : detail::GenerationFields {
  std::vector<Bias> bias;
  PromptFn prompt_progress;
  LogitsFn logits_fn; /**< runs on the threads that take pieces or events, or that poll */

 private:
  friend class Context;

  /* The struct of C with its lists. */
  class Lowered {
   public:
    Lowered(const GenerationParams& from, detail::Callbacks& callbacks, const char* call)
        : params_(from.lowered(call, texts_)) {
      for (const Bias& each : from.bias) {
        bias_tokens_.push_back(each.token);
        bias_values_.push_back(each.value);
      }
      params_.bias_tokens = bias_tokens_.data();
      params_.bias_values = bias_values_.data();
      params_.bias_count = bias_tokens_.size();
      if (from.prompt_progress) {
        callbacks.on_prompt = &from.prompt_progress;
        params_.prompt_progress = detail::Callbacks::prompt;
      }
      if (from.logits_fn) {
        callbacks.on_logits = &from.logits_fn;
        params_.logits_fn = detail::Callbacks::logits;
      }
      params_.user_data = &callbacks;
    }
    Lowered(const Lowered&) = delete;
    Lowered& operator=(const Lowered&) = delete;

    const cow_mlx_generation_params* get() const { return &params_; }

   private:
    detail::Texts texts_; /* before params_, which is made with it */
    cow_mlx_generation_params params_;
    Tokens bias_tokens_;
    std::vector<float> bias_values_;
  };
};

namespace detail {

/* The next piece; false at the end, where the piece has no text, but the reason. */
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

  /** Wait for the first piece, or continue where an earlier loop was left. */
  Iterator begin() {
    advance();
    return Iterator(this);
  }
  End end() const { return {}; }

  /** Why the generation ended, one of COW_MLX_FINISH_; COW_MLX_FINISH_NONE before its end. */
  std::int32_t finish() const noexcept { return piece_.finish; }

 private:
  friend class Context;
  Pieces(cow_mlx_context context, std::shared_ptr<detail::Callbacks> callbacks)
      : context_(context), callbacks_(std::move(callbacks)) {}

  void advance() {
    if (ended_) return;
    ended_ = !detail::next(context_, piece_);
    callbacks_->check(COW_MLX_OK);
  }

  cow_mlx_context context_;
  std::shared_ptr<detail::Callbacks> callbacks_;
  Piece piece_;
  bool ended_ = false;
};

}  // namespace cowmlx

#endif /* COW_MLX_GENERATION_HPP */

/* Generations: how they are asked for, and their pieces. See cow_mlx.hpp. */
#ifndef COW_MLX_GENERATION_HPP
#define COW_MLX_GENERATION_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base.hpp"
#include "callbacks.hpp"
#include "model.hpp"

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

/** They begin with the defaults. What is not named here has its meaning in cow_mlx.h. */
struct GenerationParams : private cow_mlx_generation_params {
  using cow_mlx_generation_params::draft; /**< Model::handle() of it, or 0 */
  using cow_mlx_generation_params::draft_tokens;
  using cow_mlx_generation_params::dry_allowed_length;
  using cow_mlx_generation_params::dry_base;
  using cow_mlx_generation_params::dry_multiplier;
  using cow_mlx_generation_params::dry_penalty_last_n;
  using cow_mlx_generation_params::dynatemp_exponent;
  using cow_mlx_generation_params::dynatemp_range;
  using cow_mlx_generation_params::frequency_penalty;
  using cow_mlx_generation_params::frequency_window;
  using cow_mlx_generation_params::grammar_kind;
  using cow_mlx_generation_params::logprobs;
  using cow_mlx_generation_params::max_tokens;
  using cow_mlx_generation_params::min_p;
  using cow_mlx_generation_params::mirostat;
  using cow_mlx_generation_params::mirostat_eta;
  using cow_mlx_generation_params::mirostat_tau;
  using cow_mlx_generation_params::presence_penalty;
  using cow_mlx_generation_params::presence_window;
  using cow_mlx_generation_params::repetition_penalty;
  using cow_mlx_generation_params::repetition_window;
  using cow_mlx_generation_params::seed;
  using cow_mlx_generation_params::temperature;
  using cow_mlx_generation_params::timeout;
  using cow_mlx_generation_params::top_k;
  using cow_mlx_generation_params::top_n_sigma;
  using cow_mlx_generation_params::top_p;
  using cow_mlx_generation_params::typical_p;
  using cow_mlx_generation_params::xtc_probability;
  using cow_mlx_generation_params::xtc_threshold;

  std::vector<Bias> bias;
  std::vector<std::string> stop; /**< texts that end the generation */
  std::string grammar;           /**< of grammar_kind, or empty */
  /** Texts that no run goes beyond that DRY looks for; they may be none. */
  std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"};
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
      for (const std::string& text : from.dry_sequence_breakers) {
        breakers_.push_back(detail::c_string(text, "generation_params.dry_sequence_breakers"));
      }
      params_.dry_sequence_breaker_count = breakers_.size();
      breakers_.push_back(nullptr); /* none at all are not NULL */
      params_.dry_sequence_breakers = breakers_.data();
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
    std::vector<const char*> breakers_;
  };
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

}  // namespace cowmlx

#endif /* COW_MLX_GENERATION_HPP */

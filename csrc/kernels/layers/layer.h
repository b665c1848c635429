/* Decoder layers as data: what a network's modules were recognized as, in the order in which a row
 * of activations passes through them.
 *
 *     x += attention_scale * after(out(attend(before(x))))
 *     x += mlp_scale * after(down(act(gate(before(x))) * up(before(x))))
 *
 * Any norm may be missing. All numbers but weights, keys and values are float32. */
#pragma once

#include <cstdint>
#include <vector>

#include "../table.h"

namespace cowmlx {

struct Norm {
  enum class Kind : int32_t { None, Rms, Layer };
  Kind kind = Kind::None;
  const float* weight = nullptr; /* null: ones */
  const float* bias = nullptr;   /* of a layer norm; null: zeros */
  float eps = 0;
};

/* How a layer's heads turn with their position. */
struct Turn {
  int32_t table = -1; /* of the step's tables; -1: not at all */
  int32_t dims = 0;   /* that turn, even */
  bool traditional = false;
};

struct AttentionHalf {
  Norm before, after;
  Matrix query, key, value, out;
  Norm query_norm, key_norm;
  bool norm_per_head = true; /* false: over all heads together */
  Turn turn;
  int32_t heads = 0, groups = 0, key_dim = 0, value_dim = 0;
  float scale = 1, soft_cap = 0, residual = 1;
  const float* sinks = nullptr; /* (heads,) or null */
  int32_t window = 0;           /* tokens that a query sees; 0: all */
  int32_t place = 0;            /* of the step's places */
};

struct MLPHalf {
  Norm before, after;
  Matrix gate, up, down; /* up: rows 0 where nothing is multiplied with the activation */
  Activation activation = Activation::Silu;
  float residual = 1;
};

struct Layer {
  AttentionHalf attention;
  bool has_mlp = false; /* false: other code computes the MLP */
  MLPHalf mlp;
};

struct Layers {
  int32_t width = 0;    /* H */
  bool rounded = false; /* activations, as Table::prepare() rounds them */
  Matrix embedding{};   /* rows 0: the step gives activations, not tokens */
  float input_scale = 1;
  std::vector<Layer> layers;
  Norm last;
  Matrix head{}; /* rows 0: there is none, or others compute it */
};

/* The cosines and sines of one kind of rotation, (positions, half) each. */
struct Angles {
  const float* cosines;
  const float* sines;
  int32_t half;
};

/* Where the layers of one kind write a step's T tokens and what these see, per row of the batch. */
struct Place {
  std::vector<int32_t> columns;   /* (B,) of the first token in the cache */
  std::vector<int32_t> ends;      /* (B,) columns in use, the row's own new ones included */
  std::vector<int32_t> positions; /* (B,) what query 0 counts as: it sees columns 0 … position */
  bool windowed;                  /* whether the layers' window applies (a ring holds no more) */
};

/* How keys and values are stored: as numbers, or in mlx's affine quantization. */
struct KVQuantization {
  int32_t bits = 0;  /* 0: plain numbers; else 4 or 8 */
  int32_t group = 0; /* numbers that share a scale */

  bool operator==(const KVQuantization&) const = default;
  int parts() const { return bits ? 3 : 1; } /* arrays that keys, or values, consist of */
};

/* Keys or values of one layer, contiguous. */
struct Stored {
  void* data;            /* (rows, groups, capacity, dim), or as many quantized */
  void *scales, *biases; /* quantized only: (rows, groups, capacity, dim / group) */
};

struct LayerCache {
  Stored keys, values;
  int32_t capacity;
  Scalar type; /* of plain numbers, or of scales and biases */
};

/* What a pass over the layers does with the last of them. */
enum class Part : int32_t {
  All,
  StoreLast, /* of the last layer only keys and values: the results behind it may be unused */
  FinishLast /* what StoreLast left out, and the last norm */
};

struct Step {
  const Table* table;     /* of all of it, whatever is selected meanwhile */
  int32_t rows, tokens;   /* B, T */
  const int32_t* offsets; /* (B,) positions of the first token in its text */
  const int32_t* ids;     /* (B, T), or null where x is given */
  float* x;               /* (B, T, H): activations in, and out */
  float* logits;          /* (B, V) of what the head makes of x where T is 1, or null */
  const Angles* angles;
  const Place* places;
  const LayerCache* caches;    /* per layer */
  KVQuantization quantization; /* of all caches */
  Part part;
  int32_t workers; /* there is scratch for so many */
};

/* Bytes of scratch for a step. */
size_t scratch_size(const Layers&, const Step&);

/* Take a step; x becomes the activations behind the last layer and norm. */
void run(const Layers&, const Step&, void* scratch);

/* Neighbouring texts of one length. */
struct TextGroup {
  int32_t start, texts, length; /* the first row; how many; rows of each */
  const void* mask;             /* besides, [text][head][token][token] of a text, or null */
  int64_t mask_strides[4];      /* in numbers */
  bool mask_bool;
};

/* Encoder layers [first, end): every token of a text attends to all of it. Norms in front of a
 * half are those of the halves; one behind it follows the sum, not what is added. Residuals, query
 * norms, sinks and windows are not read. */
struct Encoding {
  const Table* table;
  int32_t rows;             /* N, tokens of all texts */
  float* x;                 /* (N, H): activations in, and out */
  const int32_t* positions; /* (N,) of a token in its text */
  const TextGroup* groups;
  int32_t group_count;
  int32_t first, end;
  const Angles* angles; /* one, or null */
  int32_t workers;      /* there is scratch for so many */
};

/* Bytes of scratch for an encoding. */
size_t scratch_size(const Layers&, const Encoding&);

/* x becomes the activations behind the last of these layers. */
void encode(const Layers&, const Encoding&, void* scratch);

}  // namespace cowmlx

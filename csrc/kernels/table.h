/* The kernels of one instruction set. One table is chosen at run time (below); every entry has
 * the same meaning in each. All pointers are to float32 unless said; nothing here allocates, throws
 * or starts threads: callers cut the work with parallel() (pool.h). Rows never influence each
 * other: a row's result has the same bits whatever rows stand beside it, up to SMALL_ROWS rows and
 * above it, each.
 *
 * A new one is a function in families/, an entry here, a line in families/table.h and
 * families/base_table.h, and a primitive in primitives/. A new instruction set is a header in
 * simd/, an isa_*.cpp, its table here and in select.cpp, options in tools/packaging/kernels.py, and
 * its name in cowmlx/accelerate/kernels.py. */
#pragma once

#include "matrix.h"

namespace cowmlx {

/* Up to here rows take the path of decoding: weights are streamed once for all of them. */
constexpr int SMALL_ROWS = 16;

/* How a product of one row reads weights. select.cpp has other numbers for some processors.
 * Weights of 4 bits, by prefetch distance: an AMD EPYC (Zen 5) reads 27 GB/s with 1.5 KB, 38 with 6
 * KB, and 45 if it also reads one block after the other. From its caches it is faster with four
 * blocks at a time: bfloat16 112 GB/s, not 60. Tokens/s of 110 million parameters on Zen 4 rise by
 * 17 % with 8 bits and by a quarter with 4 if 6 KB ahead go into the second-level cache; with 4
 * bits, one block after the other is 4 % more. */
struct OneRow {
  int64_t ahead = 1536;       /* the prefetch distance in bytes */
  bool second_level = false;  /* prefetch into the second-level cache, not the first */
  int32_t stream_bits = 0;    /* widest numbers that may be read one block after the other */
  int64_t cached = INT64_MAX; /* with more bytes of arrays, weights come from memory */
  bool one_stream = false;    /* weights come from memory: read one block after the other */
};
inline OneRow one_row; /* one_stream may change at any time: results do not depend on it */

/* Whether one query a head is computed apart: on two cores of an Intel Xeon (Emerald Rapids),
 * attention of 8 rows to 80 positions of bfloat16 takes 0.6 of the time, of float32 0.9. On an AMD
 * EPYC (Zen 5), a token of a model of 15 million parameters behind 2,000 others of bfloat16 takes
 * 0.74 of the time. With AVX2 (Zen 1), tokens behind 1,500 others of 16 bits take 0.71 to 0.9, of
 * float32 as long as before. Zen 4, where it is not measured, does without. */
inline bool attends_to_one = true;

/* Numbers of keys and values that share a scale, at most. */
constexpr int LARGEST_GROUP = 128;

struct Cache { /* keys or values of one layer and one row of a batch */
  void* data;  /* [head][position][dim], strides below, in numbers (quantized: in words) */
  int64_t head_stride, position_stride;
  Scalar type;        /* Float32, Float16 or BFloat16; not read where quantized */
  int32_t bits;       /* 0: plain numbers; 4, 8: mlx's affine quantization, uint32 words */
  int32_t group;      /* quantized only: numbers that share a scale, a multiple of 32 */
  const void* scales; /* quantized only: [head][position][dim / group], strides below */
  const void* biases;
  int64_t scale_head_stride, scale_position_stride;
  Scalar scale_type;
};

/* Up to so many queries of so many heads are few: more fill the lanes of vectors. */
constexpr int FEW_QUERIES = 8;
constexpr int FEW_HEADS = 16;

/* softmax(q k^T * scale [soft cap] + mask) v of one row of a batch, for the query heads that share
 * one head of keys and values (grouped heads read them once). A query that sees nothing gives 0. */
struct Attention {
  const float* query; /* [head][t][D], strides below */
  int64_t query_head_stride, query_stride;
  Cache keys, values; /* of this head's group: head strides are not used */
  int32_t heads;      /* query heads of the group */
  int32_t queries;    /* T */
  int32_t key_dim, value_dim;
  int32_t first, end;    /* valid positions of the cache: [first, end) */
  int32_t position;      /* of query 0 in the cache; query t sees first … position + t; end: all */
  int32_t window;        /* 0: none; else query t sees only the last `window` of these positions */
  float scale, soft_cap; /* soft_cap 0: none (tanh(x / cap) * cap) */
  const float* sinks;    /* (heads,) logits that take part in the softmax alone, or null */
  const void* mask;      /* [head][t][position], strides in numbers, or null; besides the above */
  int64_t mask_head_stride, mask_stride, mask_position_stride;
  bool mask_bool; /* true where a query sees a position; else float32, added to scores */
  float* scratch; /* as many floats as attention_size() says */
  float* out;     /* [head][t][value_dim], strides below */
  int64_t out_head_stride, out_stride;
  /* [t][head][2] for few queries that see only a part of their positions here: the largest score,
   * and the sum of e^(score - largest), by which out is not divided; else null. */
  float* state;
  /* Where the keys lie that are attended to next, at the same positions, or null. Prefetched. */
  const void* next_keys;
};

/* Rows of numbers that lie side by side, of some heads. */
struct Heads {
  const float* data;
  int64_t head, row; /* from one to the next, in numbers */
};
struct HeadsTo {
  float* data;
  int64_t head, row;
};

/* softmax(q k^T * scale + mask) v and its gradient, of query heads that share one head of keys and
 * values. Positions that a mask of bool, or `causal`, hides have the least score; a query
 * that sees nothing has the mean of all values. */
struct TrainedAttention {
  Heads q, k, v;
  int32_t heads, queries, positions, key_dim, value_dim; /* each at least 1 */
  float scale;
  bool causal;      /* the last query sees all positions, each before it one less */
  bool mask_bool;   /* true where a query sees a position; else float32, added to scores */
  const void* mask; /* [head][query][position], strides in numbers, or null */
  int64_t mask_head, mask_row, mask_position;
  float* scratch; /* as many floats as trained_attention_size() says */
};

/* Gradients of q, k and v, for the gradient `by` of the result. */
struct AttentionGradient {
  Heads by;
  HeadsTo q, k, v;
};

/* A matrix memory of one head that takes positions one after the other (arXiv 2405.04517, eq.
 * 19-27): memory = forget memory + take key valueT, out = scale queryT memory. Any part of its
 * columns may be given alone. */
struct Recurrence {
  const float *queries, *keys; /* [position][key_dim], strides below */
  const float* values;         /* [position][column] */
  int64_t query_stride, key_stride, value_stride;
  const float *forget, *take, *scale; /* (positions,) */
  int32_t positions, key_dim, columns;
  float* memory; /* [key_dim][column]; changed in place */
  int64_t memory_stride;
  float* out; /* [position][column] */
  int64_t out_stride;
};

/* A step of Adam (arXiv 1412.6980) or AdamW (arXiv 1711.05101). */
struct AdamStep {
  float beta1, rest1, beta2, rest2; /* rest: 1 - beta, rounded once */
  float eps;
  float rate; /* of learning, corrected or not */
  float root; /* the root of the second moment is multiplied by this: 1, or what corrects it */
  float keep; /* the parameter is multiplied by this before: 1, or less where weights decay */
};
struct AdamState { /* numbers of a parameter, and of its first and second moments */
  const float *parameter, *first, *second;
};
struct AdamResult {
  float *parameter, *first, *second;
};

/* Windows of a convolution where they lie. */
constexpr int WINDOWS = 12; /* at most */
struct Windows {
  const float* const* places; /* [tap][WINDOWS]: a tap's numbers */
  int taps;
  int count; /* of windows; the rest repeats the last one */
};

/* Lines of a convolution's input whose windows are LINE_TAPS numbers wide and 1 apart, so that
 * neighbours read the same numbers. At most one number at either end of a line is a zero. */
constexpr int LINE_TAPS = 3;
struct WindowLines {
  const float* zeros; /* of all channels */
  int channels, length;
  int before; /* zeros in front */
  bool flip;
};
struct WindowLine {
  const float* input; /* null: zeros */
  const float* by;    /* of its first window */
  int first, end;     /* windows */
};

enum class Activation : int32_t { Silu, Gelu, GeluTanh, Relu, ReluSquared, Sigmoid };

struct Table {
  const char* name; /* "portable", "avx2" …: as select.cpp lists them */

  /* ---- products (families/products) ---- */
  /* Bytes of scratch that prepare() needs for M rows. `rounded`: to int8 where weights are
   * quantized, to bfloat16 where they are of that type and the set multiplies such numbers. */
  size_t (*prepare_size)(const Matrix&, int rows, bool rounded);
  void (*prepare)(const Matrix&, const float* x, int64_t stride, int rows, bool rounded,
                  void* scratch, Prepared* out);
  /* y[m][16 * b + lane] for blocks [from, to) and rows [row, row_end); y has `stride` numbers a
   * row. Writes no filling. */
  void (*product)(const Matrix&, const Prepared&, int from, int to, int row, int row_end, float* y,
                  int64_t stride);
  /* One row of the matrix as numbers, for embeddings. */
  void (*row_numbers)(const Matrix&, int row, float* out);

  /* ---- rows (families/rows) ---- */
  /* y = x / rms(x) * weight; weight null: ones. May be in place. */
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n,
                     float* y);
  /* The gradient of x for that of y, `by`; layer_norm's if `centred`, else rms_norm's. Adds by *
   * (normalized x) to `along`, and by to `total`: their sums over rows are the gradients of weight
   * and bias. of_x may be by. */
  void (*norm_gradient)(bool centred, const float* x, const float* weight, const float* by,
                        float eps, int n, float* of_x, float* along, float* total);
  void (*add)(const float* a, const float* b, float scale, int n, float* y); /* y = a + scale * b */
  void (*gate)(Activation, const float* gate, const float* up, int n,
               float* y); /* act(gate) * up; up null: act */
  void (*gelu_gradient)(const float* x, const float* by, int n, float* y); /* by * gelu'(x) */
  void (*softmax)(const float* x, int n, float* y);
  /* Rotate one head of one position in place: cosines and sines already of its position. */
  void (*rotate)(float* head, const float* cosines, const float* sines, int dims, bool traditional);

  /* ---- attention (families/attention) ---- */
  void (*store)(const float* from, int n, void* to, Scalar type); /* to a cache's type */
  void (*load)(const void* from, Scalar type, int n, float* to);
  /* n numbers, rounded to `type` first, to mlx's affine packing of 4 or 8 bits, a scale and a bias
   * of that type for each group: the bits that mlx.core.quantize gives. */
  void (*quantize)(const float* from, int n, int bits, int group, void* words, void* scales,
                   void* biases, Scalar type);
  /* Floats of scratch for any attention with these dims, whatever its numbers of heads and queries.
   */
  size_t (*attention_size)(int key_dim, int value_dim);
  /* Heads and queries are worth being given together, since tiles of them share a tile of keys; a
   * query's result is the same bits in whatever range of queries it is given. */
  void (*attention)(const Attention&);
  /* Floats of scratch for trained_attention() and attention_gradient(). */
  size_t (*trained_attention_size)(int positions, int key_dim, int value_dim);
  void (*trained_attention)(const TrainedAttention&, const HeadsTo& out);
  void (*attention_gradient)(const TrainedAttention&, const AttentionGradient&);

  /* ---- convolutions (families/convolution) ---- */
  /* out[pitch k + m] = rows[m][k] for four rows of n numbers: with a pitch of 4 as prepare() puts
   * rows beside each other, with one of 16 as weights lie in blocks. */
  void (*beside)(const float* const* rows, int n, int pitch, float* out);
  /* y[m][16 b + lane] for blocks [from, to) of a float32 matrix, as product() has it of windows
   * laid as rows. Its columns are those of a tap, channel after channel, then those of the next.
   * `positive`: results below 0 are written as 0. */
  void (*multiply_windows)(const Matrix&, const Windows&, int from, int to, bool positive, float* y,
                           int64_t stride);
  /* y[m][c] = sum over taps of window m's number c * weight[c][tap] [+ bias[c]] for n channels.
   * `weight` lies in blocks, as that of a matrix of n rows and a column for each tap; bias null:
   * none. */
  void (*by_channels)(const Windows&, const float* weight, int n, const float* bias, bool positive,
                      float* y, int64_t stride);
  /* sums[column - from][n] += sum over windows of its number `column` * by[window][n], for columns
   * [from, to) and 16 * blocks numbers n. The windows of `many` units follow each other; a tap of
   * all has as many channels. */
  void (*outer_products)(const Windows* units, int many, int channels, int from, int to,
                         const float* by, int blocks, float* sums);

  /* As multiply_windows() for `count` windows of a line from `first` on. `inputs`: the line that
   * each tap of the other axes reads; null: zeros. */
  void (*multiply_line)(const Matrix&, const WindowLines&, const float* const* inputs, int first,
                        int count, int from, int to, bool positive, float* y, int64_t stride);
  /* As outer_products() for windows of `many` lines, and the columns of one tap of the other axes.
   */
  void (*outer_lines)(const WindowLines&, const WindowLine* lines, int many, int blocks,
                      float* sums);

  /* ---- channels (families/channels) ---- */
  /* sums[n] += sum over lines of a[line][n], and products[n] += that of a[line][n] *
   * (b[line][n] - centre[n]), for `count` numbers n of lines that are `width` apart. b null: sums
   * of a's difference from the centre, and of its square. centre null, too: sums of a alone. */
  void (*line_sums)(const float* a, const float* b, const float* centre, int64_t lines,
                    int64_t width, int count, float* sums, float* products);

  /* ---- samples (families/sample) ---- */
  float (*highest)(const float* x, int n); /* n > 0 */
  /* out = e^(x - shift); returns their sum. */
  double (*exponentials)(const float* x, float shift, int n, float* out);
  /* Random words a, b of a key's pairs of counters first, second (Threefry-2x32 of 20 rounds,
   * doi:10.1145/2063384.2063405), as mlx's are. Room for a multiple of 16 is needed everywhere. */
  void (*threefry)(uint64_t key, const uint32_t* first, const uint32_t* second, int n, uint32_t* a,
                   uint32_t* b);
  /* Places of the numbers that can reach `best`: scale * (x - shift) plus the Gumbel number that
   * random bits give. A few that cannot are among them. Returns how many. */
  int (*contenders)(const float* x, const uint32_t* bits, int n, float shift, float scale,
                    float best, int32_t* places);
  /* ---- recurrence (families/recurrence) ---- */
  void (*recurrence)(const Recurrence&);

  /* ---- updates (families/updates) ---- */
  /* The bits that mlx's own operations give, one after the other. */
  void (*adam)(const AdamStep&, const float* gradient, const AdamState& from, const AdamResult& to,
               int n);
};

/* ---- which table runs: the best that processor and system support, or the one that
 * COWMLX_KERNELS names ---- */

extern const Table portable_table;
#if defined(__x86_64__)
extern const Table avx2_table, avxvnni_table, avx512_table, avx512vnni_table, avx512bf16_table;
#elif defined(__aarch64__)
extern const Table neon_table, i8mm_table;
#endif

/* What may run here, ended by null. */
const Table* const* usable_tables();

/* Use the kernels of that name from the next operation on; null or "": the best. Operations that
 * have begun end with the kernels that they began with. "" is returned, or why the name cannot be
 * had, a sentence; nothing changes then. The text stays valid until the next call. */
const char* select_table(const char* name);

/* The table in use; never null ("portable" is always there). */
const Table& table();

}  // namespace cowmlx

#include "weights.h"

#include <sstream>

#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "mlx/utils.h"

#include "table.h"

namespace cowmlx {
namespace {

std::string type_text(const mx::array& array) {
  std::ostringstream text;
  text << array.dtype();
  return text.str();
}

/* The type of dense weights of that mode, or the format that packs them. */
Format format_of(const std::string& mode, const mx::array& weight) {
  if (mode == "dense") {
    switch (scalar_of(weight, "weight")) {
      case Scalar::Float32:
        return Format::Float32;
      case Scalar::Float16:
        return Format::Float16;
      case Scalar::BFloat16:
        return Format::BFloat16;
      default:
        refuse("weight is uint8; dense weights can be float32, float16 or bfloat16");
    }
  }
  if (mode == "affine") return Format::Affine;
  std::string known = "dense, affine";
#define FIND(NAME, MODE, ...)            \
  if (mode == MODE) return Format::NAME; \
  known += ", " MODE;
  COWMLX_FLOAT_FORMATS(FIND)
#undef FIND
  refuse("mode is \"" + mode + "\"; it can be one of " + known);
}

/* Whether one row reads weights as one stream: where there are more arrays than caches hold. */
void choose_stream() {
  const bool streams = static_cast<int64_t>(mx::get_active_memory()) > one_row.cached;
  __atomic_store_n(&one_row.one_stream, streams, __ATOMIC_RELAXED);
}

void check_format(Format format, int bits, int group) {
  const bool fits = [&] {
    switch (format) {
      case Format::Affine:
        return (bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8) &&
               (group == 32 || group == 64 || group == 128);
#define CHECK(NAME, MODE, BITS, GROUP, ...) \
  case Format::NAME:                        \
    return bits == BITS && group == GROUP;
        COWMLX_FLOAT_FORMATS(CHECK)
#undef CHECK
      default:
        return true;
    }
  }();
  if (!fits)
    refuse("no kernel takes " + std::to_string(bits) + " bits in groups of " +
           std::to_string(group) + " of that mode");
}

void check_blocks(const mx::array& array, const std::string& name, int blocks, int middle) {
  if (array.ndim() != 3 || array.shape(0) != blocks || array.shape(2) != LANES ||
      (middle > 0 && array.shape(1) != middle))
    refuse(name + " has the shape " + shape_text(array) + "; it must be (" +
           std::to_string(blocks) + ", " + (middle > 0 ? std::to_string(middle) : "words") + ", " +
           std::to_string(LANES) + ")");
}

}  // namespace

std::string shape_text(const mx::array& array) {
  std::string text = "(";
  for (int axis = 0; axis < static_cast<int>(array.ndim()); axis++)
    text += (axis > 0 ? ", " : "") + std::to_string(array.shape(axis));
  return text + ")";
}

Scalar scalar_of(const mx::array& array, const std::string& name) {
  switch (array.dtype().val()) {
    case mx::Dtype::Val::float32:
      return Scalar::Float32;
    case mx::Dtype::Val::float16:
      return Scalar::Float16;
    case mx::Dtype::Val::bfloat16:
      return Scalar::BFloat16;
    case mx::Dtype::Val::uint8:
      return Scalar::UInt8;
    default:
      refuse(name + " is " + type_text(array) + "; it can be float32, float16 or bfloat16");
  }
}

mx::array plain(const mx::array& array, mx::Stream stream) {
  const bool is_plain = array.is_available() && array.flags().row_contiguous;
  return is_plain ? array : mx::contiguous(array, false, stream);
}

Matrix Layout::matrix(const Arrays& inputs, size_t first) const {
  Matrix found{format, bits, group, rows, columns, nullptr, nullptr, nullptr, scale_type, nullptr};
  found.weight = inputs[first++].data<void>();
  if (has_scales) found.scales = inputs[first++].data<void>();
  if (has_biases) found.biases = inputs[first++].data<void>();
  if (has_bias) found.bias = inputs[first].data<float>();
  return found;
}

Layout add_matrix(Arrays& inputs, const mx::array& weight, const std::optional<mx::array>& scales,
                  const std::optional<mx::array>& biases, const std::optional<mx::array>& bias,
                  int rows, const std::string& mode, int bits, int group, mx::Stream stream) {
  choose_stream();
  if (rows < 1) refuse("rows is " + std::to_string(rows) + "; a matrix has at least one");
  const int blocks = (rows + LANES - 1) / LANES;
  const Format format = format_of(mode, weight);
  check_blocks(weight, "weight", blocks, 0);
  const bool quantized = mode != "dense", affine = format == Format::Affine;
  Layout layout{format, bits, group, rows, 0, quantized, affine, bias.has_value(), Scalar::Float32};
  const int64_t words = weight.shape(1);
  if (quantized) {
    check_format(format, bits, group);
    if (weight.dtype() != mx::uint32)
      refuse("weight is " + type_text(weight) + "; quantized weights are uint32");
    layout.columns = static_cast<int>(words * 32 / bits);
    if (words < 1 || words * 32 % bits != 0 || layout.columns % group != 0)
      refuse("weight has " + std::to_string(words) +
             " words in a row, which is no whole number of " + "groups of " +
             std::to_string(group));
    if (!scales || affine != biases.has_value())
      refuse(std::string("weights of mode ") + mode + " need scales" +
             (affine ? " and biases" : " and no biases"));
    const int groups = layout.columns / group;
    check_blocks(*scales, "scales", blocks, groups);
    layout.scale_type = scalar_of(*scales, "scales");
    if (affine == (layout.scale_type == Scalar::UInt8))
      refuse("scales are " + type_text(*scales) + ", not those of " + mode);
    if (affine) {
      check_blocks(*biases, "biases", blocks, groups);
      if (biases->dtype() != scales->dtype()) refuse("biases and scales are of different types");
    }
  } else {
    if (scales || biases) refuse("dense weights have no scales and no biases");
    layout.columns = static_cast<int>(words);
    layout.bits = static_cast<int>(weight.itemsize() * 8);
    layout.group = 0;
  }
  if (layout.columns < 1) refuse("weight has no columns");
  if (bias && (bias->ndim() != 1 || bias->shape(0) != rows || bias->dtype() != mx::float32))
    refuse("bias is " + type_text(*bias) + " " + shape_text(*bias) + "; it must be float32 (" +
           std::to_string(rows) + ")");
  inputs.push_back(plain(weight, stream));
  if (quantized) inputs.push_back(plain(*scales, stream));
  if (affine) inputs.push_back(plain(*biases, stream));
  if (bias) inputs.push_back(plain(*bias, stream));
  return layout;
}

namespace {

const void* behind(const void* base, size_t bytes) {
  return base ? static_cast<const char*>(base) + bytes : nullptr;
}

Matrix rows_of(Matrix m, int from, int rows) {
  m.rows = rows;
  m.weight = behind(m.weight, static_cast<size_t>(from) * m.columns * m.bits / 8);
  if (m.group) {
    const size_t scales = static_cast<size_t>(from) * (m.columns / m.group) * size_of(m.scale_type);
    m.scales = behind(m.scales, scales);
    m.biases = behind(m.biases, scales);
  }
  if (m.bias) m.bias += from;
  return m;
}

}  // namespace

HeldMatrix::HeldMatrix(const mx::array& weight, const std::optional<mx::array>& scales,
                       const std::optional<mx::array>& biases, const std::optional<mx::array>& bias,
                       int rows, const std::string& mode, int bits, int group) {
  const Layout layout = add_matrix(held_, weight, scales, biases, bias, rows, mode, bits, group,
                                   mx::default_stream(mx::Device::cpu));
  mx::eval(held_);
  matrix_ = layout.matrix(held_, 0);
}

HeldMatrix HeldMatrix::part(int from, int rows) const {
  if (from < 0 || rows < 1 || from % LANES != 0 || from + rows > matrix_.rows)
    refuse("rows " + std::to_string(from) + " to " + std::to_string(from + rows) +
           " are no blocks of a matrix of " + std::to_string(matrix_.rows));
  HeldMatrix other(*this);
  Matrix& m = other.matrix_;
  m = rows_of(m, from, rows);
  if (low_) {
    const float* rescale = low_->rescale ? low_->rescale + from : nullptr;
    other.low_ =
        std::make_shared<LowRank>(LowRank{low_->down, rows_of(low_->up, from, rows), rescale});
    m.low = other.low_.get();
  }
  return other;
}

HeldMatrix HeldMatrix::with_low(const HeldMatrix& down, const HeldMatrix& up,
                                const std::optional<mx::array>& rescale) const {
  const Matrix &a = down.matrix_, &b = up.matrix_;
  if (a.columns != matrix_.columns || b.rows != matrix_.rows || b.columns != a.rows ||
      a.format != Format::Float32 || b.format != Format::Float32 || a.bias || b.bias)
    refuse("a low-rank part is float32, (R, " + std::to_string(matrix_.columns) + ") and (" +
           std::to_string(matrix_.rows) + ", R), without biases");
  HeldMatrix other(*this);
  for (const HeldMatrix* part : {&down, &up})
    other.held_.insert(other.held_.end(), part->held_.begin(), part->held_.end());
  LowRank low{a, b};
  if (rescale) {
    if (rescale->dtype() != mx::float32 || rescale->ndim() != 1 ||
        rescale->shape(0) != matrix_.rows)
      refuse("rows of a matrix are rescaled by " + std::to_string(matrix_.rows) + " float32");
    mx::array numbers = mx::contiguous(*rescale, false, mx::default_stream(mx::Device::cpu));
    mx::eval(numbers);
    other.held_.push_back(numbers);
    low.rescale = numbers.data<float>();
    low.up.bias = matrix_.bias; /* which is added behind */
    other.matrix_.bias = nullptr;
  }
  other.low_ = std::make_shared<LowRank>(low);
  other.matrix_.low = other.low_.get();
  return other;
}

}  // namespace cowmlx

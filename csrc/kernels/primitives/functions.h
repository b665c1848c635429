/* The functions of numbers that fused operations consist of. */
#pragma once

#include <cstdint>
#include <optional>

#include "mlx/primitives.h"

namespace cowmlx {

namespace mx = mlx::core;

/* By their names in mlx, whose operations give the same bits, but for COWMLX_CLOSE and
 * LogAddExp. */
#define COWMLX_PLAIN_BINARY(X) \
  X(Add) X(Subtract) X(Multiply) X(Divide) X(Maximum) X(Minimum) X(Power) X(ArcTan2)
#define COWMLX_BINARY(X) COWMLX_PLAIN_BINARY(X) X(LogAddExp)
/* Their result is a bool; here 1 or 0, where nothing else reads it. */
#define COWMLX_COMPARED(X) X(Greater) X(GreaterEqual) X(Less) X(LessEqual) X(Equal) X(NotEqual)
#define COWMLX_PLAIN(X) X(Negative) X(Abs) X(Square) X(Sqrt) X(Rsqrt) X(Floor) X(Ceil) X(Sign)
/* Computed by loops that are compiled to vectors: as mlx computes them; and those for which mlx
 * asks libm, a number at a time: at most 3 units in the last place from the exact result. */
#define COWMLX_VECTORS(X) X(Exp) X(Sigmoid) X(Erf)
#define COWMLX_CLOSE(X) X(Expm1) X(Log) X(Log1p) X(Tanh) X(Sinh) X(Cosh)
#define COWMLX_UNARY(X) COWMLX_PLAIN(X) COWMLX_CLOSE(X) COWMLX_VECTORS(X) X(Sin) X(Cos)

#define COWMLX_NAME(NAME) NAME,
enum class Code : uint8_t {
  COWMLX_BINARY(COWMLX_NAME) COWMLX_COMPARED(COWMLX_NAME) COWMLX_UNARY(COWMLX_NAME)
};
#undef COWMLX_NAME

inline bool is_binary(Code code) { return code < Code::Negative; }
inline bool is_compared(Code code) { return code >= Code::Greater && code <= Code::NotEqual; }

/* The function that a primitive of mlx computes; none if it is another operation. */
std::optional<Code> code_of(const mx::Primitive& primitive);

/* Compute a function of n numbers, or of n pairs; y may be a or b. */
using Functions = void (*)(Code code, const float* a, const float* b, int n, float* y);

/* Those that go with the kernels in use. */
Functions functions();

}  // namespace cowmlx

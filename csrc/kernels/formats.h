/* Formats of quantized weights whose numbers are small floats and whose scales are bytes.
 *
 *     X(Format, mode, bits, group, Code, scale)
 *
 * mode is mlx's name, Code a struct of families/numbers.h that decodes a number, from_<scale> the
 * function of simd/scalars.h that decodes a scale. cowmlx/quantized_formats.py has the same formats
 * in Python. Affine weights, of any bits and group, are no row of this table. */
#pragma once

#define COWMLX_FLOAT_FORMATS(X)              \
  X(Mxfp4, "mxfp4", 4, 32, Float4Code, e8m0) \
  X(Nvfp4, "nvfp4", 4, 16, Float4Code, e4m3) \
  X(Mxfp8, "mxfp8", 8, 32, Float8Code, e8m0)

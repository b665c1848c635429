/* The transpose of four rows. The including file has chosen an instruction set. */
#pragma once

#include "../simd/shuffle.h"
#include "vectors.h"

namespace cowmlx::ISA {

/* Write the four numbers of each place of the rows beside each other, `pitch` apart from the next.
 * Four by four numbers at a time. */
COWMLX_KERNEL void beside_rows(const float* const* rows, int n, int pitch, float* out) {
  using Four [[gnu::vector_size(16)]] = float;
  using Places [[gnu::vector_size(16), maybe_unused]] = int;
  const auto four = [](const float* p) {
    Four v;
    memcpy(&v, p, sizeof v);
    return v;
  };
  int k = 0;
  for (; k + 4 <= n; k += 4) {
    const Four a = four(rows[0] + k), b = four(rows[1] + k);
    const Four c = four(rows[2] + k), d = four(rows[3] + k);
    const Four ac = COWMLX_SHUFFLE(a, c, 0, 4, 1, 5);
    const Four bd = COWMLX_SHUFFLE(b, d, 0, 4, 1, 5);
    const Four ac2 = COWMLX_SHUFFLE(a, c, 2, 6, 3, 7);
    const Four bd2 = COWMLX_SHUFFLE(b, d, 2, 6, 3, 7);
    const Four columns[4] = {COWMLX_SHUFFLE(ac, bd, 0, 4, 1, 5), COWMLX_SHUFFLE(ac, bd, 2, 6, 3, 7),
                             COWMLX_SHUFFLE(ac2, bd2, 0, 4, 1, 5),
                             COWMLX_SHUFFLE(ac2, bd2, 2, 6, 3, 7)};
    for (const Four& column : columns) {
      memcpy(out, &column, sizeof column);
      out += pitch;
    }
  }
  for (; k < n; k++, out += pitch)
    for (int m = 0; m < 4; m++) out[m] = rows[m][k];
}

}  // namespace cowmlx::ISA

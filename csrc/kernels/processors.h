/* How many processors this process may use. */
#pragma once

namespace cowmlx {

/* At least 1: those that the affinity mask and a control group's quota of processor time leave;
 * on a Mac with two kinds of cores the fast ones. */
int processors();

}  // namespace cowmlx

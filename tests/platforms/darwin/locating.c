/* Tells what csrc/boot/locate.c, compiled as for macOS, finds: locating [HOME [IMAGE...]]
 * Prints the libpython of a prefix, or of the one around this program, or why there is none; with
 * images that the process has mapped, the minor version and the path of the libpython among them.
 */
#include <mach-o/dyld.h>
#include <stdio.h>

#include "base/error.h"
#include "boot/locate.h"

static int images;
static char** names;

uint32_t _dyld_image_count(void) { return (uint32_t)images; }
const char* _dyld_get_image_name(uint32_t index) { return names[index]; }

int main(int argc, char** argv) {
  static cow_python python;
  static char path[COW_PATH_SIZE];
  int minor = -1;
  images = argc - 2;
  names = argv + 2;
  if (images > 0) {
    bool found = cow_locate_mapped_python(path, &minor);
    printf("%d %s\n", minor, found ? path : "");
  } else if (cow_locate_python(argv[1], &python) == COW_MLX_OK) {
    printf("%s\n", python.library);
  } else {
    printf("%s\n", cow_mlx_error_message());
  }
  return 0;
}

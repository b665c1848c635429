/* What csrc/boot/locate.c asks of dyld, answered by locating.c: the images of a process on a Mac. */
#ifndef DYLD_H
#define DYLD_H

#include <stdint.h>

uint32_t _dyld_image_count(void);
const char* _dyld_get_image_name(uint32_t index);

#endif

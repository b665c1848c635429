/* The layout of DLPack 1.x's specification, with our names. It is a header so that its types are
 * private to libabigail, whichever compiler made the library. */
#ifndef COW_DLPACK_H
#define COW_DLPACK_H

#include <stdint.h>

enum { COW_DLPACK_MAJOR = 1, COW_DLPACK_MINOR = 0 };

enum { COW_DLPACK_CPU = 1 };

/* The code of a dtype. */
enum {
  COW_DLPACK_INT = 0,
  COW_DLPACK_UINT = 1,
  COW_DLPACK_FLOAT = 2,
  COW_DLPACK_BFLOAT = 4,
  COW_DLPACK_COMPLEX = 5,
  COW_DLPACK_BOOL = 6
};

enum { COW_DLPACK_READ_ONLY = 1, COW_DLPACK_COPIED = 2 };

typedef struct cow_dlpack_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} cow_dlpack_dtype;

typedef struct cow_dlpack_tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  cow_dlpack_dtype dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: row-major */
  uint64_t offset;  /* in bytes */
} cow_dlpack_tensor;

struct DLManagedTensorVersioned {
  uint32_t major;
  uint32_t minor;
  void* owner;
  void (*deleter)(struct DLManagedTensorVersioned*); /* may be NULL */
  uint64_t flags;
  cow_dlpack_tensor tensor;
};

#endif

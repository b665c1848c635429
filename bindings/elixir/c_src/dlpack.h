/* The layout of DLPack 1.x's specification, with our names. */
#ifndef COW_NIF_DLPACK_H
#define COW_NIF_DLPACK_H

#include <stdint.h>

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

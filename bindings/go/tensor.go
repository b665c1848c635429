package cowmlx

import (
	"fmt"
	"slices"
	"unsafe"
)

// An Element is a type of Go that a dtype has. 16-bit floats are uint16, by Tensor.As.
type Element interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 | complex64
}

// DtypeOf is the dtype of a type of Go.
func DtypeOf[T Element]() Dtype {
	var element T
	switch any(element).(type) {
	case bool:
		return Bool
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case float32:
		return Float32
	case float64:
		return Float64
	}
	return Complex64
}

// String is a dtype's name, such as "float32".
func (d Dtype) String() string { return dtypeNames[d] }

// A Value is what a run or a step is given: an Array, or a Tensor.
type Value interface{ lowered(l *lowering) cValue }

// A Tensor is a view of a slice, whose elements are used where they are.
type Tensor struct {
	data    unsafe.Pointer
	bytes   int
	dtype   Dtype
	shape   []int64
	strides []int64
	offset  int64
}

// TensorOf is a view of a slice; without a shape it has one dimension.
func TensorOf[T Element](data []T, shape ...int64) Tensor {
	var element T
	if len(shape) == 0 {
		shape = []int64{int64(len(data))}
	}
	return Tensor{data: pointer(data), bytes: len(data) * int(unsafe.Sizeof(element)), dtype: DtypeOf[T](),
		shape: shape}
}

// Scalar is one element, of no dimension.
func Scalar[T Element](value T) Tensor {
	tensor := TensorOf([]T{value})
	tensor.shape = nil
	return tensor
}

// As gives the same bytes as another dtype.
func (t Tensor) As(dtype Dtype) Tensor {
	t.dtype = dtype
	return t
}

// Strided gives another view of the same slice; first and strides are in elements.
func (t Tensor) Strided(first int64, strides ...int64) Tensor {
	t.offset, t.strides = first, strides
	return t
}

func (t Tensor) lower(l *lowering) *cTensor {
	shape, strides := slices.Clone(t.shape), slices.Clone(t.strides)
	if strides != nil && len(strides) != len(shape) {
		l.refuse(refused(StatusEInval, "conflict", "strides",
			fmt.Sprintf("strides has %d elements, must have %d", len(strides), len(shape))))
	}
	made := &cTensor{structSize: unsafe.Sizeof(cTensor{}), data: t.data, bytes: uintptr(t.bytes),
		offset: uintptr(t.offset * dtypeBytes[t.dtype]), dtype: int32(t.dtype), rank: int32(len(shape)),
		shape: pointer(shape), strides: pointer(strides)}
	l.keep(made)
	return made
}

func (t Tensor) lowered(l *lowering) cValue { return cValue{host: unsafe.Pointer(t.lower(l))} }

func (a *Array) lowered(*lowering) cValue { return cValue{array: a.handle()} }

func values(l *lowering, name string, given []Value) unsafe.Pointer {
	found := make([]cValue, len(given))
	for i, each := range given {
		if array, ok := each.(*Array); each == nil || ok && array.handle() == 0 {
			l.refuse(refused(StatusEInval, "null_argument", name,
				fmt.Sprintf("%s[%d] is nil or closed, must be an Array or a Tensor", name, i)))
			continue
		}
		found[i] = each.lowered(l)
	}
	return numbers(l, found)
}

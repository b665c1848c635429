package cowmlx

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"
)

// An Array is an array of numbers, which lives in the library: a value, which nothing changes.
type Array struct {
	object
	known atomic.Pointer[arrayType]
}

func (a *Array) handle() int64 {
	if a == nil {
		return 0
	}
	return a.number.Load()
}

type arrayType struct {
	dtype Dtype
	shape []int64
}

func newArray(handle int64) *Array {
	array := &Array{}
	array.number.Store(handle)
	array.free = api.arrayFree
	return array
}

func newArrays(handles []int64) []*Array {
	found := make([]*Array, len(handles))
	for i, handle := range handles {
		found[i] = newArray(handle)
	}
	return found
}

// NewArray makes an array of a slice, which is copied; without a shape it has one dimension.
func NewArray[T Element](data []T, shape ...int64) (*Array, error) {
	return FromTensor(TensorOf(data, shape...))
}

// FromTensor makes an array of a view, whose elements are copied.
func FromTensor(from Tensor) (*Array, error) {
	l := &lowering{}
	given, handle := from.lower(l), int64(0)
	if err := l.call(func() int32 { return api.arrayCreate(unsafe.Pointer(given), &handle) }); err != nil {
		return nil, err
	}
	return newArray(handle), nil
}

// Type is an array's dtype and shape.
func (a *Array) Type() (Dtype, []int64, error) {
	known, err := a.typed()
	if err != nil {
		return 0, nil, err
	}
	return known.dtype, slices.Clone(known.shape), nil
}

func (a *Array) typed() (*arrayType, error) {
	if a.handle() == 0 {
		return nil, refused(StatusEHandle, "unknown_handle", "", "the array is nil or closed")
	}
	if known := a.known.Load(); known != nil {
		return known, nil
	}
	var dtype int32
	sizes, rank := make([]int64, MaxRank), uintptr(0)
	err := try(func() int32 {
		return api.arrayType(a.handle(), &dtype, pointer(sizes), MaxRank, &rank)
	})
	if err != nil {
		return nil, err
	}
	known := &arrayType{Dtype(dtype), sizes[:rank]}
	a.known.Store(known)
	return known, nil
}

// Len is the number of an array's elements.
func (a *Array) Len() (int, error) {
	known, err := a.typed()
	if err != nil {
		return 0, err
	}
	return known.size(), nil
}

func (t *arrayType) size() int {
	size := 1
	for _, each := range t.shape {
		size *= int(each)
	}
	return size
}

// Values copies the elements, once they are computed, to a slice of the array's dtype.
func Values[T Element](a *Array) ([]T, error) {
	known, err := a.typed()
	if err != nil {
		return nil, err
	}
	data := make([]T, known.size())
	tensor := TensorOf(data)
	tensor.shape = known.shape
	if known.dtype == Float16 || known.dtype == Bfloat16 {
		if DtypeOf[T]() == Uint16 {
			tensor.dtype = known.dtype // their bits
		}
	}
	return data, a.Read(tensor)
}

// Item is the element of an array that has one.
func Item[T Element](a *Array) (element T, err error) {
	found, err := Values[T](a)
	if err == nil && len(found) != 1 {
		err = refused(StatusEInval, "shape_mismatch", "", fmt.Sprintf("the array has %d elements, must have 1", len(found)))
	}
	if err == nil {
		element = found[0]
	}
	return element, err
}

// Read copies the elements, once they are computed, to a view of the array's dtype and shape.
func (a *Array) Read(to Tensor) error {
	l := &lowering{}
	given := to.lower(l)
	return l.call(func() int32 { return api.arrayRead(a.handle(), unsafe.Pointer(given)) })
}

// View lets look at the elements where they are, as bytes that must not be kept or changed.
func (a *Array) View(look func(elements []byte)) error {
	known, err := a.typed()
	if err != nil {
		return err
	}
	data := new(unsafe.Pointer)
	if err := try(func() int32 { return api.arrayView(a.handle(), unsafe.Pointer(data), nil) }); err != nil {
		return err
	}
	look(unsafe.Slice((*byte)(*data), known.size()*int(dtypeBytes[known.dtype])))
	return nil
}

// Wait waits until the elements are there, so many milliseconds at most; false: not yet.
func (a *Array) Wait(milliseconds uint32) (bool, error) {
	err := try(func() int32 { return api.arrayWait(a.handle(), milliseconds) })
	if errors.Is(err, StatusETimedout) {
		return false, nil
	}
	return err == nil, err
}

// Apply applies an operation to arrays: cow_mlx_array_apply(). Attributes are what encoding/json makes
// an object of, or nil.
func Apply(operation string, attributes any, inputs ...*Array) ([]*Array, error) {
	l := &lowering{}
	name, given, options := l.text("operation", operation), l.arrays("inputs", inputs), l.json("attributes", attributes)
	if l.err != nil {
		return nil, l.err
	}
	handles, err := fill[int64](4, 1, func(outputs unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.arrayApply(name, given, uintptr(len(inputs)), options, outputs, capacity, length)
	})
	return newArrays(handles), err
}

// LoadArrays loads arrays of a safetensors file by their names.
func LoadArrays(path string, names ...string) (map[string]*Array, error) {
	l, handles := &lowering{}, make([]int64, len(names))
	file, list := l.text("path", path), l.strings("names", names)
	err := l.call(func() int32 { return api.arraysLoad(file, list, uintptr(len(names)), pointer(handles)) })
	if err != nil {
		return nil, err
	}
	found := make(map[string]*Array, len(names))
	for i, array := range newArrays(handles) {
		found[names[i]] = array
	}
	return found, nil
}

// SaveArrays saves arrays by their names as a safetensors file.
func SaveArrays(path string, arrays map[string]*Array) error {
	var names []string
	var list []*Array
	for name, array := range arrays {
		names, list = append(names, name), append(list, array)
	}
	l := &lowering{}
	file, given, handles := l.text("path", path), l.strings("names", names), l.arrays("arrays", list)
	return l.call(func() int32 { return api.arraysSave(file, given, handles, uintptr(len(list))) })
}

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

// A Value is an input of a run or a step: an Array, or a Tensor.
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

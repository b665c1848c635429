package cowmlx

import (
	"fmt"
	"strings"
	"unsafe"
)

// pointer is where the elements of a slice are; nil if there are none.
func pointer[T any](elements []T) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(elements))
}

// textAt is a text of C's with so many bytes; of -1: up to its NUL.
func textAt(at unsafe.Pointer, length int) string {
	if at == nil {
		return ""
	}
	if length < 0 {
		for length = 0; *(*byte)(unsafe.Add(at, length)) != 0; {
			length++
		}
	}
	return string(unsafe.Slice((*byte)(at), length))
}

// fill makes a call that fills (buffer, capacity, *length), again if the guess was too small. The
// length is that of each of so many rows.
func fill[T any](guess, rows int, call func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32) ([]T, error) {
	for capacity := max(guess, 1); ; {
		buffer, length, tooSmall := make([]T, capacity), uintptr(0), false
		err := try(func() int32 {
			status := call(pointer(buffer), uintptr(capacity), &length)
			if tooSmall = Status(status) == StatusEBuffer; tooSmall {
				return 0
			}
			return status
		})
		if err != nil {
			return nil, err
		}
		if !tooSmall {
			return buffer[:int(length)*rows], nil
		}
		capacity = int(length) * rows
	}
}

// A lowering has the memory and the callbacks of one call.
type lowering struct {
	kept []any
	on   functions
	err  error
	heard
}

func (l *lowering) keep(memory any) { l.kept = append(l.kept, memory) }

func (l *lowering) refuse(err error) {
	if l.err == nil {
		l.err = err
	}
}

// text is a copy of a text that ends at a NUL.
func (l *lowering) text(name, value string) unsafe.Pointer {
	if strings.IndexByte(value, 0) >= 0 {
		l.refuse(refused(StatusEInval, "out_of_range", name, name+" has a NUL byte in it"))
	}
	bytes := append([]byte(value), 0)
	l.keep(bytes)
	return pointer(bytes)
}

// optional is the same, where "" stands for none.
func (l *lowering) optional(name, value string) unsafe.Pointer {
	if value == "" {
		return nil
	}
	return l.text(name, value)
}

func (l *lowering) strings(name string, values []string) unsafe.Pointer {
	pointers := make([]unsafe.Pointer, len(values))
	for i, value := range values {
		pointers[i] = l.text(fmt.Sprintf("%s[%d]", name, i), value)
	}
	l.keep(pointers)
	return pointer(pointers)
}

// arrays are handles; nil stands for an input that is left out.
func (l *lowering) arrays(name string, values []*Array) unsafe.Pointer {
	handles := make([]int64, len(values))
	for i, value := range values {
		if handles[i] = value.handle(); value != nil && handles[i] == 0 {
			l.refuse(refused(StatusEHandle, "unknown_handle", name, fmt.Sprintf("%s[%d] is a closed array", name, i)))
		}
	}
	return numbers(l, handles)
}

// open is a handle that must be one of an object that is open.
func (l *lowering) open(name, kind string, handle int32) int32 {
	if handle == 0 {
		l.refuse(refused(StatusEHandle, "unknown_handle", name, name+" is a closed "+kind))
	}
	return handle
}

func numbers[T any](l *lowering, values []T) unsafe.Pointer {
	l.keep(values)
	return pointer(values)
}

// count says how many elements a member has; those that share a count have as many.
func (l *lowering) count(name string, count *uintptr, length int) {
	if *count != 0 && int(*count) != length {
		l.refuse(refused(StatusEInval, "conflict", name,
			fmt.Sprintf("%s has %d elements, must have %d", name, length, *count)))
	}
	*count = uintptr(length)
}

// call makes the call. A callback's panic continues behind it.
func (l *lowering) call(run func() int32) error {
	defer l.close()
	if l.err != nil {
		return l.err
	}
	err := try(run)
	if l.panicked != nil {
		panic(l.panicked)
	}
	if l.err != nil { // of what a callback has given
		return by(operation(), l.err)
	}
	return err
}

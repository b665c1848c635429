package cowmlx

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
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

// filled does so with what a lowering has.
func filled[T any](l *lowering, guess, rows int, call func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32) ([]T, error) {
	if l.err != nil {
		return nil, l.err
	}
	return fill[T](guess, rows, call)
}

// described reads a JSON object that a call has written.
func described(text []byte, err error) (object map[string]any, _ error) {
	if err != nil {
		return nil, err
	}
	return object, json.Unmarshal(text, &object)
}

// A lowering has the memory and the callbacks of one call.
type lowering struct {
	kept    []any
	counted []*uintptr // counts that have a value
	on      functions
	err     error
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
	if slices.Contains(l.counted, count) && int(*count) != length {
		l.refuse(refused(StatusEInval, "conflict", name,
			fmt.Sprintf("%s has %d elements, must have %d", name, length, *count)))
	}
	l.counted = append(l.counted, count)
	*count = uintptr(length)
}

// call makes the call. A callback's panic continues after it.
func (l *lowering) call(run func() int32) error {
	defer l.close()
	if l.err != nil {
		return l.err
	}
	err := try(run)
	if l.panicked != nil {
		panic(l.panicked)
	}
	if l.err != nil { // of the result of a callback
		return by(operation(), l.err)
	}
	return err
}

// canceling makes a call that ends when ctx does.
func (l *lowering) canceling(ctx context.Context, cancel func() int32, run func() int32) error {
	return canceling(ctx, cancel, func() error { return l.call(run) })
}

// filledUntil does what filled does; it ends when ctx does.
func filledUntil[T any](ctx context.Context, cancel func() int32, l *lowering, guess, rows int, call func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32) (result []T, err error) {
	err = canceling(ctx, cancel, func() (err error) {
		result, err = filled[T](l, guess, rows, call)
		return err
	})
	return result, err
}

// Functions that hear of a call while it runs, on its goroutine. Returning false cancels the call; a
// panic does, too, and continues after it. They must not end their goroutine (runtime.Goexit).
type (
	LogFunc      func(level LogLevel, message string)
	ProgressFunc func(fraction float32, stage string) bool
	PromptFunc   func(processed, total uint64) bool
	TextFunc     func(text string) bool
	EventFunc    func(event Event) bool
	TrainingFunc func(event TrainingEvent) bool

	// A LogitsFunc changes the logits of every token of the vocabulary in place, behind all tokens of
	// the context; false cancels. It keeps neither.
	LogitsFunc func(tokens []int32, logits []float32) bool

	// A BatchFunc brings the batch of a step, which the training takes over; nil if there are no more.
	BatchFunc func(step uint64) []*Array
)

type functions struct {
	log      LogFunc
	progress ProgressFunc
	prompt   PromptFunc
	logits   LogitsFunc
	text     TextFunc
	event    EventFunc
	training TrainingFunc
	batch    BatchFunc
}

// heard is a call's place among those that have callbacks.
type heard struct {
	number   uintptr
	panicked any
}

var (
	listeners sync.Map
	last      atomic.Uintptr
)

// id is the user data of each callback.
func (l *lowering) id() uintptr {
	if l.number == 0 {
		l.number = last.Add(1)
		listeners.Store(l.number, l)
	}
	return l.number
}

// refuseLogits refuses a function that the library would call after the call that it is given to.
func (l *lowering) refuseLogits() {
	if l.on.logits != nil {
		l.refuse(refused(StatusEUnsupported, "conflict", "LogitsFn",
			"LogitsFn goes with Generate, GenerateText, Chat and ChatEvents"))
	}
}

// hears is the user data of a parameter's callback, and 0 without one.
func (l *lowering) hears(is bool) uintptr {
	if !is {
		return 0
	}
	return l.id()
}

// callback is the function of C that calls a parameter's callback; 0 without one.
func callback(trampoline, user uintptr) uintptr {
	if user == 0 {
		return 0
	}
	return trampoline
}

func (l *lowering) close() {
	if l.number != 0 {
		listeners.Delete(l.number)
	}
}

// answer asks the host's function. A panic must not pass through C, whose call would never end.
// Without a listener, whose call has ended, it cancels.
func answer(id uintptr, ask func(on *functions) bool) (more bool) {
	found, _ := listeners.Load(id)
	l, isHeard := found.(*lowering)
	if !isHeard {
		return false
	}
	defer func() {
		if problem := recover(); problem != nil {
			l.panicked, more = problem, false
		}
	}()
	return ask(&l.on)
}

// trampolines are the callbacks of all calls, since purego never frees one.
var trampolines = struct {
	log, progress, prompt, logits, text, event, training, batch uintptr
}{
	log: purego.NewCallback(func(level int32, message unsafe.Pointer, user uintptr) uintptr {
		answer(user, func(on *functions) bool {
			on.log(LogLevel(level), textAt(message, -1))
			return true
		})
		return 0
	}),
	progress: purego.NewCallback(func(fraction float32, stage unsafe.Pointer, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.progress(fraction, textAt(stage, -1)) })
	}),
	prompt: purego.NewCallback(func(processed, total, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.prompt(uint64(processed), uint64(total)) })
	}),
	logits: purego.NewCallback(func(tokens *int32, count uintptr, logits *float32, vocabulary, user uintptr) bool {
		return answer(user, func(on *functions) bool {
			return on.logits(unsafe.Slice(tokens, int(count)), unsafe.Slice(logits, int(vocabulary)))
		})
	}),
	text: purego.NewCallback(func(text unsafe.Pointer, length, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.text(textAt(text, int(length))) })
	}),
	event: purego.NewCallback(func(event *cEvent, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.event(event.goForm()) })
	}),
	training: purego.NewCallback(func(event *cTrainingEvent, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.training(event.goForm()) })
	}),
	batch: purego.NewCallback(func(step uintptr, inputs *int64, count, user uintptr) bool {
		return answer(user, func(on *functions) bool {
			return give(user, on.batch(uint64(step)), unsafe.Slice(inputs, int(count)))
		})
	}),
}

func give(id uintptr, batch []*Array, inputs []int64) bool {
	if batch == nil {
		return false
	}
	if wrong := wrongIn(batch, len(inputs)); wrong != "" {
		found, _ := listeners.Load(id)
		found.(*lowering).refuse(refused(StatusEInval, "wrong_type", "NextBatch", wrong))
		return false
	}
	for i, array := range batch {
		inputs[i] = array.number.Swap(0)
	}
	return true
}

// wrongIn says why a batch cannot be taken over; "": all of it can.
func wrongIn(batch []*Array, count int) string {
	if len(batch) != count {
		return fmt.Sprintf("NextBatch gave %d arrays, must give %d, or nil for no more", len(batch), count)
	}
	for at, array := range batch {
		if array.handle() == 0 {
			return fmt.Sprintf("NextBatch gave an array that is nil or closed, at %d", at)
		}
		if slices.Contains(batch[:at], array) {
			return fmt.Sprintf("NextBatch gave an array twice, at %d", at)
		}
	}
	return ""
}

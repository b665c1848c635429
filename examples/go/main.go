// Stream what a model makes of a text, then again and stop half-way: go run . LIBRARY MODEL TEXT
//
// LIBRARY is what `python -m cowmlx library` prints, or that of `make install`. No C compiler is
// needed: purego opens the library at run time.
package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"log"
	"os"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

const (
	statusDone     = 1
	addSpecial     = 1
	finishCanceled = 5
)

type piece struct {
	structSize uintptr
	token      int32
	logprob    float32
	finish     int32
}

var (
	errorMessage  func() string
	errorDetails  func(json *byte, capacity uintptr, length *uintptr) int32
	runtimeStart  func(params *byte) int32
	runtimeStop   func() int32
	modelLoad     func(path string, params *byte, model *int32) int32
	modelTokenize func(model int32, text string, length uintptr, flags uint32,
		tokens *int32, capacity uintptr, count *uintptr) int32
	contextCreate func(model int32, params *byte, context *int32) int32
	contextBegin  func(context int32, tokens *int32, count uintptr, params *byte) int32
	contextNext   func(context int32, text *byte, capacity uintptr, length *uintptr, p *piece) int32
	contextCancel func(context int32) int32

	contextGenerate func(context int32, tokens *int32, count uintptr, params *byte, onText uintptr,
		to *listener, stats *byte) int32
)

func open(path string) {
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		log.Fatal(err)
	}
	for name, function := range map[string]any{
		"error_message": &errorMessage, "error_details": &errorDetails, "runtime_start": &runtimeStart, "runtime_stop": &runtimeStop,
		"model_load": &modelLoad, "model_tokenize": &modelTokenize,
		"context_create": &contextCreate, "context_begin": &contextBegin,
		"context_next": &contextNext, "context_cancel": &contextCancel,
		"context_generate": &contextGenerate,
	} {
		purego.RegisterLibFunc(function, library, "cow_mlx_"+name)
	}
}

// Failure says why a call failed: for people a message, for programs a reason and its details.
type Failure struct {
	Status  int32          `json:"-"`
	Message string         `json:"-"`
	Reason  string         `json:"reason"`
	Details map[string]any `json:"details"`
}

func (f *Failure) Error() string { return f.Message }

// failure is that of the call that this thread has just made.
func failure(status int32) *Failure {
	text := make([]byte, 4096)
	var length uintptr
	errorDetails(&text[0], uintptr(len(text)), &length)
	found := &Failure{Status: status, Message: errorMessage()}
	if err := json.Unmarshal(text[:length], found); err != nil {
		log.Fatal(err)
	}
	return found
}

// try makes a call. The message of an error belongs to a thread, which a goroutine may leave between
// two calls.
func try(call func() int32) (int32, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := call()
	if status < 0 {
		return status, failure(status)
	}
	return status, nil
}

func check(call func() int32) int32 {
	status, err := try(call)
	if err != nil {
		log.Fatal(err)
	}
	return status
}

// A listener hears the text of one call.
type listener struct {
	onText   func(string) bool
	panicked any
}

// heard is the callback of every call, since purego never frees one. A panic must not pass through
// C, whose call would never end: it cancels the call, and goes on behind it.
var heard = purego.NewCallback(func(text *byte, length uintptr, to *listener) (more bool) {
	defer func() {
		if to.panicked = recover(); to.panicked != nil {
			more = false
		}
	}()
	return to.onText(string(unsafe.Slice(text, length)))
})

// generate gives onText the text as it comes, on this thread; false cancels.
func generate(context int32, prompt []int32, onText func(string) bool) error {
	to := &listener{onText: onText}
	_, err := try(func() int32 {
		return contextGenerate(context, &prompt[0], uintptr(len(prompt)), nil, heard, to, nil)
	})
	if to.panicked != nil {
		panic(to.panicked)
	}
	return err
}

// pieces gives the text of each piece, and at its end tells why.
func pieces(context int32, prompt []int32, finish *int32) iter.Seq[string] {
	return func(yield func(string) bool) {
		text, length, p := make([]byte, 1024), uintptr(0), piece{structSize: unsafe.Sizeof(piece{})}
		next := func() int32 { return contextNext(context, &text[0], 1024, &length, &p) }
		check(func() int32 { return contextBegin(context, &prompt[0], uintptr(len(prompt)), nil) })
		for check(next) != statusDone {
			if !yield(string(text[:length])) {
				return
			}
		}
		*finish = p.finish
	}
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: stream LIBRARY MODEL TEXT")
	}
	open(os.Args[1])
	folder, text := os.Args[2], os.Args[3]
	var model, context, finish int32
	var count uintptr
	tokens := make([]int32, 2048)
	check(func() int32 { return runtimeStart(nil) })
	check(func() int32 { return modelLoad(folder, nil, &model) })
	check(func() int32 { return contextCreate(model, nil, &context) })
	check(func() int32 {
		return modelTokenize(model, text, uintptr(len(text)), addSpecial, &tokens[0], 2048, &count)
	})

	write := func(part string) bool { fmt.Print(part); return true }
	if err := generate(context, tokens[:count], write); err != nil {
		log.Fatal(err)
	}
	fmt.Println("\n[ended]")

	received, stopped := 0, make(chan bool)
	for part := range pieces(context, tokens[:count], &finish) {
		fmt.Print(part)
		if received += len(part); received >= 20 {
			go func() { // any thread may
				check(func() int32 { return contextCancel(context) })
				stopped <- true
			}()
			<-stopped
		}
	}
	if finish == finishCanceled {
		fmt.Println("\n[canceled]")
	}
	check(runtimeStop)
}

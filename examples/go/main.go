// Stream what a model makes of a text, then again and stop half-way: go run . LIBRARY MODEL TEXT
//
// LIBRARY is what `python -m cowmlx library` prints, or that of `make install`. No C compiler is
// needed: purego opens the library at run time.
package main

import (
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
	runtimeStart  func(params *byte) int32
	runtimeStop   func() int32
	modelLoad     func(path string, params *byte, model *int32) int32
	modelTokenize func(model int32, text string, length uintptr, flags uint32,
		tokens *int32, capacity uintptr, count *uintptr) int32
	contextCreate func(model int32, params *byte, context *int32) int32
	contextBegin  func(context int32, tokens *int32, count uintptr, params *byte) int32
	contextNext   func(context int32, text *byte, capacity uintptr, length *uintptr, p *piece) int32
	contextCancel func(context int32) int32
)

func open(path string) {
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		log.Fatal(err)
	}
	for name, function := range map[string]any{
		"error_message": &errorMessage, "runtime_start": &runtimeStart, "runtime_stop": &runtimeStop,
		"model_load": &modelLoad, "model_tokenize": &modelTokenize,
		"context_create": &contextCreate, "context_begin": &contextBegin,
		"context_next": &contextNext, "context_cancel": &contextCancel,
	} {
		purego.RegisterLibFunc(function, library, "cow_mlx_"+name)
	}
}

func check(status int32) int32 {
	if status < 0 {
		log.Fatal(errorMessage())
	}
	return status
}

// generate gives the text of each piece, and at its end tells why.
func generate(context int32, prompt []int32, finish *int32) iter.Seq[string] {
	return func(yield func(string) bool) {
		text, length, p := make([]byte, 1024), uintptr(0), piece{structSize: unsafe.Sizeof(piece{})}
		check(contextBegin(context, &prompt[0], uintptr(len(prompt)), nil))
		for check(contextNext(context, &text[0], 1024, &length, &p)) != statusDone {
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
	runtime.LockOSThread() // the message of an error belongs to a thread
	open(os.Args[1])
	folder, text := os.Args[2], os.Args[3]
	var model, context, finish int32
	var count uintptr
	tokens := make([]int32, 2048)
	check(runtimeStart(nil))
	check(modelLoad(folder, nil, &model))
	check(contextCreate(model, nil, &context))
	check(modelTokenize(model, text, uintptr(len(text)), addSpecial, &tokens[0], 2048, &count))

	for part := range generate(context, tokens[:count], &finish) {
		fmt.Print(part)
	}
	fmt.Println("\n[ended]")

	received, stopped := 0, make(chan bool)
	for part := range generate(context, tokens[:count], &finish) {
		fmt.Print(part)
		if received += len(part); received >= 20 {
			go func() { check(contextCancel(context)); stopped <- true }() // any thread may
			<-stopped
		}
	}
	if finish == finishCanceled {
		fmt.Println("\n[canceled]")
	}
	check(runtimeStop())
}

package cowmlx

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"
	"unsafe"
)

// An object of the library, which Close frees. One that is closed is refused by every call.
type object struct {
	number atomic.Int64
	free   func(handle int64) int32
}

func (o *object) handle() int32 { return int32(o.number.Load()) }

// Close frees it; a second time does nothing, nor after the runtime was stopped.
func (o *object) Close() error {
	handle := o.number.Swap(0)
	if handle == 0 {
		return nil
	}
	err := try(func() int32 { return o.free(handle) })
	if errors.Is(err, StatusEState) || errors.Is(err, StatusEHandle) {
		return nil
	}
	return err
}

// opened gives an object its handle, which the call writes.
func opened(o *object, free func(handle int32) int32, call func(out *int32) error) error {
	var handle int32
	if err := call(&handle); err != nil {
		return err
	}
	o.number.Store(int64(handle))
	o.free = func(handle int64) int32 { return free(int32(handle)) }
	return nil
}

// described reads a JSON object that a call tells.
func described(guess int, call func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32) (map[string]any, error) {
	text, err := fill[byte](guess, 1, call)
	if err != nil {
		return nil, err
	}
	var found map[string]any
	return found, json.Unmarshal(text, &found)
}

// canceling makes a call that ends when ctx does. A cancel that comes before the call has begun does
// nothing, so it is repeated until the call has ended.
func canceling(ctx context.Context, cancel func() int32, call func() error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ended := make(chan struct{})
	stop := whenEnded(ctx, func() {
		for {
			cancel()
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	func() {
		defer stop()
		defer close(ended) // also if a callback has panicked
		err = call()
	}()
	if errors.Is(err, StatusECanceled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// whenEnded calls a function once ctx has ended. Behind what it returns it is not called any more, and
// does not run: a cancel that came late would end what the object does next.
func whenEnded(ctx context.Context, call func()) (stop func()) {
	called := make(chan struct{})
	unless := context.AfterFunc(ctx, func() {
		defer close(called)
		call()
	})
	return func() {
		if !unless() {
			<-called
		}
	}
}

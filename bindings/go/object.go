package cowmlx

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// An object of the library, which Close frees. One that is closed is refused by every call.
type object struct {
	number atomic.Int64
	free   func(handle int64) int32
}

func (o *object) close() error {
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

// Close frees it; a second time does nothing, nor after the runtime was stopped.
func (a *Array) Close() error { return release(a) }

// An owner has an object, and may be nil.
type owner[T any] interface {
	*T
	of() *object
}

func (o *object) of() *object { return o }

func handle[T any, P owner[T]](of P) int32 {
	if of == nil {
		return 0
	}
	return int32(of.of().number.Load())
}

// open gives an object its handle.
func (o *object) open(handle int32, free *func(handle int32) int32) {
	o.number.Store(int64(handle))
	o.free = func(handle int64) int32 { return (*free)(int32(handle)) }
}

func release[T any, P owner[T]](of P) error {
	if of == nil {
		return nil
	}
	return of.of().close()
}

// canceled makes an error of a cancel, which leaves the thread's message alone.
func canceled(handle int32, kind string, cancel func() int32) error {
	if handle == 0 || cancel() < 0 {
		return refused(StatusEHandle, "unknown_handle", "", "the "+kind+" is nil or closed")
	}
	return nil
}

// canceling makes a call that ends when ctx does. A cancel that comes before the call has begun does
// nothing, so it is repeated until the call has ended.
func canceling(ctx context.Context, cancel func() int32, call func() error) (err error) {
	if err := ended(ctx); err != nil {
		return err
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

// whenEnded calls a function once ctx has ended. After stop has returned the function neither runs nor
// is called: a late cancel would end the next call on the object.
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

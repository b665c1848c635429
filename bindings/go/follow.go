package cowmlx

import (
	"context"
	"errors"
	"math"
)

// A follower takes what a call brings about that has returned at once.
type follower[T any] struct {
	context   *Context
	operation string    // where a loop in a host's function has it inlined
	lowered   *lowering // hears of progress
	take      func() (item T, more bool, err error)
	wake      *wake
	ended     bool
}

// follow yields pieces or events until the end, or an error. A caller that stops early cancels it.
func (f *follower[T]) follow(ctx context.Context, begin func() int32, yield func(T, error) bool) {
	var none T
	err := f.begin(ctx, begin)
	if err != nil {
		yield(none, by(f.operation, err))
		return
	}
	defer f.lowered.close()
	stop := whenEnded(ctx, func() { f.context.cancel() })
	defer stop()
	defer f.settle()
	if err := f.watch(); err != nil {
		yield(none, by(f.operation, err))
		return
	}
	for !f.ended {
		item, err := f.next(f.lowered)
		if ctx.Err() != nil && (f.ended || errors.Is(err, StatusECanceled)) {
			err = context.Cause(ctx)
		}
		if !yield(item, by(f.operation, err)) || err != nil {
			return
		}
	}
}

func (f *follower[T]) begin(ctx context.Context, begin func() int32) error {
	if err := ended(ctx); err != nil {
		return err
	}
	if f.lowered.err != nil {
		return f.lowered.err
	}
	err := try(begin)
	if err == nil {
		f.context.leave()
	} else {
		f.lowered.close()
	}
	return err
}

func (f *follower[T]) watch() error {
	fd, err := f.context.WakeFD()
	if err != nil {
		return err
	}
	if f.wake, err = newWake(fd); err == nil {
		f.context.following.Store(f.wake)
	}
	return err
}

// next waits for the next one. hears is nil if nobody shall hear of progress any more.
func (f *follower[T]) next(hears *lowering) (item T, err error) {
	for {
		if f.context.following.Load() != f.wake {
			return item, f.left()
		}
		there, err := f.context.Poll(0)
		if hears != nil && hears.panicked != nil {
			panic(hears.panicked)
		}
		if err != nil && f.context.handle() == 0 {
			return item, f.left()
		}
		if err != nil {
			return item, err
		}
		if there {
			break
		}
		if f.wake != nil {
			f.wake.wait()
		} else if _, err := f.context.Poll(math.MaxUint32); err != nil {
			return item, err
		}
	}
	item, more, err := f.take()
	f.ended = err == nil && !more
	return item, err
}

// settle cancels what has not ended, and waits for its end: the context is busy until then.
func (f *follower[T]) settle() {
	if !f.ended && f.context.following.Load() == f.wake {
		f.context.cancel()
		for !f.ended {
			if _, err := f.next(nil); err != nil {
				break // it was sent, or is no longer needed
			}
		}
	}
	if f.wake != nil {
		f.context.following.CompareAndSwap(f.wake, nil)
		f.wake.close()
	}
}

func (f *follower[T]) left() error {
	if f.context.handle() == 0 {
		return refused(StatusECanceled, "freed", "", "the context was freed")
	}
	return refused(StatusEState, "context_busy", "", "another call has begun on this context")
}

// leave tells who follows an earlier call on the context that another has begun.
func (c *Context) leave() {
	if c == nil {
		return
	}
	if before := c.following.Swap(nil); before != nil {
		before.raise()
	}
}

// Close frees it; a second time does nothing, nor after the runtime was stopped. Who follows a
// generation on it ends with StatusECanceled.
func (c *Context) Close() error {
	if c == nil {
		return nil
	}
	err := c.object.close()
	c.leave()
	return err
}

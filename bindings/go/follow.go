package cowmlx

import (
	"context"
	"errors"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// A follower takes the results of a call that has returned at once.
type follower[T any] struct {
	context   *Context
	operation string    // where a loop in a host's function has it inlined
	lowered   *lowering // has the callback for progress
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

// next waits for the next result; without hears, a panic of the callback for progress is ignored.
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

// settle cancels a call that has not ended, and waits for its end: the context is busy until then.
func (f *follower[T]) settle() {
	if !f.ended && f.context.following.Load() == f.wake && f.runs() {
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

// runs is whether the context is still the follower's: another call may run on it.
func (f *follower[T]) runs() bool {
	_, err := f.context.Poll(0)
	return err == nil
}

func (f *follower[T]) left() error {
	if f.context.handle() == 0 {
		return refused(StatusECanceled, "freed", "", "the context was freed")
	}
	return refused(StatusEState, "context_busy", "", "another call has begun on this context")
}

// leave wakes the follower of an earlier call on the context: another has begun.
func (c *Context) leave() {
	if c == nil {
		return
	}
	if before := c.following.Swap(nil); before != nil {
		before.raise()
	}
}

// begun ends the follower of an earlier call if another has begun on the context, by its status.
func (c *Context) begun(status int32) int32 {
	if status >= 0 {
		c.leave()
	}
	return status
}

// Close frees it; a second time does nothing, nor after the runtime was stopped. A generation
// that is followed ends with StatusECanceled.
func (c *Context) Close() error {
	if c == nil {
		return nil
	}
	err := c.object.close()
	c.leave()
	return err
}

// A Loading is a model that is being loaded.
type Loading struct {
	done     chan struct{}
	model    *Model
	err      error
	panicked any
}

// LoadModelAsync loads a model's folder, and returns at once; no thread waits for it. Progress runs
// on a separate goroutine. When ctx ends, the load does.
func LoadModelAsync(ctx context.Context, path string, params *ModelParams) *Loading {
	loading := &Loading{done: make(chan struct{})}
	l := &lowering{}
	name, given := l.text("path", path), params.lower(l)
	if loading.err = ended(ctx); loading.err == nil {
		loading.err = l.err
	}
	if loading.err == nil {
		var handle int32
		loading.err = try(func() int32 { return api.modelLoadAsync(name, given, &handle) })
		loading.model = newModel(handle)
	}
	if loading.err != nil {
		l.close()
		close(loading.done)
		return loading
	}
	go loading.follow(ctx, l)
	return loading
}

// Done is closed when the model is there, or cannot be.
func (l *Loading) Done() <-chan struct{} { return l.done }

// Model is the model; waits for it if necessary. A panic of Progress continues here.
func (l *Loading) Model() (*Model, error) {
	<-l.done
	if l.panicked != nil {
		panic(l.panicked)
	}
	if l.err != nil {
		return nil, l.err
	}
	return l.model, nil
}

func (l *Loading) follow(ctx context.Context, given *lowering) {
	defer close(l.done)
	defer given.close()
	l.err = l.await(ctx, given)
	if l.panicked = given.panicked; l.err != nil || l.panicked != nil {
		l.model.Close()
	}
}

func (l *Loading) await(ctx context.Context, given *lowering) error {
	model := l.model.handle()
	var fd int32
	if err := try(func() int32 { return api.modelWakeFd(model, &fd) }); err != nil {
		return err
	}
	wake, err := newWake(fd)
	if err != nil {
		return err
	}
	defer wake.close()
	stop := context.AfterFunc(ctx, wake.raise)
	defer stop()
	for {
		there, err := polled(func() int32 { return api.modelPoll(model, 0) })
		switch {
		case there || err != nil || given.panicked != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		wake.wait()
	}
}

// A wake waits for a descriptor of the library. Goroutines that wait are parked: they have no thread.
type wake struct {
	file   *os.File
	raised atomic.Bool
}

// newWake reads a copy of the descriptor, since the library closes its own. Its owner must still
// be open after this, or the number may be another's.
func newWake(fd int32) (*wake, error) {
	syscall.ForkLock.RLock()
	own, err := syscall.Dup(int(fd))
	if err == nil {
		syscall.CloseOnExec(own)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, refused(StatusEIo, "no_descriptors", "", "no descriptor can be opened: "+err.Error())
	}
	return &wake{file: os.NewFile(uintptr(own), "cowmlx")}, nil
}

// wait ends when the library or raise reports a result, or the library has closed the descriptor. It
// waits by reading; the library puts back what is still needed.
func (w *wake) wait() {
	var woken [1]byte
	if !w.raised.Load() {
		w.file.Read(woken[:])
	}
}

// raise wakes all waiters, now and later.
func (w *wake) raise() {
	w.raised.Store(true)
	w.file.SetReadDeadline(time.Unix(1, 0))
}

func (w *wake) close() {
	w.file.Close()
}

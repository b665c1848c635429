package cowmlx

import (
	"context"
)

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
	loading := &Loading{done: make(chan struct{}), model: &Model{}}
	l := &lowering{}
	name, given := l.text("path", path), params.lower(l)
	if loading.err = ended(ctx); loading.err == nil {
		loading.err = l.err
	}
	if loading.err == nil {
		loading.err = opened(&loading.model.object, api.modelFree, func(out *int32) error {
			return try(func() int32 { return api.modelLoadAsync(name, given, out) })
		})
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

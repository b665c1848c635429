package cowmlx

import (
	"context"
	"errors"
	"iter"
	"unsafe"
)

// Begin processes a prompt; Next generates.
func (c *Context) Begin(ctx context.Context, tokens []int32, params *GenerationParams) error {
	l := &lowering{}
	given := params.lower(l)
	return canceling(ctx, c.cancel, func() error {
		return l.call(func() int32 {
			return api.contextBegin(c.handle(), pointer(tokens), uintptr(len(tokens)), given)
		})
	})
}

// Next is the next piece; at the end more is false, and the piece has no text and tells why.
func (c *Context) Next(ctx context.Context) (piece Piece, more bool, err error) {
	told := &cPiece{structSize: unsafe.Sizeof(cPiece{})}
	var text []byte
	err = canceling(ctx, c.cancel, func() (err error) {
		text, err = fill[byte](256, 1, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
			status := api.contextNext(c.handle(), buffer, capacity, length, unsafe.Pointer(told))
			more = Status(status) == StatusOk
			return status
		})
		return err
	})
	piece = told.told()
	piece.Text = string(text)
	return piece, more && err == nil, err
}

// Generate processes a prompt, and gives the pieces as they are asked for. The last one has no text,
// and its Finish tells why the generation has ended; an error is the last, too.
func (c *Context) Generate(ctx context.Context, tokens []int32, params *GenerationParams) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		if err := c.Begin(ctx, tokens, params); err != nil {
			yield(Piece{}, err)
			return
		}
		for {
			piece, more, err := c.Next(ctx)
			if err == nil && !more && ctx.Err() != nil && piece.Finish == FinishCanceled {
				err = context.Cause(ctx)
			}
			if !yield(piece, err) || !more {
				return
			}
		}
	}
}

// GenerateText processes a prompt and generates to the end; onText may be nil.
func (c *Context) GenerateText(ctx context.Context, tokens []int32, params *GenerationParams, onText TextFunc) (Stats, error) {
	l, stats := &lowering{}, &cStats{structSize: unsafe.Sizeof(cStats{})}
	given := params.lower(l)
	var callback, user uintptr
	if onText != nil {
		l.on.text, callback, user = onText, trampolines.text, l.id()
	}
	err := canceling(ctx, c.cancel, func() error {
		return l.call(func() int32 {
			return api.contextGenerate(c.handle(), pointer(tokens), uintptr(len(tokens)), given, callback,
				user, unsafe.Pointer(stats))
		})
	})
	return stats.told(), err
}

var errLeft = errors.New("the loop was left")

// Chat answers a conversation: its events. Messages and options are as for Model.ChatPrompt. A loop that
// is left early cancels the answer.
func (c *Context) Chat(ctx context.Context, messages, options any, params *GenerationParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, leave := context.WithCancelCause(ctx)
		events, ended := make(chan Event), make(chan error, 1)
		go func() {
			_, err := c.ChatEvents(ctx, messages, options, params, func(event Event) bool {
				select {
				case events <- event:
					return true
				case <-ctx.Done():
					return false
				}
			})
			ended <- err
			close(events)
		}()
		defer func() { // the call has ended when this function has
			leave(errLeft)
			for range events {
			}
		}()
		for event := range events {
			if !yield(event, nil) {
				return
			}
		}
		if err := <-ended; err != nil {
			yield(Event{}, err)
		}
	}
}

// ChatEvents does the same in one call, which tells onEvent on this goroutine; it may be nil.
func (c *Context) ChatEvents(ctx context.Context, messages, options any, params *GenerationParams, onEvent EventFunc) (Stats, error) {
	l, stats := &lowering{}, &cStats{structSize: unsafe.Sizeof(cStats{})}
	text, chat := conversation(l, messages, options)
	given := params.lower(l)
	var callback, user uintptr
	if onEvent != nil {
		l.on.event, callback, user = onEvent, trampolines.event, l.id()
	}
	err := canceling(ctx, c.cancel, func() error {
		return l.call(func() int32 {
			return api.contextChat(c.handle(), pointer(text), uintptr(len(text)), given, chat, callback,
				user, unsafe.Pointer(stats))
		})
	})
	return stats.told(), err
}

// Poll waits until Next would not block, so many milliseconds at most; false: not yet.
func (c *Context) Poll(milliseconds uint32) (bool, error) {
	err := try(func() int32 { return api.contextPoll(c.handle(), milliseconds) })
	if errors.Is(err, StatusETimedout) {
		return false, nil
	}
	return err == nil, err
}

// WakeFD is a file descriptor that is readable while Next would not block.
func (c *Context) WakeFD() (fd int32, err error) {
	err = try(func() int32 { return api.contextWakeFd(c.handle(), &fd) })
	return fd, err
}

package cowmlx

import (
	"context"
	"iter"
	"unsafe"
)

// Begin processes a prompt; Next generates.
func (c *Context) Begin(ctx context.Context, tokens []int32, params *GenerationParams) error {
	l := &lowering{}
	given := params.lower(l)
	c.leave()
	return canceling(ctx, c.cancel, func() error {
		return l.call(func() int32 {
			return api.contextBegin(c.handle(), pointer(tokens), uintptr(len(tokens)), given)
		})
	})
}

// Next is the next piece; at the end more is false, and the piece has no text but the reason.
func (c *Context) Next(ctx context.Context) (piece Piece, more bool, err error) {
	err = canceling(ctx, c.cancel, func() (err error) {
		piece, more, err = c.take()
		return err
	})
	return piece, more, err
}

func (c *Context) take() (piece Piece, more bool, err error) {
	told := &cPiece{structSize: unsafe.Sizeof(cPiece{})}
	text, err := fill[byte](256, 1, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		status := api.contextNext(c.handle(), buffer, capacity, length, unsafe.Pointer(told))
		more = Status(status) == StatusOk
		return status
	})
	piece = told.told()
	piece.Text = string(text)
	return piece, more && err == nil, err
}

// Generate processes a prompt, and gives the pieces. The last one has no text, and its Finish is why
// the generation has ended; an error is the last, too. A goroutine that waits for a piece has no thread,
// whatever the number of contexts. A loop that is left early cancels the generation.
func (c *Context) Generate(ctx context.Context, tokens []int32, params *GenerationParams) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		l := &lowering{}
		given := params.lower(l)
		f := follower[Piece]{context: c, operation: "Context.Generate", lowered: l, take: c.take}
		f.follow(ctx, func() int32 {
			return api.contextBeginAsync(c.handle(), pointer(tokens), uintptr(len(tokens)), given)
		}, yield)
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
	c.leave()
	err := canceling(ctx, c.cancel, func() error {
		return l.call(func() int32 {
			return api.contextGenerate(c.handle(), pointer(tokens), uintptr(len(tokens)), given, callback,
				user, unsafe.Pointer(stats))
		})
	})
	return stats.told(), err
}

// Chat answers a conversation: its events. Messages and options are as for Model.ChatPrompt. A goroutine
// that waits for an event has no thread. A loop that is left early cancels the answer.
func (c *Context) Chat(ctx context.Context, messages, options any, params *GenerationParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		l := &lowering{}
		text, chat := conversation(l, messages, options)
		given := params.lower(l)
		f := follower[Event]{context: c, operation: "Context.Chat", lowered: l, take: c.takeEvent}
		f.follow(ctx, func() int32 {
			return api.contextChatAsync(c.handle(), pointer(text), uintptr(len(text)), given, chat)
		}, yield)
	}
}

func (c *Context) takeEvent() (event Event, more bool, err error) {
	told := &cEvent{structSize: unsafe.Sizeof(cEvent{})}
	err = try(func() int32 {
		status := api.contextNextEvent(c.handle(), unsafe.Pointer(told))
		if status >= 0 {
			event, more = told.told(), Status(status) == StatusOk
		}
		return status
	})
	return event, more, err
}

// ChatEvents does the same in one call, which calls onEvent on this goroutine; it may be nil.
func (c *Context) ChatEvents(ctx context.Context, messages, options any, params *GenerationParams, onEvent EventFunc) (Stats, error) {
	l, stats := &lowering{}, &cStats{structSize: unsafe.Sizeof(cStats{})}
	text, chat := conversation(l, messages, options)
	given := params.lower(l)
	var callback, user uintptr
	if onEvent != nil {
		l.on.event, callback, user = onEvent, trampolines.event, l.id()
	}
	c.leave()
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
	return polled(func() int32 { return api.contextPoll(c.handle(), milliseconds) })
}

func polled(call func() int32) (there bool, err error) {
	err = try(func() int32 {
		status := call()
		if Status(status) == StatusETimedout {
			return 0
		}
		there = status >= 0
		return status
	})
	return there, err
}

// WakeFD is a file descriptor that is readable while Next would not block.
func (c *Context) WakeFD() (fd int32, err error) {
	err = try(func() int32 { return api.contextWakeFd(c.handle(), &fd) })
	return fd, err
}

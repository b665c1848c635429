package cowmlx

import (
	"context"
	"iter"
	"sync/atomic"
	"unsafe"
)

// A Context is one sequence of tokens and its cache. One call at a time runs on it.
type Context struct {
	object
	following atomic.Pointer[wake] // of the follower of the last call
}

// A Checkpoint has the tokens and the cache that a context held at one moment.
type Checkpoint struct{ object }

// A Candidate is a token and its log probability.
type Candidate struct {
	Token   int32
	Logprob float32
}

// Info describes the context: cow_mlx_context_info().
func (c *Context) Info() (map[string]any, error) {
	return described(4096, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.contextInfo(c.handle(), buffer, capacity, length)
	})
}

// Cancel ends the call that runs on the context, which stays usable; for any goroutine.
func (c *Context) Cancel() error { return canceled(c.handle(), "context", c.cancel) }

func (c *Context) cancel() int32 { return api.contextCancel(c.handle()) }

// Fork opens a copy of the context, with its tokens and cache.
func (c *Context) Fork() (*Context, error) {
	fork := &Context{}
	return fork, opened(&fork.object, &api.contextFree, func(out *int32) error {
		return try(func() int32 { return api.contextFork(c.handle(), out) })
	})
}

// Reset forgets every token.
func (c *Context) Reset() error { return try(func() int32 { return api.contextReset(c.handle()) }) }

// Tokens are those that the cache holds.
func (c *Context) Tokens() ([]int32, error) {
	return fill[int32](1024, 1, func(tokens unsafe.Pointer, capacity uintptr, count *uintptr) int32 {
		return api.contextTokens(c.handle(), tokens, capacity, count)
	})
}

// TrimEnd drops the last tokens and returns how many.
func (c *Context) TrimEnd(ctx context.Context, count uint64) (uint64, error) {
	return c.trim(ctx, count, &api.contextTrimEnd)
}

// TrimFront drops the first tokens and returns how many.
func (c *Context) TrimFront(ctx context.Context, count uint64) (uint64, error) {
	return c.trim(ctx, count, &api.contextTrimFront)
}

func (c *Context) trim(ctx context.Context, count uint64, trim *func(int32, uintptr, *uintptr) int32) (uint64, error) {
	var trimmed uintptr
	err := c.canceling(ctx, func() int32 { return (*trim)(c.handle(), uintptr(count), &trimmed) })
	return uint64(trimmed), err
}

// Checkpoint keeps the context's tokens and cache, to come back to them.
func (c *Context) Checkpoint() (*Checkpoint, error) {
	held := &Checkpoint{}
	return held, opened(&held.object, &api.checkpointFree, func(out *int32) error {
		return try(func() int32 { return api.contextCheckpoint(c.handle(), out) })
	})
}

// Rewind restores the tokens and the cache of a checkpoint.
func (c *Context) Rewind(to *Checkpoint) error {
	return try(func() int32 { return api.contextRewind(c.handle(), to.handle()) })
}

// Save writes the context's tokens and cache to a file.
func (c *Context) Save(ctx context.Context, path string) error {
	return c.withFile(ctx, path, &api.contextSave)
}

// Load loads the tokens and the cache that a context has saved.
func (c *Context) Load(ctx context.Context, path string) error {
	return c.withFile(ctx, path, &api.contextLoad)
}

func (c *Context) withFile(ctx context.Context, path string, call *func(int32, unsafe.Pointer) int32) error {
	l := &lowering{}
	name := l.text("path", path)
	return canceling(ctx, c.cancel, func() error {
		return l.call(func() int32 { return (*call)(c.handle(), name) })
	})
}

// SetAdapter uses an adapter from now on; nil: none.
func (c *Context) SetAdapter(adapter *Adapter) error {
	var handle int32
	if adapter != nil {
		if handle = adapter.handle(); handle == 0 {
			return refused(StatusEHandle, "unknown_handle", "adapter", "the adapter is closed; nil stands for none")
		}
	}
	return try(func() int32 { return api.contextSetAdapter(c.handle(), handle) })
}

// Logprobs are the most probable tokens where the last piece was chosen.
func (c *Context) Logprobs() ([]Candidate, error) {
	var values []float32
	tokens, err := fill[int32](64, 1, func(tokens unsafe.Pointer, capacity uintptr, count *uintptr) int32 {
		values = make([]float32, capacity)
		return api.contextLogprobs(c.handle(), tokens, pointer(values), capacity, count)
	})
	found := make([]Candidate, len(tokens))
	for i, token := range tokens {
		found[i] = Candidate{token, values[i]}
	}
	return found, err
}

// Logits are the model's after the last token.
func (c *Context) Logits() ([]float32, error) {
	return fill[float32](1<<18, 1, func(logits unsafe.Pointer, capacity uintptr, count *uintptr) int32 {
		return api.contextLogits(c.handle(), logits, capacity, count)
	})
}

// Stats are sizes and times of the last generation, so far.
func (c *Context) Stats() (Stats, error) {
	stats := &cStats{structSize: unsafe.Sizeof(cStats{})}
	err := try(func() int32 { return api.contextStats(c.handle(), unsafe.Pointer(stats)) })
	return stats.told(), err
}

func (c *Context) canceling(ctx context.Context, call func() int32) error {
	return canceling(ctx, c.cancel, func() error { return try(call) })
}

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

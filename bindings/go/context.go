package cowmlx

import (
	"context"
	"sync/atomic"
	"unsafe"
)

// A Context is one sequence of tokens and its cache. One call at a time runs on it.
type Context struct {
	object
	following atomic.Pointer[wake] // of who takes what comes
}

// A Checkpoint is what a context held at one moment.
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

// Cancel ends what the context is doing; for any goroutine. It stays usable.
func (c *Context) Cancel() error { return canceled(c.handle(), "context", c.cancel) }

func (c *Context) cancel() int32 { return api.contextCancel(c.handle()) }

// Fork opens a context that holds what this one holds.
func (c *Context) Fork() (*Context, error) {
	fork := &Context{}
	return fork, opened(&fork.object, api.contextFree, func(out *int32) error {
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
	return c.trim(ctx, count, api.contextTrimEnd)
}

// TrimFront drops the first tokens and returns how many.
func (c *Context) TrimFront(ctx context.Context, count uint64) (uint64, error) {
	return c.trim(ctx, count, api.contextTrimFront)
}

func (c *Context) trim(ctx context.Context, count uint64, trim func(int32, uintptr, *uintptr) int32) (uint64, error) {
	var trimmed uintptr
	err := c.canceling(ctx, func() int32 { return trim(c.handle(), uintptr(count), &trimmed) })
	return uint64(trimmed), err
}

// Checkpoint keeps what the context holds, to come back to it.
func (c *Context) Checkpoint() (*Checkpoint, error) {
	held := &Checkpoint{}
	return held, opened(&held.object, api.checkpointFree, func(out *int32) error {
		return try(func() int32 { return api.contextCheckpoint(c.handle(), out) })
	})
}

// Rewind makes the context hold what it held at a checkpoint.
func (c *Context) Rewind(to *Checkpoint) error {
	return try(func() int32 { return api.contextRewind(c.handle(), to.handle()) })
}

// Save writes what the context holds to a file.
func (c *Context) Save(ctx context.Context, path string) error {
	return c.withFile(ctx, path, api.contextSave)
}

// Load makes the context hold what one has saved.
func (c *Context) Load(ctx context.Context, path string) error {
	return c.withFile(ctx, path, api.contextLoad)
}

func (c *Context) withFile(ctx context.Context, path string, call func(int32, unsafe.Pointer) int32) error {
	l := &lowering{}
	name := l.text("path", path)
	return canceling(ctx, c.cancel, func() error {
		return l.call(func() int32 { return call(c.handle(), name) })
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

// Logits are the model's behind the last token.
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

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

// PromptLogprobs are the log probabilities of tokens, each given those before it, behind those that
// the context holds: a row of the token itself and of the top most probable ones for each. Behind an
// empty context the first token has none: NaN.
func (c *Context) PromptLogprobs(ctx context.Context, tokens []int32, top int32) ([][]Candidate, error) {
	var ids []int32
	var values []float32
	err := canceling(ctx, c.cancel, func() (err error) {
		guess := len(tokens) * (1 + max(int(top), 0))
		ids, err = fill[int32](guess, 1, func(ids unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
			values = make([]float32, capacity)
			return api.contextPromptLogprobs(c.handle(), pointer(tokens), uintptr(len(tokens)), top,
				ids, pointer(values), capacity, length)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := make([][]Candidate, len(tokens))
	for i, id := range ids {
		row := i / (len(ids) / len(rows))
		rows[row] = append(rows[row], Candidate{id, values[i]})
	}
	return rows, nil
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
	raw := &cPiece{structSize: unsafe.Sizeof(cPiece{})}
	text, err := fill[byte](256, 1, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		status := api.contextNext(c.handle(), buffer, capacity, length, unsafe.Pointer(raw))
		more = Status(status) == StatusOk
		return status
	})
	piece = raw.goForm()
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

// Chat answers a conversation: its events. Messages and options are as for Model.ChatPrompt. A goroutine
// that waits for an event has no thread. A loop that is left early cancels the answer.
func (c *Context) Chat(ctx context.Context, messages, options any, params *GenerationParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		l := &lowering{}
		text, chat := l.encoded("messages", messages), l.json("options", options)
		given := params.lower(l)
		f := follower[Event]{context: c, operation: "Context.Chat", lowered: l, take: c.takeEvent}
		f.follow(ctx, func() int32 {
			return api.contextChatAsync(c.handle(), pointer(text), uintptr(len(text)), given, chat)
		}, yield)
	}
}

func (c *Context) takeEvent() (event Event, more bool, err error) {
	raw := &cEvent{structSize: unsafe.Sizeof(cEvent{})}
	err = try(func() int32 {
		status := api.contextNextEvent(c.handle(), unsafe.Pointer(raw))
		if status >= 0 {
			event, more = raw.goForm(), Status(status) == StatusOk
		}
		return status
	})
	return event, more, err
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

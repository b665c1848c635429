package cowmlx

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A Program is a computation on arrays, checked once and run many times, by any number of goroutines.
type Program struct {
	object
	results atomic.Int64 // and 1; 0: not known yet
	running runs
}

// runs counts calls of Run. C cancels all runs of a program at once, so one is cancelled while it is alone.
type runs struct {
	lock  sync.Mutex
	count int
}

func (r *runs) add(change int) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.count += change
}

func (r *runs) ifAlone(cancel func() int32) int32 {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.count != 1 {
		return 0
	}
	return cancel()
}

// NewProgram makes a program of its JSON, as a text or as what encoding/json makes it of:
// cow_mlx_program_create().
func NewProgram(source any) (*Program, error) {
	text, err := jsonOf(source)
	if err != nil {
		return nil, err
	}
	l, handle := &lowering{}, int32(0)
	err = l.call(func() int32 { return api.programCreate(pointer(text), uintptr(len(text)), nil, &handle) })
	if err != nil {
		return nil, err
	}
	return newProgram(handle), nil
}

// LoadProgram makes the program of a file: cow_mlx_program_load(); params may be nil.
func LoadProgram(path string, params *ProgramParams) (*Program, error) {
	l, handle := &lowering{}, int32(0)
	file, given := l.text("path", path), params.lower(l)
	err := l.call(func() int32 { return api.programLoad(file, given, &handle) })
	if err != nil {
		return nil, err
	}
	return newProgram(handle), nil
}

func jsonOf(source any) ([]byte, error) {
	if text, ok := source.(string); ok {
		return []byte(text), nil
	}
	text, err := json.Marshal(source)
	if err != nil {
		return nil, refused(StatusEInval, "wrong_type", "source", "source has no JSON: "+err.Error())
	}
	return text, nil
}

// Info describes the program: cow_mlx_program_info(); dimensions may be nil.
func (p *Program) Info(dimensions map[string]int64) (map[string]any, error) {
	l := &lowering{}
	var given unsafe.Pointer
	if dimensions != nil {
		given = l.json("dimensions", dimensions)
	}
	text, err := filled[byte](l, 1<<16, 1, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.programInfo(p.handle(), given, buffer, capacity, length)
	})
	return described(text, err)
}

// Derive makes another program of this one: cow_mlx_program_derive().
func (p *Program) Derive(spec any) (*Program, error) {
	text, err := jsonOf(spec)
	if err != nil {
		return nil, err
	}
	var handle int32
	err = try(func() int32 { return api.programDerive(p.handle(), pointer(text), uintptr(len(text)), &handle) })
	if err != nil {
		return nil, err
	}
	return newProgram(handle), nil
}

// Gradient makes the program of the gradients of an output; value: with the output itself in front.
func (p *Program) Gradient(of string, value bool, withRespectTo ...string) (*Program, error) {
	return p.Derive(map[string]any{"gradient": map[string]any{
		"of": of, "with_respect_to": withRespectTo, "value": value}})
}

// Vectorize makes the program for many rows at a time: axes of inputs by their names.
func (p *Program) Vectorize(axes map[string]int) (*Program, error) {
	return p.Derive(map[string]any{"vectorize": axes})
}

// Bind makes the program with inputs that are given once and for all.
func (p *Program) Bind(arrays map[string]*Array) (*Program, error) {
	handles := make(map[string]int64, len(arrays))
	for name, array := range arrays {
		if handles[name] = array.handle(); handles[name] == 0 {
			return nil, refused(StatusEHandle, "unknown_handle", "arrays",
				fmt.Sprintf("the array %q is nil or closed", name))
		}
	}
	return p.Derive(map[string]any{"bind": handles})
}

// Run runs the program on its inputs and parameters, in their order. Leave slices alone until it ends.
// With params.Submit it returns at once, and Array.Wait waits for the end.
//
// The end of ctx cancels the run if no other call of Run runs the program, and submitted runs with it.
// While others run, it is not cancelled: Run waits for its end, then returns the error of ctx.
func (p *Program) Run(ctx context.Context, params *RunParams, inputs ...Value) ([]*Array, error) {
	count, err := p.outputs()
	if err != nil {
		return nil, err
	}
	l, results := &lowering{}, make([]cValue, count)
	given, options := values(l, "inputs", inputs), params.lower(l)
	p.running.add(1) // until ctx can cancel it no more
	defer p.running.add(-1)
	cancel := func() int32 { return p.running.ifAlone(p.cancel) }
	err = l.canceling(ctx, cancel, func() int32 {
		return api.programRun(p.handle(), given, uintptr(len(inputs)), pointer(results), uintptr(count), options)
	})
	if err != nil {
		return nil, err
	}
	found := make([]*Array, count)
	for i, result := range results {
		found[i] = newArray(result.array)
	}
	if err := ended(ctx); err != nil {
		for _, array := range found {
			array.Close()
		}
		return nil, err
	}
	return found, nil
}

func (p *Program) outputs() (int, error) {
	if p.handle() == 0 {
		return 0, refused(StatusEHandle, "unknown_handle", "", "the program is nil or closed")
	}
	if known := p.results.Load(); known > 0 {
		return int(known - 1), nil
	}
	info, err := p.Info(nil)
	if err != nil {
		return 0, err
	}
	count := len(info["outputs"].([]any))
	p.results.Store(int64(count + 1))
	return count, nil
}

// A Training is one of a program or of a language model. One call at a time runs on it.
type Training struct{ object }

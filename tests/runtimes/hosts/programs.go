// Says as JSON how runs of a program end: programs LIBRARY
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"runtime"

	"cowmlx.internal/cowmlx"
)

// Adds 1 until the end is reached.
const source = `{
	"inputs": [{"name": "x", "dtype": "float32", "shape": [1]}, {"name": "end", "dtype": "float32", "shape": [1]}],
	"functions": [
		{"name": "below",
		 "inputs": [{"name": "x", "dtype": "float32", "shape": [1]}, {"name": "end", "dtype": "float32", "shape": [1]}],
		 "nodes": [{"name": "less", "op": "less", "inputs": ["x", "end"]}, {"name": "all", "op": "all", "inputs": ["less"]}],
		 "outputs": ["all"]},
		{"name": "step",
		 "inputs": [{"name": "x", "dtype": "float32", "shape": [1]}, {"name": "end", "dtype": "float32", "shape": [1]}],
		 "constants": [{"name": "one", "dtype": "float32", "value": 1}],
		 "nodes": [{"name": "next", "op": "add", "inputs": ["x", "one"]},
		           {"name": "same", "op": "contiguous", "inputs": ["end"]}],
		 "outputs": ["next", "same"]}],
	"nodes": [{"outputs": ["y", "z"], "op": "while", "inputs": ["x", "end"],
	           "attributes": {"condition": "below", "body": "step", "max_iterations": 2147483647}}],
	"outputs": ["y"]}`

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func arrays() float64 {
	return must(cowmlx.RuntimeInfo())["handles"].(map[string]any)["array"].(float64)
}

type result struct {
	y   float32
	err error
}

// run runs to an end on a goroutine. A run that begins takes the array that is donated.
func run(ctx context.Context, program *cowmlx.Program, end float32) chan result {
	ended := make(chan result, 1)
	params := cowmlx.NewRunParams()
	params.Donate = []int32{0}
	zero := must(cowmlx.NewArray([]float32{0}))
	go func() {
		found, err := program.Run(ctx, params, zero, cowmlx.TensorOf([]float32{end}))
		if err != nil {
			ended <- result{err: err}
			return
		}
		y := must(cowmlx.Item[float32](found[0]))
		found[0].Close()
		ended <- result{y: y}
	}()
	return ended
}

// A late context ends as soon as a call has begun to wait for its end.
type late struct {
	context.Context
	end func()
}

func newLate() *late {
	ctx, end := context.WithCancel(context.Background())
	return &late{Context: ctx, end: end}
}

func (l *late) Done() <-chan struct{} {
	l.end()
	return l.Context.Done()
}

// cancelsNoOther says how a run ends while other runs end before they have begun, or just after.
func cancelsNoOther(program *cowmlx.Program) any {
	other := run(context.Background(), program, 10000)
	for {
		select {
		case found := <-other:
			if found.err != nil {
				return found.err.Error()
			}
			return found.y
		default:
			<-run(newLate(), program, 0)
		}
	}
}

func main() {
	if err := cowmlx.UseLibrary(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	must(cowmlx.NewRuntime(nil))
	program := must(cowmlx.NewProgram(source))
	said := map[string]any{}
	for name, isBeside := range map[string]bool{"beside": true, "alone": false} {
		before := arrays()
		ctx, cancel := context.WithCancel(context.Background())
		canceled := run(ctx, program, 1e9) // which adding 1 to a float32 never reaches
		var other chan result
		if isBeside {
			other = run(context.Background(), program, 10000)
		}
		for arrays() > before {
			runtime.Gosched()
		}
		cancel()
		var y any
		if isBeside {
			found := <-other
			if y = found.y; found.err != nil {
				y = found.err.Error()
			}
		}
		said[name] = []any{y, errors.Is((<-canceled).err, context.Canceled)}
	}
	said["others"] = cancelsNoOther(program)
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		log.Fatal(err)
	}
}

// Tells what mistakes give: mistakes LIBRARY MODEL. Each line is [call, what is wrong, error].
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"

	"cowmlx.internal/cowmlx"
)

var ctx = context.Background()

func told(call, given string, err error) {
	var shown any
	var failed *cowmlx.Error
	if errors.As(err, &failed) {
		argument := failed.Details["argument"]
		shown = map[string]any{"status": failed.Status.Error(), "reason": failed.Reason,
			"operation": failed.Operation, "message": failed.Message, "argument": argument}
	} else if err != nil {
		shown = fmt.Sprintf("%T: %v", err, err)
	}
	line, _ := json.Marshal([]any{call, given, shown})
	fmt.Println(string(line))
}

// tried makes a call that must not panic.
func tried(call, given string, run func() error) {
	err := func() (err error) {
		defer func() {
			if problem := recover(); problem != nil {
				err = fmt.Errorf("panic: %v", problem)
			}
		}()
		return run()
	}()
	told(call, given, err)
}

func last[T any](_ T, err error) error { return err }

func first[T any](sequence func(func(T, error) bool)) (found error) {
	for _, err := range sequence {
		found = err
		break
	}
	return found
}

type call struct {
	name string
	run  func() error
}

func model(m *cowmlx.Model) []call {
	return []call{
		{"Model.Info", func() error { return last(m.Info()) }},
		{"Model.Tokenize", func() error { return last(m.Tokenize("a", 0)) }},
		{"Model.Detokenize", func() error { return last(m.Detokenize([]int32{1}, 0)) }},
		{"Model.IsEnd", func() error { return last(m.IsEnd(1)) }},
		{"Model.ChatPrompt", func() error { return last(m.ChatPrompt([]cowmlx.Message{}, nil)) }},
		{"Model.Embed", func() error { return last(m.Embed([]string{"a"}, nil)) }},
		{"Model.Rank", func() error { return last(m.Rank("a", []string{"a"}, nil)) }},
		{"Model.Classify", func() error { return last(m.Classify("a")) }},
		{"Model.InfillPrompt", func() error { return last(m.InfillPrompt("a", "b")) }},
		{"Model.MediaTokens", func() error { return last(m.MediaTokens(8, 8, 0)) }},
		{"Model.Sleep", func() error { return m.Sleep() }},
		{"Model.NewContext", func() error { return last(m.NewContext(nil)) }},
		{"Model.LoadAdapter", func() error { return last(m.LoadAdapter("/nope", 1)) }},
		{"NewModelTraining", func() error { return last(cowmlx.NewModelTraining(m, nil)) }},
	}
}

func conversation(c *cowmlx.Context) []call {
	nothing := []cowmlx.Message{}
	return []call{
		{"Context.Info", func() error { return last(c.Info()) }},
		{"Context.Cancel", func() error { return c.Cancel() }},
		{"Context.Fork", func() error { return last(c.Fork()) }},
		{"Context.Reset", func() error { return c.Reset() }},
		{"Context.Tokens", func() error { return last(c.Tokens()) }},
		{"Context.TrimEnd", func() error { return last(c.TrimEnd(ctx, 1)) }},
		{"Context.TrimFront", func() error { return last(c.TrimFront(ctx, 1)) }},
		{"Context.Checkpoint", func() error { return last(c.Checkpoint()) }},
		{"Context.Rewind", func() error { return c.Rewind(nil) }},
		{"Context.Save", func() error { return c.Save(ctx, "/nope/nope") }},
		{"Context.Load", func() error { return c.Load(ctx, "/nope") }},
		{"Context.SetAdapter", func() error { return c.SetAdapter(nil) }},
		{"Context.Logprobs", func() error { return last(c.Logprobs()) }},
		{"Context.Logits", func() error { return last(c.Logits()) }},
		{"Context.Stats", func() error { return last(c.Stats()) }},
		{"Context.Begin", func() error { return c.Begin(ctx, []int32{1}, nil) }},
		{"Context.BeginEmbeddings", func() error { return c.BeginEmbeddings(ctx, []int32{-1}, nil, nil) }},
		{"Context.SaveArray", func() error { return last(c.SaveArray(ctx)) }},
		{"Context.LoadArray", func() error { return c.LoadArray(ctx, nil) }},
		{"Context.PromptLogprobs", func() error { return last(c.PromptLogprobs(ctx, []int32{1}, 1)) }},
		{"Context.PromptLogits", func() error { return last(c.PromptLogits(ctx, []int32{1}, []int32{0})) }},
		{"Context.HiddenStates", func() error { return last(c.HiddenStates(ctx, []int32{1})) }},
		{"Context.Perplexity", func() error { _, _, _, err := c.Perplexity(ctx, "a", 0); return err }},
		{"Context.Next", func() error { _, _, err := c.Next(ctx); return err }},
		{"Context.Generate", func() error { return first(c.Generate(ctx, []int32{1}, nil)) }},
		{"Context.GenerateText", func() error { return last(c.GenerateText(ctx, []int32{1}, nil, nil)) }},
		{"Context.Chat", func() error { return first(c.Chat(ctx, nothing, nil, nil)) }},
		{"Context.ChatEvents", func() error { return last(c.ChatEvents(ctx, nothing, nil, nil, nil)) }},
		{"Context.Poll", func() error { return last(c.Poll(0)) }},
		{"Context.WakeFD", func() error { return last(c.WakeFD()) }},
	}
}

func array(a *cowmlx.Array) []call {
	return []call{
		{"Array.Type", func() error { _, _, err := a.Type(); return err }},
		{"Array.Len", func() error { return last(a.Len()) }},
		{"Values", func() error { return last(cowmlx.Values[float32](a)) }},
		{"Item", func() error { return last(cowmlx.Item[float32](a)) }},
		{"Array.Read", func() error { return a.Read(cowmlx.TensorOf([]float32{1})) }},
		{"Array.View", func() error { return a.View(func([]byte) {}) }},
		{"Array.Wait", func() error { return last(a.Wait(0)) }},
		{"SaveArrays", func() error { return cowmlx.SaveArrays("/nope/nope", map[string]*cowmlx.Array{"a": a}) }},
	}
}

func program(p *cowmlx.Program) []call {
	return []call{
		{"Program.Info", func() error { return last(p.Info(nil)) }},
		{"Program.Derive", func() error { return last(p.Derive(map[string]any{})) }},
		{"Program.Gradient", func() error { return last(p.Gradient("y", false, "x")) }},
		{"Program.Vectorize", func() error { return last(p.Vectorize(map[string]int{"x": 0})) }},
		{"Program.Bind", func() error { return last(p.Bind(map[string]*cowmlx.Array{"x": nil})) }},
		{"Program.Run", func() error { return last(p.Run(ctx, nil, cowmlx.TensorOf([]float32{1}))) }},
		{"Program.Cancel", func() error { return p.Cancel() }},
		{"NewTraining", func() error { return last(cowmlx.NewTraining(p, nil)) }},
	}
}

func training(t *cowmlx.Training) []call {
	return []call{
		{"Training.Step", func() error { return last(t.Step(ctx, cowmlx.TensorOf([]float32{1}))) }},
		{"Training.Fit", func() error { return t.Fit(ctx, nil, nil) }},
		{"Training.Evaluate", func() error { return last(t.Evaluate(ctx, nil)) }},
		{"Training.Parameter", func() error { return last(t.Parameter("w")) }},
		{"Training.Info", func() error { return last(t.Info()) }},
		{"Training.Save", func() error { return t.Save("/nope/nope") }},
		{"Training.Load", func() error { return t.Load("/nope") }},
		{"Training.Adapter", func() error { return last(t.Adapter()) }},
		{"Training.Export", func() error { return t.Export("/nope/nope", nil) }},
		{"Training.Cancel", func() error { return t.Cancel() }},
	}
}

// untried tells the methods of which no call is made.
func untried(calls ...[]call) {
	made := map[string]bool{}
	for _, list := range calls {
		for _, each := range list {
			made[each.name] = true
		}
	}
	for _, each := range []any{(*cowmlx.Model)(nil), (*cowmlx.Context)(nil), (*cowmlx.Array)(nil),
		(*cowmlx.Program)(nil), (*cowmlx.Training)(nil)} {
		object := reflect.TypeOf(each)
		for at := range object.NumMethod() {
			name := object.Elem().Name() + "." + object.Method(at).Name
			if object.Method(at).Name != "Close" && !made[name] {
				told(name, "not tried", errors.New("no call of it is made"))
			}
		}
	}
}

func functions(folder string) []call {
	return []call{
		{"LoadModel", func() error { return last(cowmlx.LoadModel(ctx, folder, nil)) }},
		{"LoadModelAsync", func() error { return last(cowmlx.LoadModelAsync(ctx, folder, nil).Model()) }},
		{"InspectModel", func() error { return last(cowmlx.InspectModel("/nope", 3)) }},
		{"NewArray", func() error { return last(cowmlx.NewArray([]float32{1}, 5)) }},
		{"FromTensor", func() error { return last(cowmlx.FromTensor(cowmlx.TensorOf([]float32{1}, 5))) }},
		{"Apply", func() error { return last(cowmlx.Apply("nope", nil)) }},
		{"LoadArrays", func() error { return last(cowmlx.LoadArrays("/nope", "a")) }},
		{"SaveArrays", func() error { return cowmlx.SaveArrays("/nope/nope", nil) }},
		{"ArraysInfo", func() error { return last(cowmlx.ArraysInfo("/nope")) }},
		{"NewProgram", func() error { return last(cowmlx.NewProgram("{")) }},
		{"LoadProgram", func() error { return last(cowmlx.LoadProgram("/nope", nil)) }},
		{"MediaFromPixels", func() error { return last(cowmlx.MediaFromPixels(make([]byte, 2), 1, 1, 3)) }},
		{"MediaFromFile", func() error { return last(cowmlx.MediaFromFile([]byte{1})) }},
		{"ProgramBuilder.Build", func() error { return last(cowmlx.NewProgramBuilder().Build()) }},
	}
}

func all(given string, calls ...[]call) {
	for _, list := range calls {
		for _, each := range list {
			tried(each.name, given, each.run)
		}
	}
}

func main() {
	library, folder := os.Args[1], os.Args[2]
	objects := func() [][]call {
		return [][]call{model(nil), conversation(nil), array(nil), program(nil), training(nil), functions(folder),
			{{"NewRuntime", func() error { return last(cowmlx.NewRuntime(nil)) }},
				{"RuntimeInfo", func() error { return last(cowmlx.RuntimeInfo()) }},
				{"TrimMemory", cowmlx.TrimMemory},
				{"LibraryVersion", func() error { return last(cowmlx.LibraryVersion()) }},
				{"Operations", func() error { return last(cowmlx.Operations()) }}}}
	}
	untried(objects()...)
	all("no library", objects()...)
	tried("UseLibrary", "/nope.so", func() error { return cowmlx.UseLibrary("/nope.so") })
	tried("UseLibrary", "libc", func() error { return cowmlx.UseLibrary("libc.so.6") })
	check(cowmlx.UseLibrary(library))
	tried("UseLibrary", "another", func() error { return cowmlx.UseLibrary("/nope.so") })
	all("no runtime", model(nil), conversation(nil), array(nil), program(nil), training(nil), functions(folder))
	runtime, err := cowmlx.NewRuntime(nil)
	check(err)
	all("nil", model(nil), conversation(nil), array(nil), program(nil), training(nil), functions("/nope"))
	for _, closing := range []func() error{(*cowmlx.Model)(nil).Close, (*cowmlx.Context)(nil).Close,
		(*cowmlx.Array)(nil).Close, (*cowmlx.Program)(nil).Close, (*cowmlx.Training)(nil).Close,
		(*cowmlx.Runtime)(nil).Close} {
		tried("Close", "nil", closing)
	}
	m, err := cowmlx.LoadModel(ctx, folder, nil)
	check(err)
	mistakes(m)
	closedObjects(m)
	check(runtime.Close())
}

func closedObjects(m *cowmlx.Model) {
	c, err := m.NewContext(nil)
	check(err)
	a, err := cowmlx.NewArray([]float32{1})
	check(err)
	b := cowmlx.NewProgramBuilder()
	x, w := b.Input("x", cowmlx.Float32, 1), b.Parameter("w", cowmlx.Float32, "zeros", 1)
	b.Output("loss", b.Sum(b.Multiply(x, w), nil))
	p, err := b.Build()
	check(err)
	t, err := cowmlx.NewTraining(p, nil)
	check(err)
	params := cowmlx.NewGenerationParams()
	params.Draft = m
	for _, each := range []interface{ Close() error }{m, a, t} {
		check(each.Close())
	}
	tried("Apply", "closed", func() error { return last(cowmlx.Apply("square", nil, a)) })
	tried("Program.Run", "closed", func() error { return last(p.Run(ctx, nil, a, a)) })
	tried("Program.Run", "nil value", func() error { return last(p.Run(ctx, nil, nil, nil)) })
	tried("Context.Begin", "closed draft", func() error { return c.Begin(ctx, []int32{1}, params) })
	check(c.Close())
	check(p.Close())
	all("closed", model(m), conversation(c), array(a), program(p), training(t))
}

func mistakes(m *cowmlx.Model) {
	for at, name := range []string{"width", "height", "channels"} {
		size := []int{1, 1, 1}
		size[at] -= 1 << 32 // which is 1 in 32 bits
		tried("MediaFromPixels", name, func() error {
			return last(cowmlx.MediaFromPixels([]byte{1}, size[0], size[1], size[2]))
		})
	}
	c, err := m.NewContext(nil)
	check(err)
	set := func(change func(*cowmlx.GenerationParams)) error {
		params := cowmlx.NewGenerationParams()
		change(params)
		return c.Begin(ctx, []int32{1, 2}, params)
	}
	tried("Context.Begin", "TopP", func() error { return set(func(p *cowmlx.GenerationParams) { p.TopP = 2 }) })
	tried("Context.Begin", "Temperature", func() error {
		return set(func(p *cowmlx.GenerationParams) { p.Temperature = -1 })
	})
	tried("Context.Begin", "BiasTokens", func() error {
		return set(func(p *cowmlx.GenerationParams) { p.BiasTokens, p.BiasValues = []int32{1, 1}, []float32{1, 1} })
	})
	tried("Context.Begin", "BiasValues", func() error {
		return set(func(p *cowmlx.GenerationParams) { p.BiasTokens, p.BiasValues = []int32{1, 2}, []float32{1} })
	})
	tried("Context.Begin", "no BiasTokens", func() error {
		return set(func(p *cowmlx.GenerationParams) { p.BiasTokens, p.BiasValues = []int32{}, []float32{1} })
	})
	tried("Context.Begin", "Stop", func() error {
		return set(func(p *cowmlx.GenerationParams) { p.Stop = []string{"a\x00"} })
	})
	tried("Context.Begin", "nil ctx", func() error { return c.Begin(nil, []int32{1}, nil) })
	tried("Context.Generate", "nil ctx", func() error { return first(c.Generate(nil, []int32{1}, nil)) })
	tried("Context.Next", "nothing begun", func() error { _, _, err := c.Next(ctx); return err })
	tried("Context.Chat", "messages", func() error { return first(c.Chat(ctx, func() {}, nil, nil)) })
	tried("Context.Chat", "options", func() error { return first(c.Chat(ctx, []any{}, func() {}, nil)) })
	tried("Model.ChatPrompt", "messages", func() error { return last(m.ChatPrompt(func() {}, nil)) })
	tried("Model.Tokenize", "flags", func() error { return last(m.Tokenize("a", 64)) })
	tried("Model.Embed", "Pooling", func() error {
		params := cowmlx.NewEmbedParams()
		params.Pooling = 9
		return last(m.Embed([]string{"a"}, params))
	})
	tried("LoadModel", "nil ctx", func() error { return last(cowmlx.LoadModel(nil, "/nope", nil)) })
	tried("LoadModelAsync", "nil ctx", func() error { return last(cowmlx.LoadModelAsync(nil, "/nope", nil).Model()) })
	tried("LoadModel", "NUL", func() error { return last(cowmlx.LoadModel(ctx, "a\x00", nil)) })
	tried("NewRuntime", "Threads", func() error {
		params := cowmlx.NewRuntimeParams()
		params.Threads = -1
		return last(cowmlx.NewRuntime(params))
	})
	tried("NewProgram", "no JSON", func() error { return last(cowmlx.NewProgram(func() {})) })
	tried("FromTensor", "strides", func() error {
		return last(cowmlx.FromTensor(cowmlx.TensorOf([]float32{1}).Strided(0, 1, 1)))
	})
	tried("FromTensor", "dtype", func() error { return last(cowmlx.FromTensor(cowmlx.TensorOf([]float32{1}).As(99))) })
	tried("Values", "dtype", func() error {
		a, _ := cowmlx.NewArray([]int64{1})
		return last(cowmlx.Values[float32](a))
	})
	for name, write := range map[string]func(*cowmlx.ProgramBuilder){
		"nil node":   func(b *cowmlx.ProgramBuilder) { b.Output("y", b.Square((*cowmlx.Node)(nil))) },
		"nil output": func(b *cowmlx.ProgramBuilder) { b.Output("y", nil) },
		"name":       func(b *cowmlx.ProgramBuilder) { b.Output("", b.Input("x", cowmlx.Float32)) },
		"text":       func(b *cowmlx.ProgramBuilder) { b.Output("y", b.Square("x")) },
	} {
		tried("ProgramBuilder.Build", name, func() error {
			b := cowmlx.NewProgramBuilder()
			write(b)
			return last(b.Build())
		})
	}
	batches(m)
}

func batches(m *cowmlx.Model) {
	b := cowmlx.NewProgramBuilder()
	x, w := b.Input("x", cowmlx.Float32, 1), b.Parameter("w", cowmlx.Float32, "zeros", 1)
	b.Output("loss", b.Sum(b.Add(b.Multiply(x, w), b.Input("y", cowmlx.Float32, 1)), nil))
	p, err := b.Build()
	check(err)
	t, err := cowmlx.NewTraining(p, nil)
	check(err)
	a, err := cowmlx.NewArray([]float32{1})
	check(err)
	for name, batch := range map[string][]*cowmlx.Array{"none": {}, "nil array": {a, nil}, "twice": {a, a}} {
		tried("Training.Fit", name, func() error {
			params := cowmlx.NewFitParams()
			params.Steps, params.NextBatch = 1, func(uint64) []*cowmlx.Array { return batch }
			return t.Fit(ctx, params, nil)
		})
	}
	check(last(a.Len())) // a batch that is refused stays the host's
	tried("Training.Step", "nil", func() error { return last(t.Step(ctx, nil)) })
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

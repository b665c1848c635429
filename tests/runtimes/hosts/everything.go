// Says as JSON what each kind of call gives: everything LIBRARY MODEL FOLDER
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"strings"

	"cowmlx.internal/cowmlx"
)

var (
	said     = map[string]any{}
	ctx      = context.Background()
	messages = []cowmlx.Message{{Role: "user", Content: "What is 3 + 4?"}}
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func close(number float64) float64 { return math.Round(number*1e4) / 1e4 }

func reason(err error) string {
	var failed *cowmlx.Error
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return fmt.Sprint(err)
}

func models(model *cowmlx.Model, prompt []int32) {
	said["tokens"] = prompt
	said["text"] = must(model.Detokenize(prompt, cowmlx.SkipSpecial))
	ends := must(model.Info())["end_tokens"].([]any)[0].(map[string]any)["id"].(float64)
	said["ends"] = []bool{must(model.IsEnd(prompt[0])), must(model.IsEnd(int32(ends)))}
	params := cowmlx.NewEmbedParams()
	params.Normalize, params.Pooling = false, cowmlx.PoolingLast
	var embedded []any
	for _, row := range must(model.Embed([]string{"fox", "frog"}, params)) {
		embedded = append(embedded, []any{len(row), close(float64(row[0]))})
	}
	said["embedded"] = embedded
	said["none"] = len(must(model.Embed(nil, nil)))
	asked := cowmlx.NewRankParams()
	asked.Prompt, asked.Yes, asked.No, asked.Normalize = "{query} {document}", "a", "b", false
	var ranked []any
	for _, row := range must(model.Rank("a fox", []string{"fox", "frog"}, asked)) {
		ranked = append(ranked, []any{len(row), close(float64(row[0]))})
	}
	said["ranked"] = ranked
}

func generations(model *cowmlx.Model, of *cowmlx.Context, prompt []int32) {
	sampling := cowmlx.NewGenerationParams()
	sampling.MaxTokens, sampling.Temperature, sampling.Seed, sampling.Logprobs = 24, 0.8, 7, 2
	sampling.BiasTokens, sampling.BiasValues = []int32{prompt[1]}, []float32{-1}
	sampling.Stop = []string{"\n\n", "zebra"}
	var tokens []int32
	for piece, err := range of.Generate(ctx, prompt, sampling) {
		check(err)
		if piece.Finish != cowmlx.FinishNone && len(piece.Text) == 0 && len(tokens) == 24 {
			said["finish"] = piece.Finish.String()
			break
		}
		if tokens = append(tokens, piece.Token); len(tokens) == 1 {
			said["candidates"] = len(must(of.Logprobs()))
			said["logprob"] = close(float64(piece.Logprob))
		}
	}
	said["generated"] = tokens
	said["logits"] = float64(len(must(of.Logits()))) == must(model.Info())["vocabulary_size"].(float64)
	fresh := must(model.NewContext(nil))
	scored := must(fresh.PromptLogprobs(ctx, prompt, 2))
	logits := must(fresh.PromptLogits(ctx, prompt, []int32{1, 0}))
	states := must(fresh.HiddenStates(ctx, prompt))
	perplexity, _, count, err := fresh.Perplexity(ctx, "Once upon a time", 0)
	check(err)
	width := int(must(model.Info())["embedding_width"].(float64))
	zeros := must(cowmlx.FromTensor(cowmlx.TensorOf(make([]float32, width), 1, int64(width))))
	none := cowmlx.NewGenerationParams()
	none.MaxTokens = 0
	check(fresh.BeginEmbeddings(ctx, append([]int32{-1}, prompt[1:]...), zeros, none))
	said["scored"] = []any{must(fresh.Tokens()), len(scored), len(scored[1]), close(float64(scored[1][0].Logprob)),
		len(logits), len(states), close(perplexity / 1e4), count}
	var greedy strings.Builder
	most := cowmlx.NewGenerationParams()
	most.MaxTokens = 24
	stats := must(of.GenerateText(ctx, prompt, most, func(text string) bool {
		greedy.WriteString(text)
		return true
	}))
	said["greedy"] = greedy.String()
	said["stats"] = []uint64{stats.PromptTokens, stats.GeneratedTokens, must(of.Stats()).GeneratedTokens}
	said["prompt"] = must(model.ChatPrompt(messages, nil))
	answer := ""
	most.MaxTokens = 40
	for event, err := range of.Chat(ctx, messages, nil, most) {
		check(err)
		if event.Kind == cowmlx.EventText {
			answer += event.Text
		}
		said["end"] = event.Finish.String()
	}
	said["answer"] = answer
}

func caches(of *cowmlx.Context, prompt []int32, scratch string) {
	params := cowmlx.NewGenerationParams()
	params.MaxTokens = 4
	check(of.Begin(ctx, prompt, params))
	polled := []bool{must(of.Poll(math.MaxUint32)), must(of.Poll(0)), must(of.WakeFD()) > 0}
	piece, _, err := of.Next(ctx)
	check(err)
	said["polled"] = append(polled, piece.Token > 0)
	check(of.Reset())
	params.MaxTokens = 0
	check(of.Begin(ctx, prompt, params))
	held, fork := must(of.Checkpoint()), must(of.Fork())
	said["trimmed"] = []any{must(of.TrimEnd(ctx, 2)), must(of.TrimFront(ctx, 1)), len(must(of.Tokens()))}
	check(of.Rewind(held))
	check(of.Save(ctx, scratch+"/context.safetensors"))
	check(fork.Load(ctx, scratch+"/context.safetensors"))
	said["held"] = []any{len(must(of.Tokens())), len(must(fork.Tokens())), must(of.Info())["tokens"]}
	check(held.Close())
	check(fork.Close())
}

func refusals(of *cowmlx.Context, prompt []int32) {
	params := cowmlx.NewGenerationParams()
	params.TopP = 1.5
	var refused *cowmlx.Error
	errors.As(of.Begin(ctx, prompt, params), &refused)
	said["refused"] = []any{refused.Status.Error(), refused.Reason, refused.Details["accepted"]}
	for range 20 { // the context is usable after each
		func() {
			defer func() { said["thrown"] = recover() }()
			of.GenerateText(ctx, prompt, nil, func(string) bool { panic("mine") })
		}()
	}
	canceled, cancel := context.WithCancel(ctx)
	for _, err := range of.Generate(canceled, prompt, nil) {
		cancel()
		if errors.Is(err, context.Canceled) {
			said["canceled"] = "AbortError"
		}
	}
	for range of.Chat(ctx, messages, nil, nil) {
		break // the call has ended behind the loop
	}
	check(of.Reset())
}

func arrays(array *cowmlx.Array, scratch string) {
	sum := must(cowmlx.Apply("add", nil, array, array))[0]
	turned := must(cowmlx.FromTensor(cowmlx.TensorOf([]int32{1, 2, 3, 4, 5, 6}, 3, 2).Strided(0, 1, 3)))
	file := scratch + "/arrays.safetensors"
	check(cowmlx.SaveArrays(file, map[string]*cowmlx.Array{"sum": sum, "turned": turned}))
	loaded := must(cowmlx.LoadArrays(file, "turned"))["turned"]
	dtype, shape, err := sum.Type()
	check(err)
	other, _, err := loaded.Type()
	check(err)
	numbers := must(cowmlx.Values[float32](sum))
	said["arrays"] = []any{dtype.String(), shape, numbers, must(cowmlx.Values[int32](loaded)), other.String()}
	var names []string
	for name := range must(cowmlx.ArraysInfo(file))["tensors"].(map[string]any) {
		names = append(names, name)
	}
	slices.Sort(names)
	said["file"] = names
	check(sum.View(func(elements []byte) {
		said["viewed"] = must(cowmlx.Values[float32](must(cowmlx.FromTensor(
			cowmlx.TensorOf(elements, 6).As(cowmlx.Float32)))))
	}))
	_, err = cowmlx.FromTensor(cowmlx.TensorOf([]int32{1}, 1, 1).Strided(0, 1))
	said["strides"] = reason(err)
	said["operations"] = len(must(cowmlx.Operations()))
}

func programs(array *cowmlx.Array) {
	b := cowmlx.NewProgramBuilder()
	x := b.Input("x", cowmlx.Float32, "rows", 3)
	y := b.Input("y", cowmlx.Float32, "rows")
	w := b.Parameter("w", cowmlx.Float32, "zeros", 3)
	wrong := b.Subtract(b.Node("matmul", nil, x, w), y)
	b.Output("loss", b.Mean(b.Multiply(b.Square(wrong), 2), map[string]any{"axis": []int{0}}))
	program := must(b.Build())
	gradient := must(program.Gradient("loss", true, "w"))
	targets, weights := cowmlx.TensorOf([]float32{1, -1}), cowmlx.TensorOf([]float32{0.5, 0, -0.5})
	slopes := must(gradient.Run(ctx, nil, array, targets, weights))
	numbers := []float32{must(cowmlx.Item[float32](slopes[0]))}
	said["gradient"] = append(numbers, must(cowmlx.Values[float32](slopes[1]))...)
	bound := must(program.Bind(map[string]*cowmlx.Array{"w": must(cowmlx.FromTensor(weights))}))
	params := cowmlx.NewRunParams()
	params.Submit = true
	loss := must(bound.Run(ctx, params, array, targets))[0]
	said["bound"] = []any{must(loss.Wait(math.MaxUint32)), must(cowmlx.Item[float32](loss))}
	said["program"] = must(program.Info(nil))["outputs"].([]any)[0].(map[string]any)["shape"]
	_, err := program.Run(ctx, nil, array, cowmlx.TensorOf([]float32{1}), weights)
	said["shape"] = reason(err)
}

func trainings(scratch string) {
	line := must(cowmlx.NewProgram(`{
		"inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", 1]},
		           {"name": "y", "dtype": "float32", "shape": ["rows"]}],
		"parameters": [{"name": "w", "dtype": "float32", "shape": [1], "init": "zeros"}],
		"nodes": [{"name": "z", "op": "matmul", "inputs": ["x", "w"]},
		          {"name": "loss", "op": "mse_loss", "inputs": ["z", "y"]}],
		"outputs": ["loss"]}`))
	params := cowmlx.NewTrainingParams()
	params.Optimizer = `{"name": "sgd", "learning_rate": 0.2}`
	training := must(cowmlx.NewTraining(line, params))
	step := must(training.Step(ctx, cowmlx.TensorOf([]float32{1, 2}, 2, 1), cowmlx.TensorOf([]float32{3, 6})))
	said["step"] = []any{step.Kind.String(), step.Step, step.Loss}
	fit := cowmlx.NewFitParams()
	fit.Steps = 40
	fit.NextBatch = func(at uint64) []*cowmlx.Array {
		far := float32(at % 3)
		return []*cowmlx.Array{must(cowmlx.NewArray([]float32{1, far}, 2, 1)), must(cowmlx.NewArray([]float32{3, 3 * far}))}
	}
	events, last := 0, ""
	check(training.Fit(ctx, fit, func(event cowmlx.TrainingEvent) bool {
		events, last = events+1, event.Kind.String()
		return true
	}))
	w := must(cowmlx.Item[float32](must(training.Parameter("w"))))
	said["fit"] = []any{events, last, math.Abs(float64(w)-3) < 0.01}
	check(training.Save(scratch + "/training"))
	check(training.Load(scratch + "/training"))
	said["resumed"] = must(training.Info())["step"]
	data := cowmlx.NewFitParams()
	data.Inputs = []*cowmlx.Array{must(cowmlx.NewArray([]float32{1}, 1, 1)), must(cowmlx.NewArray([]float32{3}))}
	said["evaluated"] = must(training.Evaluate(ctx, data)).ValidationLoss < 0.01
}

func tuning(model *cowmlx.Model, of *cowmlx.Context, scratch string) {
	params := cowmlx.NewTrainingParams()
	params.FineTune = `{"rank": 2, "num_layers": 1}`
	training := must(cowmlx.NewModelTraining(model, params))
	fit := cowmlx.NewFitParams()
	fit.Steps, fit.BatchSize, fit.Lines = 1, 1, `{"text": "The fox is red."}`
	check(training.Fit(ctx, fit, nil))
	check(of.SetAdapter(must(training.Adapter())))
	check(training.Export(scratch+"/adapter", nil))
	check(of.SetAdapter(must(model.LoadAdapter(scratch+"/adapter", 0.5))))
	said["adapted"] = must(of.Info())["adapter"] != nil
	image := must(cowmlx.MediaFromPixels([]byte{1, 2, 3, 4, 5, 6}, 2, 1, 3))
	about := must(image.Info())
	_, err := cowmlx.MediaFromPixels([]byte{1, 2}, 2, 1, 3)
	said["image"] = []any{about["width"], about["height"], about["channels"],
		len(about["hash"].(string)) == 32, reason(err)}
	check(image.Close())
	check(of.SetAdapter(nil))
}

func main() {
	library, folder, scratch := os.Args[1], os.Args[2], os.Args[3]
	check(cowmlx.UseLibrary(library))
	logged := true
	params := cowmlx.NewRuntimeParams()
	params.Log = func(level cowmlx.LogLevel, _ string) { logged = logged && level != cowmlx.LogOff }
	runtime := must(cowmlx.NewRuntime(params))
	said["versions"] = []any{must(cowmlx.LibraryVersion()) == cowmlx.Version, cowmlx.ABIVersion, must(cowmlx.RuntimeInfo())["device"]}
	loading := cowmlx.NewModelParams()
	loading.Progress = func(_ float32, stage string) bool {
		said["stages"] = said["stages"] == true || stage == "weights"
		return true
	}
	model := must(cowmlx.LoadModel(ctx, folder, loading))
	inspected := must(cowmlx.InspectModel(folder, 0))
	said["inspected"] = inspected["architecture"] == must(model.Info())["architecture"]
	prompt := must(model.Tokenize("Once upon a time", cowmlx.AddSpecial))
	size := cowmlx.NewContextParams()
	size.MaxTokens = 512
	of := must(model.NewContext(size))
	array := must(cowmlx.NewArray([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	models(model, prompt)
	generations(model, of, prompt)
	caches(of, prompt, scratch)
	refusals(of, prompt)
	arrays(array, scratch)
	programs(array)
	trainings(scratch)
	tuning(model, of, scratch)
	check(cowmlx.TrimMemory())
	said["logged"] = logged
	check(model.Close())
	_, err := model.Info()
	said["closed"] = errors.Unwrap(err).Error()
	check(runtime.Close())
	_, err = of.Info()
	said["stopped"] = reason(err)
	check(json.NewEncoder(os.Stdout).Encode(said))
}

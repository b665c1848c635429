// Says as JSON what comes of calls that return at once, and how it ends: following LIBRARY MODEL
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"math"
	"os"
	"runtime/pprof"
	"strings"
	"sync"

	"cowmlx.internal/cowmlx"
)

var (
	said     = map[string]any{}
	messages = []cowmlx.Message{{Role: "user", Content: "What is 3 + 4?"}}
	errMine  = errors.New("mine")
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// told is what an error says: its status, reason and operation.
func told(err error) []string {
	var failed *cowmlx.Error
	if errors.As(err, &failed) {
		return []string{failed.Status.Error(), failed.Reason, failed.Operation}
	}
	return []string{fmt.Sprint(err)}
}

// panicking is what a function panics with.
func panicking(run func()) (problem any) {
	defer func() { problem = recover() }()
	run()
	return nil
}

func models(folder string) *cowmlx.Model {
	ctx, background := context.Background(), context.Background()
	loadings := []*cowmlx.Loading{}
	for range 2 {
		loadings = append(loadings, cowmlx.LoadModelAsync(ctx, folder, nil))
	}
	for _, loading := range loadings {
		<-loading.Done()
	}
	must(loadings[1].Model()).Close()
	_, err := cowmlx.LoadModelAsync(ctx, folder+"/none", nil).Model()
	said["missing"] = told(err)
	given, cancel := context.WithCancelCause(background)
	loading := cowmlx.LoadModelAsync(given, folder, nil)
	cancel(errMine)
	_, err = loading.Model()
	said["left"] = told(err)
	_, err = cowmlx.LoadModelAsync(given, folder, nil).Model()
	said["given"] = told(err)
	params := cowmlx.NewModelParams()
	params.Progress = func(float32, string) bool { return false }
	_, err = cowmlx.LoadModelAsync(ctx, folder, params).Model()
	said["refused"] = told(err)
	params.Progress = func(float32, string) bool { panic("mine") }
	said["panicked"] = panicking(func() { cowmlx.LoadModelAsync(ctx, folder, params).Model() })
	return must(loadings[0].Model())
}

// many has so many contexts at once, and what each says.
func many[T any](model *cowmlx.Model, count int, say func(of *cowmlx.Context, at int) T) []T {
	found := make([]T, count)
	var all sync.WaitGroup
	for at := range count {
		of := must(model.NewContext(nil))
		all.Add(1)
		go func() {
			defer all.Done()
			defer of.Close()
			found[at] = say(of, at)
		}()
	}
	all.Wait()
	return found
}

func first(ctx context.Context, of *cowmlx.Context, tokens []int32, params *cowmlx.GenerationParams) (token int32, err error) {
	for piece, err := range of.Generate(ctx, tokens, params) {
		return piece.Token, err
	}
	return 0, errors.New("nothing")
}

func main() {
	if err := cowmlx.UseLibrary(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	runtime := must(cowmlx.NewRuntime(nil))
	model := models(os.Args[2])
	prompt := must(model.Tokenize("Once upon a time", cowmlx.AddSpecial))

	said["tokens"] = many(model, 8, func(of *cowmlx.Context, at int) (tokens []int32) {
		params := cowmlx.NewGenerationParams()
		params.MaxTokens, params.Temperature, params.Seed = 16, 0.9, uint64(at)
		for piece, err := range of.Generate(ctx, prompt, params) {
			if must(piece, err); piece.Finish == cowmlx.FinishNone || len(tokens) < 16 {
				tokens = append(tokens, piece.Token)
			}
		}
		return tokens
	})
	answers := many(model, 48, func(of *cowmlx.Context, _ int) string {
		var answer strings.Builder
		for event, err := range of.Chat(ctx, messages, nil, nil) {
			answer.WriteString(must(event, err).Text)
		}
		return answer.String()
	})
	said["answers"] = answers[:8]
	said["threads"] = pprof.Lookup("threadcreate").Count() < len(answers)

	endless := cowmlx.NewGenerationParams()
	endless.MaxTokens = 1 << 40
	for _, end := range must(model.Info())["end_tokens"].([]any) {
		endless.BiasTokens = append(endless.BiasTokens, int32(end.(map[string]any)["id"].(float64)))
		endless.BiasValues = append(endless.BiasValues, -1000)
	}
	rolling := cowmlx.NewContextParams()
	rolling.Overflow = cowmlx.OverflowRoll
	of, other := must(model.NewContext(rolling)), must(model.NewContext(rolling))
	canceled, cancelFor := context.WithCancelCause(ctx)
	for _, err := range of.Generate(canceled, prompt, endless) {
		cancelFor(errMine)
		said["canceled"] = told(err)
	}
	_, err := first(canceled, of, prompt, endless)
	said["early"] = told(err)
	said["again"] = must(first(ctx, of, prompt, endless))
	for _, err := range of.Generate(ctx, prompt, endless) {
		if said["before"] = told(err); err == nil {
			must(first(ctx, of, prompt, endless))
		}
	}
	for event := range of.Chat(ctx, messages, nil, endless) {
		for _, err := range of.Chat(ctx, messages, nil, nil) {
			said["busy"] = told(err)
		}
		said["event"] = event.Text
		break
	}
	events := 0
	for event, err := range of.Chat(ctx, messages, nil, endless) {
		must(event, err)
		if events++; events == 1 {
			said["beside"] = told(of.Begin(ctx, prompt, nil))
		} else if events == 3 {
			break
		}
	}
	said["events"] = events
	next, stop := iter.Pull2(of.Generate(ctx, prompt, endless))
	next()
	short := *endless
	short.MaxTokens = 20
	said["replaced"] = must(of.GenerateText(ctx, prompt, &short, func(string) bool {
		stopped := make(chan bool)
		go func() {
			stop()
			close(stopped)
		}()
		<-stopped
		return true
	})).GeneratedTokens
	behind, cancel := context.WithCancel(ctx)
	said["behind"] = panicking(func() {
		of.GenerateText(behind, prompt, endless, func(string) bool { panic("mine") })
	})
	cancel()
	long := *endless
	long.MaxTokens = 1000
	stats := must(of.GenerateText(ctx, prompt, &long, nil))
	said["whole"] = stats.GeneratedTokens
	watched := cowmlx.NewGenerationParams()
	watched.PromptProgress = func(uint64, uint64) bool { panic("mine") }
	said["progress"] = panicking(func() { first(ctx, of, prompt, watched) })
	watched.PromptProgress = nil
	watched.LogitsFn = func(tokens []int32, logits []float32) bool {
		for token := range logits {
			logits[token] = float32(math.Inf(-1))
		}
		logits[40+len(tokens)-len(prompt)] = 0
		return true
	}
	said["forced"] = must(first(ctx, of, prompt, watched))
	said["begun"] = told(of.Begin(ctx, prompt, watched))
	watched.LogitsFn, watched.TopP = nil, 1.5
	_, err = first(ctx, of, prompt, watched)
	said["range"] = told(err)
	said["usable"] = must(first(ctx, of, prompt, nil))

	begun, ended := make(chan bool, 1), make(chan error)
	go func() {
		for _, err := range other.Generate(ctx, prompt, endless) {
			select {
			case begun <- true:
			default:
			}
			if err != nil {
				ended <- err
			}
		}
	}()
	<-begun
	other.Close()
	said["freed"] = told(<-ended)
	for _, err := range of.Generate(ctx, prompt, endless) {
		runtime.Close()
		said["stopped"] = told(err)
	}
	json.NewEncoder(os.Stdout).Encode(said)
}

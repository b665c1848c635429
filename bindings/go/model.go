package cowmlx

import (
	"context"
	"encoding/json"
	"unsafe"
)

// A Model is weights, tokenizer and chat template of one folder.
type Model struct{ object }

// LoadModel loads a model's folder; nil stands for the defaults.
func LoadModel(ctx context.Context, path string, params *ModelParams) (*Model, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	if params == nil {
		params = NewModelParams()
	}
	watched := *params
	watched.Progress = func(fraction float32, stage string) bool {
		return ctx.Err() == nil && (params.Progress == nil || params.Progress(fraction, stage))
	}
	l, model := &lowering{}, &Model{}
	name, given := l.text("path", path), watched.lower(l)
	return model, opened(&model.object, &api.modelFree, func(out *int32) error {
		return canceling(ctx, func() int32 { return 0 }, func() error {
			return l.call(func() int32 { return api.modelLoad(name, given, out) })
		})
	})
}

// InspectModel describes a model's folder without loading it: cow_mlx_model_inspect().
func InspectModel(path string, kvBits int32) (map[string]any, error) {
	l := &lowering{}
	name := l.text("path", path)
	if l.err != nil {
		return nil, l.err
	}
	return described(8192, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.modelInspect(name, kvBits, buffer, capacity, length)
	})
}

// Info describes the model: cow_mlx_model_info().
func (m *Model) Info() (map[string]any, error) {
	return described(16384, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.modelInfo(m.handle(), buffer, capacity, length)
	})
}

// Tokenize turns text into tokens; flags are AddSpecial and ParseSpecial.
func (m *Model) Tokenize(text string, flags Flags) ([]int32, error) {
	return fill[int32](len(text)+16, 1, func(tokens unsafe.Pointer, capacity uintptr, count *uintptr) int32 {
		return api.modelTokenize(m.handle(), unsafe.Pointer(unsafe.StringData(text)), uintptr(len(text)),
			uint32(flags), tokens, capacity, count)
	})
}

// Detokenize turns tokens into text; flags are SkipSpecial.
func (m *Model) Detokenize(tokens []int32, flags Flags) (string, error) {
	text, err := fill[byte](8*len(tokens)+16, 1, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.modelDetokenize(m.handle(), pointer(tokens), uintptr(len(tokens)), uint32(flags),
			buffer, capacity, length)
	})
	return string(text), err
}

// IsEnd says whether a token ends a generation.
func (m *Model) IsEnd(token int32) (ends bool, err error) {
	err = try(func() int32 { return api.modelIsEnd(m.handle(), token, &ends) })
	return ends, err
}

// A Message of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ChatPrompt gives the tokens of a conversation, by the model's chat template. Messages and options are
// what encoding/json makes of them, such as []Message; options may be nil.
func (m *Model) ChatPrompt(messages, options any) ([]int32, error) {
	l := &lowering{}
	text, given := conversation(l, messages, options)
	if l.err != nil {
		return nil, l.err
	}
	return fill[int32](len(text)+64, 1, func(tokens unsafe.Pointer, capacity uintptr, count *uintptr) int32 {
		return api.modelChatPrompt(m.handle(), pointer(text), uintptr(len(text)), given, tokens, capacity, count)
	})
}

// conversation is the JSON of messages and of options.
func conversation(l *lowering, messages, options any) ([]byte, unsafe.Pointer) {
	text, err := json.Marshal(messages)
	if err != nil {
		l.refuse(refused(StatusEInval, "wrong_type", "messages", "messages has no JSON: "+err.Error()))
	}
	l.keep(text)
	return text, l.json("options", options)
}

// json is the JSON of a value, as a text that ends at its NUL; nil is none.
func (l *lowering) json(name string, value any) unsafe.Pointer {
	if value == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		l.refuse(refused(StatusEInval, "wrong_type", name, name+" has no JSON: "+err.Error()))
	}
	return l.text(name, string(text))
}

// Embed turns texts into vectors.
func (m *Model) Embed(texts []string, params *EmbedParams) ([][]float32, error) {
	l, given := &lowering{}, lowered(texts)
	options := params.lower(l)
	if l.err != nil {
		return nil, l.err
	}
	rows := len(texts)
	all, err := fill[float32](4096*rows, rows, func(out unsafe.Pointer, capacity uintptr, dims *uintptr) int32 {
		return api.modelEmbed(m.handle(), pointer(given), uintptr(rows), options, out, capacity, dims)
	})
	return rowsOf(all, rows), err
}

// Rank tells how well each document fits a query: the higher a score, the better. The row of a
// document has one, or one for each label of a classification head.
func (m *Model) Rank(query string, documents []string, params *RankParams) ([][]float32, error) {
	l, given := &lowering{}, lowered(documents)
	asked, options := l.text("query", query), params.lower(l)
	if l.err != nil {
		return nil, l.err
	}
	rows := len(documents)
	all, err := fill[float32](rows, rows, func(out unsafe.Pointer, capacity uintptr, labels *uintptr) int32 {
		return api.modelRank(m.handle(), asked, pointer(given), uintptr(rows), options, out, capacity, labels)
	})
	return rowsOf(all, rows), err
}

// lowered are texts as C takes them; the strings must outlive them.
func lowered(texts []string) []cText {
	given := make([]cText, len(texts))
	for i, text := range texts {
		given[i] = cText{unsafe.Pointer(unsafe.StringData(text)), uintptr(len(text))}
	}
	return given
}

// rowsOf cuts numbers into so many rows; nil without numbers.
func rowsOf(all []float32, count int) [][]float32 {
	if len(all) == 0 {
		return nil
	}
	rows, width := make([][]float32, count), len(all)/count
	for i := range rows {
		rows[i] = all[i*width : (i+1)*width]
	}
	return rows
}

// NewContext opens a context.
func (m *Model) NewContext(params *ContextParams) (*Context, error) {
	l, made := &lowering{}, &Context{}
	given := params.lower(l)
	return made, opened(&made.object, &api.contextFree, func(out *int32) error {
		return l.call(func() int32 { return api.contextCreate(m.handle(), given, out) })
	})
}

// An Adapter is a LoRA or DoRA adapter of one model, for Context.SetAdapter.
type Adapter struct{ object }

// LoadAdapter loads an adapter, which applies scale times.
func (m *Model) LoadAdapter(path string, scale float32) (*Adapter, error) {
	l, adapter := &lowering{}, &Adapter{}
	name := l.text("path", path)
	return adapter, opened(&adapter.object, &api.adapterFree, func(out *int32) error {
		return l.call(func() int32 { return api.adapterLoad(m.handle(), name, scale, out) })
	})
}

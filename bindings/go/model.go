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
	l, handle := &lowering{}, int32(0)
	name, given := l.text("path", path), watched.lower(l)
	err := l.canceling(ctx, func() int32 { return 0 }, func() int32 { return api.modelLoad(name, given, &handle) })
	if err != nil {
		return nil, err
	}
	return newModel(handle), nil
}

// A Message of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// encoded is the JSON of a value.
func (l *lowering) encoded(name string, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		l.refuse(refused(StatusEInval, "wrong_type", name, name+" has no JSON: "+err.Error()))
	}
	return text
}

// json is the same as a text that ends at its NUL; nil is none.
func (l *lowering) json(name string, value any) unsafe.Pointer {
	if value == nil {
		return nil
	}
	return l.text(name, string(l.encoded(name, value)))
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

// An Adapter is a LoRA or DoRA adapter of one model, for Context.SetAdapter.
type Adapter struct{ object }

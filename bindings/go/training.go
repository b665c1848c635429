package cowmlx

import (
	"context"
	"unsafe"
)

// A Training is one of a program or of a language model. One call at a time runs on it.
type Training struct{ object }

// NewTraining makes a training of a program.
func NewTraining(program *Program, params *TrainingParams) (*Training, error) {
	return newTraining(program.handle(), params, &api.trainingCreate)
}

// NewModelTraining makes a training of a language model: LoRA, DoRA or all weights, as FineTune says.
func NewModelTraining(model *Model, params *TrainingParams) (*Training, error) {
	return newTraining(model.handle(), params, &api.trainingCreateForModel)
}

func newTraining(of int32, params *TrainingParams, create *func(int32, unsafe.Pointer, *int32) int32) (*Training, error) {
	l, training := &lowering{}, &Training{}
	given := params.lower(l)
	return training, opened(&training.object, &api.trainingFree, func(out *int32) error {
		return l.call(func() int32 { return (*create)(of, given, out) })
	})
}

// Step makes a step on a batch: the program's inputs without its parameters, in their order.
func (t *Training) Step(ctx context.Context, inputs ...Value) (TrainingEvent, error) {
	l, event := &lowering{}, &cTrainingEvent{structSize: unsafe.Sizeof(cTrainingEvent{})}
	given := values(l, "inputs", inputs)
	err := t.call(ctx, l, func() int32 {
		return api.trainingStep(t.handle(), given, uintptr(len(inputs)), unsafe.Pointer(event))
	})
	return event.told(), err
}

// Fit makes steps until an end that params tell; onEvent may be nil.
func (t *Training) Fit(ctx context.Context, params *FitParams, onEvent TrainingFunc) error {
	l := &lowering{}
	given := params.lower(l)
	var callback, user uintptr
	if onEvent != nil {
		l.on.training, callback, user = onEvent, trampolines.training, l.id()
	}
	return t.call(ctx, l, func() int32 { return api.trainingFit(t.handle(), given, callback, user) })
}

// Evaluate tells loss, accuracy and perplexity on data.
func (t *Training) Evaluate(ctx context.Context, params *FitParams) (TrainingEvent, error) {
	l, event := &lowering{}, &cTrainingEvent{structSize: unsafe.Sizeof(cTrainingEvent{})}
	given := params.lower(l)
	err := t.call(ctx, l, func() int32 {
		return api.trainingEvaluate(t.handle(), given, unsafe.Pointer(event))
	})
	return event.told(), err
}

func (t *Training) call(ctx context.Context, l *lowering, call func() int32) error {
	return canceling(ctx, t.cancel, func() error { return l.call(call) })
}

// Parameter is a parameter as it is now.
func (t *Training) Parameter(name string) (*Array, error) {
	l, handle := &lowering{}, int64(0)
	given := l.text("name", name)
	if err := l.call(func() int32 { return api.trainingParameter(t.handle(), given, &handle) }); err != nil {
		return nil, err
	}
	return newArray(handle), nil
}

// Info describes the training: cow_mlx_training_info().
func (t *Training) Info() (map[string]any, error) {
	return described(1<<16, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.trainingInfo(t.handle(), buffer, capacity, length)
	})
}

// Save saves the training, to continue later.
func (t *Training) Save(folder string) error {
	l := &lowering{}
	given := l.text("folder", folder)
	return l.call(func() int32 { return api.trainingSave(t.handle(), given) })
}

// Load continues a saved training.
func (t *Training) Load(folder string) error {
	l := &lowering{}
	given := l.text("folder", folder)
	return l.call(func() int32 { return api.trainingLoad(t.handle(), given) })
}

// Adapter is the layers of a language model trained so far.
func (t *Training) Adapter() (*Adapter, error) {
	adapter := &Adapter{}
	return adapter, opened(&adapter.object, &api.adapterFree, func(out *int32) error {
		return try(func() int32 { return api.trainingAdapter(t.handle(), out) })
	})
}

// Export writes the trained layers of a language model as mlx-lm reads them; options may be nil.
func (t *Training) Export(folder string, options any) error {
	l := &lowering{}
	given, chosen := l.text("folder", folder), l.json("options", options)
	return l.call(func() int32 { return api.trainingExport(t.handle(), given, chosen) })
}

// Cancel ends the call that runs; for any goroutine.
func (t *Training) Cancel() error { return canceled(t.handle(), "training", t.cancel) }

func (t *Training) cancel() int32 { return api.trainingCancel(t.handle()) }

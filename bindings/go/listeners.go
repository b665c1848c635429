package cowmlx

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Functions that hear of a call while it runs, on its goroutine. Returning false cancels the call; a
// panic does, too, and continues behind it. They must not end their goroutine (runtime.Goexit).
type (
	LogFunc      func(level LogLevel, message string)
	ProgressFunc func(fraction float32, stage string) bool
	PromptFunc   func(processed, total uint64) bool
	TextFunc     func(text string) bool
	EventFunc    func(event Event) bool
	TrainingFunc func(event TrainingEvent) bool

	// A BatchFunc brings the batch of a step, which the training takes over; nil if there are no more.
	BatchFunc func(step uint64) []*Array
)

type functions struct {
	log      LogFunc
	progress ProgressFunc
	prompt   PromptFunc
	text     TextFunc
	event    EventFunc
	training TrainingFunc
	batch    BatchFunc
}

// heard is a call's place among those that have callbacks.
type heard struct {
	number   uintptr
	panicked any
}

var (
	listeners sync.Map
	last      atomic.Uintptr
)

// id is what C tells with each callback.
func (l *lowering) id() uintptr {
	if l.number == 0 {
		l.number = last.Add(1)
		listeners.Store(l.number, l)
	}
	return l.number
}

func (l *lowering) close() {
	if l.number != 0 {
		listeners.Delete(l.number)
	}
}

// answer asks who listens. A panic must not pass through C, whose call would never end.
func answer(id uintptr, ask func(on *functions) bool) (more bool) {
	found, _ := listeners.Load(id)
	l := found.(*lowering)
	defer func() {
		if problem := recover(); problem != nil {
			l.panicked, more = problem, false
		}
	}()
	return ask(&l.on)
}

// trampolines are the callbacks of all calls, since purego never frees one.
var trampolines = struct {
	log, progress, prompt, text, event, training, batch uintptr
}{
	log: purego.NewCallback(func(level int32, message unsafe.Pointer, user uintptr) uintptr {
		answer(user, func(on *functions) bool {
			on.log(LogLevel(level), textAt(message, -1))
			return true
		})
		return 0
	}),
	progress: purego.NewCallback(func(fraction float32, stage unsafe.Pointer, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.progress(fraction, textAt(stage, -1)) })
	}),
	prompt: purego.NewCallback(func(processed, total, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.prompt(uint64(processed), uint64(total)) })
	}),
	text: purego.NewCallback(func(text unsafe.Pointer, length, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.text(textAt(text, int(length))) })
	}),
	event: purego.NewCallback(func(event *cEvent, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.event(event.told()) })
	}),
	training: purego.NewCallback(func(event *cTrainingEvent, user uintptr) bool {
		return answer(user, func(on *functions) bool { return on.training(event.told()) })
	}),
	batch: purego.NewCallback(func(step uintptr, inputs *int64, count, user uintptr) bool {
		return answer(user, func(on *functions) bool {
			return give(user, on.batch(uint64(step)), unsafe.Slice(inputs, int(count)))
		})
	}),
}

func give(id uintptr, batch []*Array, inputs []int64) bool {
	if batch == nil {
		return false
	}
	wrong := ""
	if len(batch) != len(inputs) {
		wrong = fmt.Sprintf("NextBatch gave %d arrays, must give %d, or nil for no more", len(batch), len(inputs))
	} else if at := slices.IndexFunc(batch, func(each *Array) bool { return each.handle() == 0 }); at >= 0 {
		wrong = fmt.Sprintf("NextBatch gave an array that is nil or closed, at %d", at)
	}
	if wrong != "" {
		found, _ := listeners.Load(id)
		found.(*lowering).refuse(refused(StatusEInval, "wrong_type", "NextBatch", wrong))
		return false
	}
	for i, array := range batch {
		inputs[i] = array.number.Swap(0)
	}
	return true
}

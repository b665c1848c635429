package cowmlx

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"unicode"
)

// An Error says why a call failed: for people a message, for programs a status, a reason and its
// details. errors.Is(err, StatusECanceled) compares the status.
type Error struct {
	Status    Status         `json:"-"`
	Message   string         `json:"-"`
	Operation string         `json:"operation"` // such as "Context.Begin"
	Reason    string         `json:"reason"`    // a name of COW_MLX_REASONS
	Details   map[string]any `json:"details"`   // texts and numbers
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the status.
func (e *Error) Unwrap() error { return e.Status }

// Error is the name of a status, such as "EINVAL".
func (s Status) Error() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return "UNKNOWN"
}

// refused is an error that the binding itself finds: of the call of this package that the host has
// made, and of an argument, which may be "".
func refused(status Status, reason, argument, message string) error {
	found := &Error{Status: status, Reason: reason, Operation: operation(), Details: map[string]any{}}
	if argument != "" {
		found.Details["argument"] = argument
	}
	found.Message = message
	if found.Operation != "" {
		found.Message = found.Operation + ": " + message
	}
	return found
}

// by names the call in an error.
func by(operation string, err error) error {
	if found, ok := err.(*Error); ok && operation != "" {
		found.Message = operation + ": " + strings.TrimPrefix(found.Message, found.Operation+": ")
		found.Operation = operation
	}
	return err
}

// ended is why a call cannot begin: its context has ended, or is none.
func ended(ctx context.Context) error {
	if ctx == nil {
		return refused(StatusEInval, "null_argument", "ctx",
			"ctx is nil, must be a context.Context such as context.Background()")
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// ours is the prefix of the names of this package's functions.
var ours = func() string {
	pc, _, _, _ := runtime.Caller(0)
	name := runtime.FuncForPC(pc).Name()
	path, last := "", name
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		path, last = name[:slash+1], name[slash+1:]
	}
	return path + last[:strings.IndexByte(last, '.')+1]
}()

// operation is the exported function or method of this package that the host has called; "" on a
// goroutine of the package's own.
func operation() (found string) {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		name, isOurs := strings.CutPrefix(frame.Function, ours)
		if !isOurs {
			return found
		}
		if name = exported(name); name != "" {
			found = name
		}
		if !more {
			return found
		}
	}
}

// exported is "Context.Generate" of "(*Context).Generate.func1"; "" of functions that hosts cannot call.
func exported(name string) string {
	name, _, _ = strings.Cut(name, "[")
	var words []string
	for word := range strings.SplitSeq(strings.NewReplacer("(*", "", ")", "").Replace(name), ".") {
		if !unicode.IsUpper(rune(word[0])) {
			break
		}
		words = append(words, word)
	}
	first, _, _ := strings.Cut(name, ".")
	if len(words) == 0 || (strings.HasPrefix(first, "(") && len(words) < 2) {
		return ""
	}
	return strings.Join(words, ".")
}

// try opens the library if necessary, which fills api: no function of api is read before. It makes the
// call on one thread: the message of an error belongs to that, and a goroutine may leave it between two
// calls.
func try(call func() int32) error {
	if err := isLoaded(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := Status(call()); status < 0 {
		return failure(status)
	}
	return nil
}

// failure is that of the call that this thread has just made. Calls and fields get the names that they
// have here.
func failure(status Status) error {
	found := &Error{Status: status}
	message := api.errorMessage()
	text := make([]byte, 1024)
	var length uintptr
	for api.errorDetails(pointer(text), uintptr(len(text)), &length) < 0 {
		text = make([]byte, length)
	}
	if err := json.Unmarshal(text[:length], found); err != nil {
		return err
	}
	message = strings.TrimPrefix(message, found.Operation+": ")
	if found.Reason == "unknown_handle" && found.Details["handle"] == 0.0 {
		message = fmt.Sprintf("the %v is nil or closed", found.Details["kind"])
	}
	if argument, ok := found.Details["argument"].(string); ok {
		own := renamed(argument)
		if field, ok := ownFields[argument]; ok && found.Operation != "model_inspect" {
			own = field
		}
		if rest, ok := strings.CutPrefix(message, argument+" "); ok {
			message = own + " " + rest
		}
		found.Details["argument"] = own
	}
	name := operation()
	if name == "" {
		name = ownCalls[found.Operation]
	}
	found.Operation, found.Message = name, name+": "+renamed(message)
	return found
}

var words = regexp.MustCompile(`[\w."'/\\-]*\w`)

// renamed gives calls, parameters and fields of C the names that they have here. Words in quotes and
// parts of paths are the host's, and stay as they are.
func renamed(text string) string {
	text = words.ReplaceAllStringFunc(text, func(word string) string {
		prefix, name, _ := strings.Cut(word, "_params.")
		if name == "" {
			prefix, name = "", word
		}
		if prefix != "" {
			prefix = strings.ToUpper(prefix[:1]) + prefix[1:] + "Params."
		}
		if own, ok := ownParameters[name]; ok {
			return own
		}
		if own, ok := ownFields[name]; ok && (prefix != "" || strings.Contains(name, "_")) {
			return prefix + own
		}
		if own, ok := ownCalls[strings.TrimPrefix(name, "cow_mlx_")]; ok {
			return own
		}
		if own, ok := ownConstants[name]; ok {
			return own
		}
		return word
	})
	return strings.ReplaceAll(text, "is NULL", "is not given")
}

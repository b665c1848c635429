package cowmlx

import (
	"encoding/json"
	"runtime"
)

// An Error says why a call failed: for people a message, for programs a status, a reason and its
// details. errors.Is(err, StatusECanceled) compares the status.
type Error struct {
	Status    Status         `json:"-"`
	Message   string         `json:"-"`
	Operation string         `json:"operation"` // such as "context_begin"
	Reason    string         `json:"reason"`    // a name of COW_MLX_REASONS
	Details   map[string]any `json:"details"`   // texts and numbers
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the status.
func (e *Error) Unwrap() error { return e.Status }

// Error is the name of a status, such as "EINVAL".
func (s Status) Error() string {
	if isLoaded() != nil {
		return "status of no library"
	}
	return api.statusName(int32(s))
}

// refused is an error that the binding itself finds.
func refused(status Status, reason, message string) error {
	return &Error{Status: status, Reason: reason, Message: message}
}

// try makes a call. The message of an error belongs to a thread, which a goroutine may leave between
// two calls.
func try(call func() int32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := Status(call()); status < 0 {
		return failure(status)
	}
	return nil
}

// failure is that of the call that this thread has just made.
func failure(status Status) error {
	found := &Error{Status: status, Message: api.errorMessage()}
	text := make([]byte, 1024)
	var length uintptr
	for api.errorDetails(pointer(text), uintptr(len(text)), &length) < 0 {
		text = make([]byte, length)
	}
	if err := json.Unmarshal(text[:length], found); err != nil {
		return err
	}
	return found
}

package cowmlx

import (
	"encoding/json"
	"sync"
)

// A Runtime runs as long as it is open; several are counted.
type Runtime struct{ once sync.Once }

// NewRuntime starts the runtime; nil stands for the defaults, or for "as it runs".
func NewRuntime(params *RuntimeParams) (*Runtime, error) {
	if err := isLoaded(); err != nil {
		return nil, err
	}
	l := &lowering{}
	given := params.lower(l)
	if l.err != nil {
		return nil, l.err
	}
	// The log is heard as long as the runtime runs, so the lowering is not closed.
	if err := try(func() int32 { return api.runtimeStart(given) }); err != nil {
		return nil, err
	}
	return &Runtime{}, nil
}

// Close undoes the start. The last one frees all that is open.
func (r *Runtime) Close() (err error) {
	if r == nil {
		return nil
	}
	r.once.Do(func() { err = try(api.runtimeStop) })
	return err
}

// RuntimeInfo tells versions, paths, the device, memory and open handles: cow_mlx_runtime_info().
func RuntimeInfo() (map[string]any, error) { return described(8192, api.runtimeInfo) }

// TrimMemory gives memory that is kept for reuse back to the system.
func TrimMemory() error { return try(api.memoryTrim) }

// LibraryVersion is that of the library, as Version is that of this package.
func LibraryVersion() (string, error) {
	if err := isLoaded(); err != nil {
		return "", err
	}
	return api.version(), nil
}

// Operations describes all operations of programs: cow_mlx_operations_info().
func Operations() ([]map[string]any, error) {
	text, err := fill[byte](1<<19, 1, api.operationsInfo)
	if err != nil {
		return nil, err
	}
	var found []map[string]any
	return found, json.Unmarshal(text, &found)
}

// Package cowmlx calls libcowmlx: language models, arrays, programs and trainings, on Linux and
// macOS. It needs no C compiler: purego opens the library at run time.
package cowmlx

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

var library struct {
	sync.Mutex
	path   string
	loaded bool
}

// UseLibrary names the shared library and opens it; otherwise NewRuntime opens what the environment's
// COWMLX_LIBRARY names. `python -m cowmlx library` prints where it is.
func UseLibrary(path string) error {
	library.Lock()
	defer library.Unlock()
	if library.loaded {
		if path != library.path {
			return refused(StatusEState, "conflict", "path",
				"another library is in use: "+library.path+"; name one before the first call")
		}
		return nil
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		status, reason := StatusEFormat, "malformed_file"
		if _, missing := os.Stat(path); missing != nil {
			status, reason = StatusENoent, "file_not_found"
		}
		return refused(status, reason, "path", fmt.Sprintf("the library %q cannot be opened: %v; name libcowmlx's "+
			"file by UseLibrary or in COWMLX_LIBRARY", path, err))
	}
	found := make(map[string]uintptr, len(symbols))
	for name := range symbols {
		if found[name], err = purego.Dlsym(handle, name); err != nil {
			return refused(StatusEUnsupported, "library_mismatch", "path",
				fmt.Sprintf("%s is not libcowmlx %s: %v", path, Version, err))
		}
	}
	for name, function := range symbols {
		purego.RegisterFunc(function, found[name])
	}
	if found := api.abiVersion(); found != ABIVersion {
		return refused(StatusEUnsupported, "library_mismatch", "path",
			fmt.Sprintf("%s has the ABI %d, must have %d", path, found, ABIVersion))
	}
	library.path, library.loaded = path, true
	return nil
}

// isLoaded opens the library that the environment names, if none is open.
func isLoaded() error {
	library.Lock()
	loaded := library.loaded
	library.Unlock()
	if loaded {
		return nil
	}
	path := os.Getenv("COWMLX_LIBRARY")
	if path == "" {
		return refused(StatusENoent, "missing", "path", "no library is named: call UseLibrary or set "+
			"COWMLX_LIBRARY; python -m cowmlx library prints where it is")
	}
	return UseLibrary(path)
}

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

// LibraryVersion is that of the library, as Version is that of this package.
func LibraryVersion() (string, error) {
	if err := isLoaded(); err != nil {
		return "", err
	}
	return api.version(), nil
}

// Operations describes all operations of programs: cow_mlx_operations_info().
func Operations() ([]map[string]any, error) {
	text, err := fill[byte](1<<19, 1, func(buffer unsafe.Pointer, capacity uintptr, length *uintptr) int32 {
		return api.operationsInfo(buffer, capacity, length)
	})
	if err != nil {
		return nil, err
	}
	var found []map[string]any
	return found, json.Unmarshal(text, &found)
}

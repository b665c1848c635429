// Package cowmlx calls libcowmlx: language models, arrays, programs and trainings, on Linux and
// macOS. It needs no C compiler: purego opens the library at run time.
package cowmlx

import (
	"fmt"
	"os"
	"sync"

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
			return refused(StatusEState, "conflict", "another library is in use: "+library.path)
		}
		return nil
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return fmt.Errorf("cowmlx: %w", err)
	}
	for name, function := range symbols {
		symbol, err := purego.Dlsym(handle, name)
		if err != nil {
			return fmt.Errorf("cowmlx: %w", err)
		}
		purego.RegisterFunc(function, symbol)
	}
	if found := api.abiVersion(); found != ABIVersion {
		return refused(StatusEUnsupported, "library_mismatch",
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
		return refused(StatusENoent, "missing", "no library is named: call UseLibrary or set "+
			"COWMLX_LIBRARY; python -m cowmlx library prints where it is")
	}
	return UseLibrary(path)
}

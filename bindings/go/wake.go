package cowmlx

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// A wake waits for a descriptor of the library. Goroutines that wait are parked: they have no thread.
type wake struct {
	file   *os.File
	raised atomic.Bool
}

// newWake reads a copy of the descriptor, since the library closes its own. Its owner must still
// be open behind this, or the number may be another's.
func newWake(fd int32) (*wake, error) {
	syscall.ForkLock.RLock()
	own, err := syscall.Dup(int(fd))
	if err == nil {
		syscall.CloseOnExec(own)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, refused(StatusEIo, "no_descriptors", "", "no descriptor can be opened: "+err.Error())
	}
	return &wake{file: os.NewFile(uintptr(own), "cowmlx")}, nil
}

// wait ends when the library, or raise, says that something may be there, or the library has closed it.
// It waits by reading; the library puts back what is still needed.
func (w *wake) wait() {
	var told [1]byte
	if !w.raised.Load() {
		w.file.Read(told[:])
	}
}

// raise wakes all waiters, now and later.
func (w *wake) raise() {
	w.raised.Store(true)
	w.file.SetReadDeadline(time.Unix(1, 0))
}

func (w *wake) close() {
	w.file.Close()
}

// Makes the call that an argument names first of all: it opens the library that the environment names.
package main

import (
	"context"
	"fmt"
	"os"

	"cowmlx.internal/cowmlx"
)

func main() {
	var none *cowmlx.Context
	background := context.Background()
	calls := map[string]func() error{
		"TrimMemory":  cowmlx.TrimMemory,
		"RuntimeInfo": func() error { _, err := cowmlx.RuntimeInfo(); return err },
		"Operations":  func() error { _, err := cowmlx.Operations(); return err },
		"Trim":        func() error { _, err := none.TrimEnd(background, 1); return err },
		"Save":        func() error { return none.Save(background, "file") },
		"Train":       func() error { _, err := cowmlx.NewTraining(nil, nil); return err },
	}
	fmt.Println(calls[os.Args[1]]())
}

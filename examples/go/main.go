// Stream the continuation of a text, then again and stop half-way: go run . LIBRARY MODEL TEXT
//
// LIBRARY is what `python -m cowmlx library` prints, or that of `make install`. No C compiler is
// needed: purego opens the library at run time.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"cowmlx.internal/cowmlx"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: stream LIBRARY MODEL TEXT")
	}
	ctx := context.Background()
	check(cowmlx.UseLibrary(os.Args[1]))
	runtime, err := cowmlx.NewRuntime(nil)
	check(err)
	model, err := cowmlx.LoadModel(ctx, os.Args[2], nil)
	check(err)
	conversation, err := model.NewContext(nil)
	check(err)
	prompt, err := model.Tokenize(os.Args[3], cowmlx.AddSpecial)
	check(err)

	for piece, err := range conversation.Generate(ctx, prompt, nil) {
		check(err)
		fmt.Print(piece.Text)
	}
	fmt.Println("\n[ended]")

	received, finish := 0, cowmlx.FinishNone
	for piece, err := range conversation.Generate(ctx, prompt, nil) {
		check(err)
		fmt.Print(piece.Text)
		if received += len(piece.Text); received >= 20 {
			go conversation.Cancel() // any goroutine may; or cancel ctx
		}
		finish = piece.Finish
	}
	if finish == cowmlx.FinishCanceled {
		fmt.Println("\n[canceled]")
	}
	check(runtime.Close())
}

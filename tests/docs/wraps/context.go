package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"cowmlx.internal/cowmlx"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx := context.Background()
	runtime, err := cowmlx.NewRuntime(nil)
	check(err)
	model, err := cowmlx.LoadModel(ctx, "models/calf", nil)
	check(err)
	conversation, err := model.NewContext(nil)
	check(err)
	tokens, err := model.Tokenize("Once upon a time", cowmlx.AddSpecial)
	check(err)
	_, _, _, _ = fmt.Print, errors.Is, time.Second, tokens
	_, _ = strings.Join, sync.OnceFunc
	_ = conversation
	{
		/* BLOCK */
	}
	check(runtime.Close())
}

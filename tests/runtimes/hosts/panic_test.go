package main

import (
	"os"
	"testing"
)

// A panic of a callback reaches the caller, and the call it left has ended: the context is usable.
func TestAPanicGoesOnBehindItsCall(t *testing.T) {
	open(os.Getenv("LIBRARY"))
	var model, context int32
	check(func() int32 { return runtimeStart(nil) })
	check(func() int32 { return modelLoad(os.Getenv("MODEL"), nil, &model) })
	check(func() int32 { return contextCreate(model, nil, &context) })
	prompt := []int32{5, 6, 7}
	for range 20 {
		calls := 0
		heard := recovered(func() {
			generate(context, prompt, func(string) bool { calls++; panic("mine") })
		})
		if heard != "mine" || calls != 1 {
			t.Fatalf("%v after %d calls", heard, calls)
		}
	}
	text := ""
	if err := generate(context, prompt, func(part string) bool { text += part; return true }); err != nil {
		t.Fatal(err)
	}
	if text == "" {
		t.Fatal("no text")
	}
	check(runtimeStop)
}

func recovered(call func()) (heard any) {
	defer func() { heard = recover() }()
	call()
	return nil
}

module cowmlx.internal/examples/go

go 1.25.0

require cowmlx.internal/cowmlx v1.0.0

require github.com/ebitengine/purego v0.11.3 // indirect

replace cowmlx.internal/cowmlx => ../../bindings/go

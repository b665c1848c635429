module cowmlx/examples/go

go 1.25.0

require cowmlx v1.0.0

require github.com/ebitengine/purego v0.11.3 // indirect

replace cowmlx => ../../bindings/go

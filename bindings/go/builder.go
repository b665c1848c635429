package cowmlx

import (
	"fmt"
	"math"
	"strings"
)

// A ProgramBuilder writes a program:
//
//	b := cowmlx.NewProgramBuilder()
//	x := b.Input("x", cowmlx.Float32, "rows", 2)
//	w := b.Parameter("w", cowmlx.Float32, "zeros", 2)
//	b.Output("y", b.Matmul(x, w)) // or b.Node("matmul", nil, x, w)
//	program, err := b.Build()
//
// Build reports mistakes.
type ProgramBuilder struct {
	inputs, parameters, constants, functions []map[string]any
	nodes                                    []*node
	outputs                                  []string
	unknown                                  []*Node
	count                                    int
	err                                      error
}

type node struct {
	Op         string         `json:"op"`
	Inputs     []*string      `json:"inputs"`
	Attributes map[string]any `json:"attributes"`
	Outputs    []*string      `json:"outputs"`
}

// A Node is a value of a program that is being written.
type Node struct {
	name  *string // shared with the nodes that it stands in
	isOwn bool    // made by a node, without a name of the host's
	dtype string
	shape []any
}

// NewProgramBuilder begins a program.
func NewProgramBuilder() *ProgramBuilder { return &ProgramBuilder{} }

// Input is an input; its shape is of sizes, and of names of those that vary.
func (b *ProgramBuilder) Input(name string, dtype Dtype, shape ...any) *Node {
	b.inputs = append(b.inputs, b.declared(name, dtype, shape))
	return &Node{name: &name, dtype: dtype.String(), shape: shape}
}

// Parameter is a parameter, which trainings train; init is a text or a map, or nil.
func (b *ProgramBuilder) Parameter(name string, dtype Dtype, init any, shape ...any) *Node {
	entry := b.declared(name, dtype, shape)
	if init != nil {
		entry["init"] = init
	}
	b.parameters = append(b.parameters, entry)
	return &Node{name: &name, dtype: dtype.String(), shape: shape}
}

// Constant is numbers that are part of the program: one, or lists of them ([]any).
func (b *ProgramBuilder) Constant(value any, dtype Dtype) *Node {
	name := b.fresh()
	b.constants = append(b.constants, map[string]any{"name": name, "dtype": dtype.String(), "value": value})
	shape := []any{}
	for list, ok := value.([]any); ok && len(list) > 0; list, ok = list[0].([]any) {
		shape = append(shape, len(list))
	}
	return &Node{name: name, dtype: dtype.String(), shape: shape}
}

// Node applies an operation: its value. Operands are values; numbers, which take the dtype of the last
// value beside them; and nil for one that is left out. Attributes may be nil.
func (b *ProgramBuilder) Node(operation string, attributes map[string]any, operands ...any) *Node {
	return b.Nodes(operation, attributes, 1, operands...)[0]
}

// Nodes does the same for an operation that has several results.
func (b *ProgramBuilder) Nodes(operation string, attributes map[string]any, results int, operands ...any) []*Node {
	var beside *Node
	for _, each := range operands {
		if value, ok := each.(*Node); ok && value != nil {
			beside = value
		}
	}
	if attributes == nil {
		attributes = map[string]any{}
	}
	made := &node{Op: operation, Attributes: attributes, Inputs: []*string{}}
	for _, each := range operands {
		made.Inputs = append(made.Inputs, b.operand(operation, each, beside))
	}
	values := make([]*Node, results)
	for i := range values {
		values[i] = &Node{name: b.fresh(), isOwn: true}
		made.Outputs = append(made.Outputs, values[i].name)
	}
	b.nodes, b.unknown = append(b.nodes, made), append(b.unknown, values...)
	return values
}

// Function adds a function for operations that take one, such as while, as the program's JSON has it.
func (b *ProgramBuilder) Function(function map[string]any) {
	b.functions = append(b.functions, function)
}

// Output names a result of the program.
func (b *ProgramBuilder) Output(name string, value *Node) {
	b.requireName(name)
	if value == nil {
		b.refuse("null_argument", fmt.Sprintf("the output %q is nil, must be a value", name))
		return
	}
	if !value.isOwn {
		value = b.Node("contiguous", nil, value)
	}
	*value.name, value.isOwn = name, false
	b.outputs = append(b.outputs, name)
}

// Build gives the program.
func (b *ProgramBuilder) Build() (*Program, error) {
	if b.err != nil {
		return nil, b.err
	}
	if len(b.outputs) == 0 {
		return nil, refused(StatusEInval, "missing", "",
			"the program has no output; name one by Output(name, value)")
	}
	return NewProgram(b.source(b.outputs))
}

// TypeOf is the dtype and shape of a value, which the library infers.
func (b *ProgramBuilder) TypeOf(value *Node) (dtype string, shape []any, err error) {
	if value == nil {
		return "", nil, refused(StatusEInval, "null_argument", "value", "the value is nil")
	}
	if value.dtype == "" {
		err = b.infer()
	}
	return value.dtype, value.shape, err
}

func (b *ProgramBuilder) source(outputs []string) map[string]any {
	source := map[string]any{"nodes": b.nodes, "outputs": outputs}
	for key, list := range map[string][]map[string]any{"inputs": b.inputs, "parameters": b.parameters,
		"constants": b.constants, "functions": b.functions} {
		if list != nil {
			source[key] = list
		}
	}
	return source
}

// infer asks the library for all types that are not known.
func (b *ProgramBuilder) infer() error {
	names := make([]string, len(b.unknown))
	for i, value := range b.unknown {
		names[i] = *value.name
	}
	asked, err := NewProgram(b.source(names))
	if err != nil {
		return err
	}
	defer asked.Close()
	info, err := asked.Info(nil)
	if err != nil {
		return err
	}
	for i, described := range info["outputs"].([]any) {
		output := described.(map[string]any)
		b.unknown[i].dtype, b.unknown[i].shape = output["dtype"].(string), output["shape"].([]any)
	}
	b.unknown = nil
	return nil
}

func (b *ProgramBuilder) operand(operation string, operand any, beside *Node) *string {
	var number float64
	switch value := operand.(type) {
	case nil:
		return nil
	case *Node:
		if value == nil {
			b.refuse("null_argument", fmt.Sprintf("an input of %q is a nil *Node, must be a value; an untyped nil leaves one out", operation))
			return nil
		}
		return value.name
	case int:
		number = float64(value)
	case float64:
		number = value
	default:
		b.refuse("wrong_type", fmt.Sprintf("an input of %q is a %T, must be a value, an int or a float64", operation, operand))
		return nil
	}
	if beside == nil {
		b.refuse("missing", fmt.Sprintf("the inputs of %q are numbers alone, must have a value beside them", operation))
		return nil
	}
	dtype, _, err := b.TypeOf(beside)
	if err != nil && b.err == nil {
		b.err = err
	}
	return b.Constant(operand, fitting(dtype, number == math.Trunc(number))).name
}

// fitting is the dtype of a number beside values of one.
func fitting(dtype string, isWhole bool) Dtype {
	isFloat := strings.Contains(dtype, "float") || strings.Contains(dtype, "complex")
	if isFloat || (isWhole && dtype != "bool") {
		for value, name := range dtypeNames {
			if name == dtype {
				return value
			}
		}
	}
	if isWhole {
		return Int32
	}
	return Float32
}

func (b *ProgramBuilder) declared(name string, dtype Dtype, shape []any) map[string]any {
	b.requireName(name)
	if shape == nil {
		shape = []any{}
	}
	return map[string]any{"name": name, "dtype": dtype.String(), "shape": shape}
}

func (b *ProgramBuilder) requireName(name string) {
	if name == "" || name[0] == '%' {
		b.refuse("out_of_range", fmt.Sprintf("the name is %q, must be one that does not begin with %%", name))
	}
}

func (b *ProgramBuilder) refuse(reason, message string) {
	if b.err == nil {
		b.err = refused(StatusEInval, reason, "", message)
	}
}

func (b *ProgramBuilder) fresh() *string {
	name := fmt.Sprintf("%%%d", b.count)
	b.count++
	return &name
}

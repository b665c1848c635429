"""Programs of many operations, with calls, decisions and loops in each other, drawn from a seed."""

from __future__ import annotations

from typing import Any

from cowmlx.programs.operations import ROWS
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import Operation, OperationError, Spec
from support.fuzz.draw import SUMS, Case, Draw
from support.programs import graph, node, value

SIDES = (0, 1, 2, 3, 4, 5)
MOST = 4_000
# Those of partitions may have any order.
_LEFT_OUT = ("conv", "random_", "partition", "argpartition")
SOURCES = [row for row in ROWS if row.inputs and not row.name.startswith(_LEFT_OUT)]
# Their rounding differs between runs, and large numbers make any difference of it.
ROUNDED = (*SUMS, *(row.name for row in ROWS if row.stacks and row.cpu_only))
PLAIN = [row for row in ROWS if not row.attributes and len(row.inputs) in (1, 2)]


class DrawGraph(Draw):
    """Draws programs; a function has separate values."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._functions: list[dict[str, Any]] = []
        self._values = 0
        self._loops = False

    def graph(self) -> Case:
        """A case of a program."""
        one_of = self.random.choice
        floats = one_of(("float64", "float64", "float32", "float16", "bfloat16"))
        shapes = [[one_of(SIDES) for _ in range(one_of((0, 1, 2, 3)))] for _ in range(2)]
        inputs = []
        for _ in range(one_of((1, 2, 3))):
            dtype = floats if not self.one_in(5) else one_of(("int32", "bool", "uint8"))
            shape = one_of(shapes)
            inputs.append(
                {
                    "dtype": dtype,
                    "shape": [1 if self.one_in(8) else side for side in shape],
                    "values": {
                        "kind": one_of(("range", "range", "normal", "special"))
                        if dtype == floats
                        else "range",
                        "seed": self.random.randrange(2**31),
                    },
                    "layout": self._layout(len(shape)),
                }
            )
        scope = {
            f"i{at}": Spec(tuple(each["shape"]), each["dtype"]) for at, each in enumerate(inputs)
        }
        declared = [value(name, list(spec.shape), spec.dtype) for name, spec in scope.items()]
        nodes = self._nodes(scope, one_of((1, 2, 4, 8)), 0)
        outputs = [name for each in nodes for name in _names(each)] or ["i0"]
        made = [*nodes, *(each for function in self._functions for each in function["nodes"])]
        if any(each["op"] in ROUNDED for each in made):
            for each in inputs:
                if each["values"]["kind"] == "special":
                    each["values"]["kind"] = "infinite"
        checks: list[dict[str, Any]] = [
            {"check": "program", "submit": self.one_in(2), "host": self.one_in(2)}
        ]
        if not self._loops and self.one_in(2):
            case = {"inputs": inputs}
            levels = self._levels(case, list(range(len(inputs))))
            checks.append({"check": "vectorized", "levels": levels})
        last = [
            name
            for name in outputs
            if scope[name].dtype in ("float16", "bfloat16", "float32", "float64")
        ]
        if last and self.one_in(2):
            check = {"check": "gradient", "of": one_of(last)}
            if not self._loops and self.one_in(2):
                check["levels"] = self._levels({"inputs": inputs}, list(range(len(inputs))))[:1]
            checks.append(check)
        return {
            "kind": "graph",
            "program": graph(declared, nodes, outputs, functions=self._functions),
            "inputs": inputs,
            "checks": checks,
        }

    def _name(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def _nodes(self, scope: dict[str, Spec], count: int, depth: int) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = []
        for _ in range(count):
            if depth < 3 and self.one_in(4):
                control = self.random.choice((self._call, self._cond, self._scan, self._while))
                nodes += control(scope, depth + 1)
            else:
                nodes += self._one(scope)
        return nodes

    def _one(self, scope: dict[str, Spec]) -> list[dict[str, Any]]:
        """A node of an operation that takes values of the scope."""
        for _ in range(60):
            row = self.random.choice(PLAIN if self.one_in(2) else SOURCES)
            example = self.random.choice(row.examples)
            inputs = [self.random.choice(list(scope)) for text in example.inputs if text]
            if row.name == "view" and not all(name.startswith("i") for name in inputs):
                continue  # the bits of a number show how it was rounded
            attributes = dict(example.attributes)
            if self.one_in(3):
                attributes = self._attributes(row, example)
            specs = self._inferred(row, [scope[name] for name in inputs], attributes)
            if specs:
                names = [self._name() for _ in specs]
                scope.update(zip(names, specs, strict=True))
                return [node(names, row.name, *inputs, **attributes)]
        return []

    def _inferred(
        self, row: Operation, inputs: list[Spec], attributes: dict[str, Any]
    ) -> list[Spec]:
        try:
            found = row.infer(row.arranged(inputs), attributes_of(row, attributes))
        except OperationError:
            return []
        sizes = [_size(each) for each in found]
        return found if len(found) <= 4 and all(size <= MOST for size in sizes) else []

    # Control flow.

    def _function(
        self, inputs: list[Spec], depth: int, wanted: list[Spec], more: int
    ) -> tuple[str, list[Spec]]:
        """A function that gives values of the wanted kinds, and so many more."""
        name = f"f{len(self._functions)}"
        scope = {f"a{at}": spec for at, spec in enumerate(inputs)}
        declared = [value(each, list(spec.shape), spec.dtype) for each, spec in scope.items()]
        made: dict[str, Any] = {}
        self._functions.append(made)
        nodes = self._nodes(scope, self.random.randint(1, 3), depth)
        outputs: list[str] = []
        for spec in wanted:
            alike = [each for each in scope if scope[each] == spec and each not in outputs]
            later = [each for each in alike if each not in [entry["name"] for entry in declared]]
            if later or alike:
                outputs.append((later or alike)[-1])
                continue
            outputs.append(self._name())
            scope[outputs[-1]] = spec
            nodes.append(node(outputs[-1], "ones", shape=list(spec.shape), dtype=spec.dtype))
        others = [each for each in scope if each not in outputs]
        outputs += self.random.sample(others, min(more, len(others)))
        made.update(graph(declared, nodes, outputs, name=name))
        return name, [scope[output] for output in outputs]

    def _some(self, scope: dict[str, Spec], most: int) -> list[str]:
        return [self.random.choice(list(scope)) for _ in range(self.random.randint(1, most))]

    def _placed(self, scope: dict[str, Spec], specs: list[Spec]) -> list[str]:
        names = [self._name() for _ in specs]
        scope.update(zip(names, specs, strict=True))
        return names

    def _call(self, scope: dict[str, Spec], depth: int) -> list[dict[str, Any]]:
        inputs = self._some(scope, 3)
        name, specs = self._function([scope[each] for each in inputs], depth, [], 2)
        return [node(self._placed(scope, specs), "call", *inputs, function=name)] if specs else []

    def _cond(self, scope: dict[str, Spec], depth: int) -> list[dict[str, Any]]:
        inputs = self._some(scope, 3)
        given = [scope[each] for each in inputs]
        then, specs = self._function(given, depth, [], 2)
        if not specs:
            return []
        other, _ = self._function(given, depth, specs, 0)
        if self.one_in(2):
            then, other = other, then
        (picked,) = self._placed(scope, [Spec((), "bool")])
        test = node(picked, "any", self.random.choice(inputs))
        names = self._placed(scope, specs)
        return [test, node(names, "cond", picked, *inputs, then=then, **{"else": other})]

    def _scan(self, scope: dict[str, Spec], depth: int) -> list[dict[str, Any]]:
        rows = [each for each in scope if scope[each].shape]
        if not rows:
            return []
        first = self.random.choice(rows)
        alike = [row for row in rows if scope[row].shape[0] == scope[first].shape[0]]
        sequences = [first] if self.one_in(2) else [first, self.random.choice(alike)]
        carries = self._some(scope, 2)
        constants = self._some(scope, 1) if self.one_in(3) else []
        kinds = [scope[carry] for carry in carries]
        elements = [
            Spec(scope[sequence].shape[1:], scope[sequence].dtype) for sequence in sequences
        ]
        given = [*kinds, *elements, *(scope[constant] for constant in constants)]
        name, specs = self._function(given, depth, kinds, self.random.randint(0, 2))
        length = scope[first].shape[0]
        stacked = [Spec((length, *spec.shape), spec.dtype) for spec in specs[len(carries) :]]
        if any(len(each.shape) > 6 or _size(each) > MOST for each in stacked):
            return []
        names = self._placed(scope, [*specs[: len(carries)], *stacked])
        attributes = {
            "body": name,
            "carries": len(carries),
            "sequences": len(sequences),
            "reverse": self.one_in(2),
        }
        return [node(names, "scan", *carries, *sequences, *constants, **attributes)]

    def _while(self, scope: dict[str, Spec], depth: int) -> list[dict[str, Any]]:
        self._loops = True
        state = self._some(scope, 2)
        kinds = [Spec((), "int32"), *(scope[each] for each in state)]
        body, _ = self._function(kinds, depth, kinds, 0)
        # The counter is the body's first value, one more each round.
        made = next(function for function in self._functions if function.get("name") == body)
        counter, one = self._name(), self._name()
        made["nodes"] += [
            node(one, "ones", shape=[], dtype="int32"),
            node(counter, "add", "a0", one),
        ]
        made["outputs"][0] = counter
        rounds = self.random.choice((0, 1, 3, 10))
        test = f"f{len(self._functions)}"
        declared = [value(f"a{at}", list(spec.shape), spec.dtype) for at, spec in enumerate(kinds)]
        limit, go = self._name(), self._name()
        self._functions.append(
            graph(
                declared,
                [
                    node(limit, "full", shape=[], vals=rounds, dtype="int32"),
                    node(go, "less", "a0", limit),
                ],
                [go],
                name=test,
            )
        )
        (start,) = self._placed(scope, [Spec((), "int32")])
        names = self._placed(scope, kinds)
        return [
            node(start, "zeros", shape=[], dtype="int32"),
            node(names, "while", start, *state, condition=test, body=body, max_iterations=50),
        ]


def _names(each: dict[str, Any]) -> list[str]:
    return each["outputs"] if "outputs" in each else [each["name"]]


def _size(spec: Spec) -> int:
    found = 1
    for side in spec.shape:
        found *= side if isinstance(side, int) else 1
    return found

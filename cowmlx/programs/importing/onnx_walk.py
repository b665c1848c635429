"""The walk over the nodes of an ONNX graph, its functions inlined."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from cowmlx.errors import BadFormat, CowMlxError, Unsupported
from cowmlx.programs.bounds import MAX_NODES, Steps
from cowmlx.programs.failure import shown, text_of
from cowmlx.programs.importing import operators
from cowmlx.programs.importing.failures import ODD, placed
from cowmlx.programs.importing.onnx_nodes import CONVERTERS, OnnxNode
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.values import Value

MAX_DEPTH = 24
"""Functions and graphs within each other."""
SIMPLE = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings"}
OURS = ("", "ai.onnx")
NEWEST = 1 << 16
"""Opsets that a file may name."""


class Walk:
    """Converts nodes in order, and knows the values of names.

    Args:
        scope: the graph that receives operations.
        opsets: versions by domain.
        functions: the file's functions by domain, name and overload.
        folder: where external data may be.
        values: of names that are known already.
        depth: how many graphs and functions are around it.
        attributes: of the function's caller, for attributes that refer to them.
    """

    def __init__(
        self,
        scope: Scope,
        opsets: dict[str, int],
        functions: dict[tuple[str, str, str], Any],
        folder: str,
        values: dict[str, Value],
        depth: int = 0,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        if depth > MAX_DEPTH:
            raise Unsupported(f"functions or graphs are more than {MAX_DEPTH} within each other")
        operators.register()
        self.scope = scope
        self.values = values
        self.opsets = opsets
        self.folder = folder
        self.depth = depth
        self._functions = functions
        self._attributes = attributes or {}
        self.missing: set[str] = set()

    def set(self, name: str, value: Value) -> None:
        """Give a name its value, once."""
        self.values[name] = value

    def nodes_steps(self, protos: Iterable[Any]) -> Steps[None]:
        """Convert nodes, in steps."""
        for proto in protos:
            yield from self.scope.book.pace.rest()
            self.scope.book.converted += 1
            if self.scope.book.converted > MAX_NODES:
                raise Unsupported(f"the graph has more than {MAX_NODES} nodes")
            try:
                results = yield from self._results_steps(proto)
            except RecursionError:
                raise Unsupported("graphs are too deep within each other") from None
            except CowMlxError as error:
                if "node" in error.details:
                    raise
                raise _placed(error, proto) from None
            except ODD as error:  # attributes or inputs that the operator cannot have
                raise _placed(BadFormat(f"the file is damaged: {error}"), proto) from None
            for name, result in zip(proto.output, results, strict=False):
                if name and result is not None:
                    self.set(name, result)

    def inner(self, scope: Scope, values: dict[str, Value] | None = None) -> Walk:
        """Return the walk of a graph within this one."""
        values = values or {}
        made = Walk(
            scope,
            self.opsets,
            self._functions,
            self.folder,
            {**self.values, **values},
            self.depth + 1,
            self._attributes,
        )
        made.missing = self.missing - values.keys()
        return made

    def is_inlined(self, proto: Any) -> bool:
        """Whether a node is converted by the nodes of a function."""
        domain = "" if proto.domain in OURS else proto.domain
        is_own = (proto.domain, proto.op_type, proto.overload) in self._functions
        return is_own or (domain, proto.op_type) not in CONVERTERS

    def _results_steps(self, proto: Any) -> Steps[Sequence[Value | None]]:
        domain = "" if proto.domain in OURS else proto.domain
        inputs = [self._value(name) for name in proto.input]
        _check(proto, domain, self.opsets.get(domain, 0), inputs)
        attributes = self._read(proto)
        own = self._functions.get((proto.domain, proto.op_type, proto.overload))
        if own is not None:
            opsets = {"" if o.domain in OURS else o.domain: o.version for o in own.opset_import}
            return (yield from self._inlined_steps(own, inputs, attributes, opsets))
        node = OnnxNode(self, proto, attributes, inputs, self.opsets.get(domain, 0))
        convert = CONVERTERS.get((domain, proto.op_type))
        if convert is None:
            return (yield from self._definition_steps(node, domain, attributes))
        result = convert(node)
        if isinstance(result, Generator):
            result = yield from result
        return [result] if isinstance(result, Value) else result

    def _value(self, name: str) -> Value | None:
        if not name or name in self.missing:
            return None
        value = self.values.get(name)
        if value is None:
            raise BadFormat(
                f"its input {shown(name)} is no input, initializer or result of a node before it",
                argument=text_of(name)[:64],
            )
        return value

    def _read(self, proto: Any) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in self._attributes:
                    read[attribute.name] = self._attributes[attribute.ref_attr_name]
                continue
            if attribute.type not in SIMPLE:
                field = {9: "tensors", 10: "graphs", 11: "sparse_tensor"}.get(attribute.type)
                if field is None:
                    raise Unsupported(f"its attribute {shown(attribute.name)} is of no known type")
                read[attribute.name] = getattr(attribute, field)
                continue
            value = getattr(attribute, SIMPLE[attribute.type])
            if attribute.type == 3:
                value = value.decode("utf-8", "replace")
            elif attribute.type in (6, 7):
                value = list(value)
            elif attribute.type == 8:
                value = [text.decode("utf-8", "replace") for text in value]
            read[attribute.name] = value
        return read

    def _definition_steps(
        self, node: OnnxNode, domain: str, attributes: dict[str, Any]
    ) -> Steps[Sequence[Value | None]]:
        """Convert a node by the function that ONNX defines it with."""
        import onnx
        from onnx import defs

        reason = operators.REFUSED.get(node.op)
        if reason:
            raise Unsupported(reason)
        if domain not in ("", "ai.onnx.ml") or not defs.has(node.op, node.opset, domain):
            raise Unsupported("there is no such operator among those that are converted")
        schema: Any = defs.get_schema(node.op, node.opset, domain)
        body = None
        if schema.has_function:
            body = schema.function_body
        elif schema.has_context_dependent_function:
            body = _contextual(onnx, schema, node, attributes)
        if body is None or not body.node:
            raise Unsupported("there is no operation for it")
        given = {
            name: _default(onnx, schema.attributes[name])
            for name in schema.attributes
            if name not in attributes and schema.attributes[name].default_value.type
        }
        opsets = {"" if o.domain in OURS else o.domain: o.version for o in body.opset_import}
        opsets.setdefault("", node.opset)
        given |= attributes
        return (yield from self._inlined_steps(body, node.inputs, given, opsets))

    def _inlined_steps(
        self,
        function: Any,
        inputs: Sequence[Value | None],
        attributes: dict[str, Any],
        opsets: dict[str, int],
    ) -> Steps[Sequence[Value | None]]:
        values = {
            name: value
            for name, value in zip(function.input, inputs, strict=False)
            if value is not None
        }
        attributes = {**self._read(_Holder(function.attribute_proto)), **attributes}
        inner = Walk(
            self.scope,
            {**self.opsets, **opsets},
            self._functions,
            self.folder,
            values,
            self.depth + 1,
            attributes,
        )
        inner.missing = {
            name for at, name in enumerate(function.input) if at >= len(inputs) or not inputs[at]
        }
        yield from inner.nodes_steps(function.node)
        return [inner.values.get(name) for name in function.output]


def _placed(error: CowMlxError, proto: Any) -> CowMlxError:
    """Return an error of a node with its place."""
    op, node = text_of(proto.op_type)[:64], text_of(proto.name or next(iter(proto.output), ""))
    return placed(error, f"node {shown(node)} ({op})", op=op, node=node[:64])


def _check(proto: Any, domain: str, opset: int, inputs: Sequence[Value | None]) -> None:
    """Check a node's inputs and the types of its attributes, if ONNX defines its operator.

    Raises:
        BadFormat: an input is missing, or an attribute is of another type.
    """
    from onnx import defs

    if not isinstance(proto.op_type, str) or not isinstance(domain, str):
        raise BadFormat("its operator is no text in UTF-8")
    if not 0 < opset <= NEWEST or not defs.has(proto.op_type, opset, domain):
        return
    schema: Any = defs.get_schema(proto.op_type, opset, domain)
    known = schema.attributes
    for at, formal in enumerate(schema.inputs):
        is_needed = formal.option == defs.OpSchema.FormalParameterOption.Single
        if is_needed and (at >= len(inputs) or inputs[at] is None):
            raise BadFormat(f"has no input {at} ({formal.name})")
    for attribute in proto.attribute:
        declared = known.get(attribute.name)
        if declared is None or attribute.ref_attr_name or not attribute.type:
            continue
        wanted = declared.type
        if attribute.type != wanted.value:
            raise BadFormat(
                f"its attribute {shown(attribute.name)} is of type {attribute.type}, must be "
                f"{wanted.name} ({wanted.value})"
            )


class _Holder:
    """Attributes that are read as those of a node."""

    def __init__(self, attribute: Iterable[Any]) -> None:
        self.attribute = attribute


def _default(onnx: Any, attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        return value.decode()
    return value


def _resolved(onnx: Any, node: OnnxNode, attributes: dict[str, Any]) -> Any:
    """Return a node whose attributes refer to no others."""
    plain = onnx.NodeProto()
    plain.CopyFrom(node.proto)
    referring = [each.name for each in plain.attribute if each.ref_attr_name]
    kept = [each for each in node.proto.attribute if not each.ref_attr_name]
    del plain.attribute[:]
    plain.attribute.extend(kept)
    for name in referring:
        if name in attributes:
            plain.attribute.append(onnx.helper.make_attribute(name, attributes[name]))
    return plain


def _contextual(onnx: Any, schema: Any, node: OnnxNode, attributes: dict[str, Any]) -> Any:
    """Return the function that ONNX makes of a node for the types of its inputs."""
    from cowmlx.programs.importing.onnx_tensors import DTYPES

    numbers = {name: number for number, name in DTYPES.items()}
    types = []
    for value in node.inputs:
        kind = onnx.TypeProto()
        if value is not None:
            kind.tensor_type.elem_type = numbers[value.dtype]
            for side in value.shape:
                entry = kind.tensor_type.shape.dim.add()
                if isinstance(side, int):
                    entry.dim_value = side
                else:
                    entry.dim_param = str(side)
        types.append(kind.SerializeToString())
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
    version = max(versions, default=schema.since_version)
    try:
        raw = schema.get_context_dependent_function_with_opset_version(
            version, _resolved(onnx, node, attributes).SerializeToString(), types
        )
    except Exception as error:
        raise Unsupported(f"ONNX gives no function for it: {error}") from error
    body = onnx.FunctionProto()
    body.ParseFromString(raw)
    return body

"""A run of fused layers: taking a step with the caches that a network was called with."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from cowmlx.accelerate import kernels, positions
from cowmlx.accelerate.fused.caches import Shape, form_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.accelerate.fused.caches import Growing
    from cowmlx.accelerate.rope import RoPETables


class Rounding(NamedTuple):
    """How layers that compute in float32 round."""

    activations: bool = False
    """Whether activations are rounded, as in :class:`InBlocks`."""
    kv_type: mx.Dtype | None = None
    """The type of keys and values that are not quantized; None: that of the activations."""


EXACT = Rounding()


class Run:
    """Layers behind each other that are computed as one operation.

    Args:
        width: H, of activations.
        layers: descriptions, see ``parts.py``, with "angles" (RoPETables or None) and "window".
        rounding: of activations, keys and values.
        embedding, scale, norm, head: what comes before and behind, where it belongs to the run.
    """

    def __init__(
        self,
        width: int,
        layers: list[dict[str, Any]],
        rounding: Rounding = EXACT,
        *,
        embedding: Any = None,
        scale: float = 1.0,
        norm: Any = None,
        head: Any = None,
    ) -> None:
        self._module = kernels.module()
        self._tables: list[RoPETables] = []
        keys: list[Any] = []
        kinds: dict[tuple[str, int], int] = {}
        self._shapes: list[Shape] = []
        self._kinds: list[int] = []
        described = []
        for layer in layers:
            half = dict(layer["attention"])
            angles, window = layer["angles"], layer["window"]
            table = -1
            if angles is not None:
                if angles.key not in keys:
                    keys.append(angles.key)
                    self._tables.append(angles)
                table = keys.index(angles.key)
            kind = layer["cache"], window
            half |= {
                "table": table,
                "turning": 0 if angles is None else angles.dims,
                "traditional": angles is not None and angles.traditional,
                "window": window,
                "place": kinds.setdefault(kind, len(kinds)),
            }
            self._kinds.append(half["place"])
            groups = half["groups"]
            dims = half["key"].rows // groups, half["value"].rows // groups
            self._shapes.append(Shape(groups, *dims, window))
            described.append({"attention": half, "mlp": layer.get("mlp")})
        ends = {"embedding": embedding, "scale": scale, "norm": norm, "head": head}
        self._layers = self._module.make_layers(width, described, rounding.activations, ends)
        self._kv_type = rounding.kv_type
        self._firsts = [self._kinds.index(kind) for kind in range(len(kinds))]

    def __deepcopy__(self, memo: Any) -> None:
        """Nothing: a copy of a network may get other weights, and proves its layers again."""
        return None

    def decode(self, ids: mx.array, caches: list[Any], form: Growing) -> mx.array | None:
        """Take a token of every row through the layers and the head.

        Args:
            ids: (B,).
            caches: of the layers; they hold the tokens afterwards.
            form: of the first of them.

        Returns:
            logits (B, V) of float32; None, and nothing has changed, if caches or angles have no
            room for it, or are of another kind.
        """
        angles = [table for each in self._tables for table in each.tables]
        made: mx.array | None = self._module.decode_layers(
            self._layers, ids, caches, form.batched, form.quantized, angles,
            positions.shifts() or [],
        )  # fmt: skip
        return made

    def _common(
        self, forms: list[Any], caches: list[Any], rows: int, tokens: int
    ) -> tuple[list[int], tuple[int, int]] | None:
        """Return the first positions of rows and the format of all caches; None if these differ."""
        if len(caches) != len(self._shapes) or not tokens:
            return None
        for form, cache, shape in zip(forms, caches, self._shapes, strict=True):
            if form is None or not form.fits(cache, shape, rows, tokens):
                return None
        first = forms[0]
        offsets: list[int] = first.offsets(caches[0], rows)
        kv_format: tuple[int, int] = first.format(caches[0])
        for form, cache in zip(forms, caches, strict=True):
            if form is not first and form.offsets(cache, rows) != offsets:
                return None
            if form.format(cache) != kv_format:
                return None
        if shifts := positions.shifts():
            offsets = [offset + by for offset, by in zip(offsets, shifts, strict=True)]
        return offsets, kv_format

    def take(
        self, x: mx.array, caches: list[Any], dtype: mx.Dtype, out_type: mx.Dtype, lazy: bool
    ) -> mx.array | None:
        """Take tokens (B, T) or activations (B, T, H) through the layers.

        Args:
            x: what the run begins with.
            caches: of the layers; they hold the step's tokens afterwards.
            dtype: of keys and values in an empty cache, unless the run's rounding gives one; of
                scales in an empty cache of quantized ones.
            out_type: of the activations.
            lazy: whether what the last layer does after it has written its cache is computed apart,
                so that it costs nothing where it is not wanted.

        Returns:
            activations (B, T, H); None, and nothing has changed, if the caches are others than
            fused layers use.
        """
        rows, tokens = x.shape[0], x.shape[1]
        forms: list[Any] = [form_of(cache) for cache in caches]
        found = self._common(forms, caches, rows, tokens)
        if found is None:
            return None
        offsets, (bits, group) = found
        end = max(offsets) + tokens
        angles = [table for each in self._tables for table in each.upto(end)]
        each = 6 if bits else 2  # buffers of a layer
        if self._kv_type is not None and not bits:
            dtype = self._kv_type
        buffers: list[mx.array] = []
        try:
            for form, cache, shape in zip(forms, caches, self._shapes, strict=True):
                buffers += form.room(cache, shape, rows, tokens, dtype)
            places = [
                forms[i].place(caches[i], self._shapes[i], rows, tokens, buffers[each * i].shape[2])
                for i in self._firsts
            ]
            part = "store_last" if lazy else "all"
            step = self._module.step_layers
            made = step(
                self._layers, x, offsets, places, angles, buffers, part,
                type=mx.float32 if lazy else out_type, bits=bits, group=group,
            )  # fmt: skip
        except BaseException:  # other rows of the caches continue
            for form, cache, at in zip(forms, caches, range(0, len(buffers), each), strict=False):
                form.give_back(cache, buffers[at : at + each])
            raise
        last = made[-each:]
        for form, cache, at in zip(forms, caches, range(1, len(made), each), strict=True):
            form.took(cache, made[at : at + each], tokens)
        if not lazy:
            return made[0]
        return step(
            self._layers, made[0], offsets, places, angles, last, "finish_last", type=out_type,
            bits=bits, group=group,
        )[0]  # fmt: skip

    def convert_caches(self, arguments: list[Any]) -> None:
        """Convert keys and values that the network's own code has written to the run's type.

        Args:
            arguments: of a call of that code, among them a cache or a list of caches.
        """
        if self._kv_type is None:
            return
        for given in arguments:
            for cache in given if isinstance(given, list) else [given]:
                form = form_of(cache)
                if form is not None:
                    form.convert(cache, self._kv_type)

"""The frame of an encoder: embeddings, layers, and the names of stored weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm

from cowmlx.folders.config import invalid_config
from cowmlx.networks.encoders.heads import ClassificationHead
from cowmlx.networks.encoders.layers import MLP, Attention, Layer, Texts
from cowmlx.networks.encoders.options import Labels, Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Protocol

    class Joined(Protocol):
        """Computes neighbouring layers of an encoder together."""

        def take(
            self,
            x: mx.array,
            texts: Texts,
            masks: Sequence[Sequence[mx.array | None] | None],
            first: int,
            end: int,
        ) -> mx.array | None:
            """Return what layers [first, end) give, or None if it does not take these."""


Names = tuple[tuple[str, str], ...]
Args = TypeVar("Args", bound="EncoderArgs")

# Layers whose weights are stored as one.
_JOINED = {"query_key_value": ("query", "key", "value"), "gate_up": ("gate", "up")}
_SEEN = 2  # tokens with which a network is tried
_OLD_NORMS = ((".gamma", ".weight"), (".beta", ".bias"))  # of checkpoints from TensorFlow


@dataclass
class EncoderArgs:
    """The sizes of an encoder, whatever its config calls them.

    Attributes:
        vocabulary: tokens.
        dims: D.
        layers: how many.
        heads: of attention.
        hidden: between the layers of an MLP.
        positions: rows of the table of positions; 0: there is none.
        first_position: the row of a text's first token.
        segments: rows of the table of token types; 0: there is none.
        embedding: the width of embeddings, before they are mapped to D.
        length: the most tokens of a text.
        activation: of the MLPs.
        eps: of the norms.
        labels: of a head, or None.
        norm_bias: whether norms have a bias.
    """

    vocabulary: int = 0
    dims: int = 0
    layers: int = 0
    heads: int = 0
    hidden: int = 0
    positions: int = 0
    first_position: int = 0
    segments: int = 0
    embedding: int = 0
    length: int = 0
    activation: str = "gelu"
    eps: float = 1e-12
    labels: Labels | None = None
    norm_bias: bool = True

    @classmethod
    def read(cls: type[Args], config: dict[str, Any], *, offset: bool = False) -> Args:
        """Read a config with BERT's keys.

        Args:
            config: what ``config.json`` says.
            offset: whether positions begin behind that of padding, as RoBERTa's do.

        Raises:
            BadFormat: a value is missing or odd.
        """
        options = Options(config)
        options.fixed("is_decoder", False)
        options.fixed("add_cross_attention", False)
        options.fixed("position_embedding_type", "absolute")
        dims, positions = options.size("hidden_size"), options.size("max_position_embeddings")
        first = options.size("pad_token_id", 1, least=0) + 1 if offset else 0
        if positions <= first:
            raise invalid_config(
                f"max_position_embeddings is {positions}, not above {first}, the first position",
                key="max_position_embeddings",
                value=positions,
            )
        args = cls(
            vocabulary=options.size("vocab_size"),
            dims=dims,
            layers=options.size("num_hidden_layers", least=0),
            heads=options.size("num_attention_heads"),
            hidden=options.size("intermediate_size"),
            positions=positions,
            first_position=first,
            segments=options.size("type_vocab_size", 2, least=0),
            embedding=options.size("embedding_size", dims),
            length=positions - first,
            activation=options.activation("hidden_act"),
            eps=options.number("layer_norm_eps", 1e-12),
            labels=options.labels(),
        )
        args.check_heads()
        return args

    def check_heads(self) -> None:
        """Require heads that share D.

        Raises:
            BadFormat: they do not.
        """
        if self.dims % self.heads:
            raise invalid_config(
                f"num_attention_heads is {self.heads}, which does not divide hidden_size "
                f"{self.dims}",
                key="num_attention_heads",
                value=self.heads,
            )


class Embeddings(Module):
    """Sums of the embeddings of tokens, positions and token types, with a norm."""

    def __init__(self, args: EncoderArgs) -> None:
        super().__init__()
        self.word = Embedding(args.vocabulary, args.embedding)
        self.first_position = args.first_position
        if args.positions:
            self.position = Embedding(args.positions, args.embedding)
        if args.segments:
            self.token_type = Embedding(args.segments, args.embedding)
        self.norm = LayerNorm(args.embedding, args.eps, bias=args.norm_bias)
        if args.embedding != args.dims:
            self.project = Linear(args.embedding, args.dims)

    def __call__(self, tokens: mx.array, texts: Texts, segments: mx.array | None) -> mx.array:
        """Return (N, D) of tokens (N,)."""
        x = _wide(self.word(tokens))
        if "position" in self:
            x = x + self.position(texts.positions + self.first_position)
        if "token_type" in self:
            kinds = mx.zeros((1,), mx.int32) if segments is None else segments
            x = x + self.token_type(kinds)
        return self.finished(x)

    def finished(self, x: mx.array) -> mx.array:
        """Map sums of embeddings to activations."""
        x = self.norm(x)
        return self.project(x) if "project" in self else x


def _apart(name: str, array: mx.array) -> list[tuple[str, mx.array]]:
    """Return the parts of a weight of several layers: their rows stand behind each other."""
    for joined, parts in _JOINED.items():
        before, found, behind = name.rpartition(f".{joined}.")
        if found:
            rows = array.shape[0] // len(parts)
            return [
                (f"{before}.{part}.{behind}", array[index * rows : (index + 1) * rows])
                for index, part in enumerate(parts)
            ]
    return [(name, array)]


def _wide(x: mx.array) -> mx.array:
    """Return activations as float32 on a CPU, whose products with 16 bits are no faster."""
    return x.astype(mx.float32) if mx.default_device().type == mx.cpu else x


class Encoder(Module):
    """An encoder; subclasses say what its parts are, and how stored weights are named.

    Attributes:
        vocabulary_size: tokens that it knows.
        context_length: the most tokens of a text.
        dims: D.
        labels: of its head, or None.
        pairs: whether token types tell the two texts of a pair apart.
        token_types: how many it knows.
    """

    is_encoder = True
    prefixes: tuple[str, ...] = ()
    names: Names = ()
    head_names: Names = ()
    unused: tuple[str, ...] = ()

    def __init__(self, args: EncoderArgs) -> None:
        super().__init__()
        self.vocabulary_size, self.context_length = args.vocabulary, args.length
        self.dims, self.labels = args.dims, args.labels
        self.pairs, self.token_types = args.segments > 1, args.segments
        self.embeddings = self.make_embeddings(args)
        self.layers = [self.make_layer(args, index) for index in range(args.layers)]
        if args.labels is not None:
            self.head = self.make_head(args, args.labels)
        self._joined: Joined | None = None

    def make_embeddings(self, args: EncoderArgs) -> Module:
        """Return what turns tokens into activations."""
        return Embeddings(args)

    def make_layer(self, args: EncoderArgs, index: int) -> Module:
        """Return a layer."""
        attention = Attention(args.dims, args.heads)
        mlp = MLP(args.dims, args.hidden, args.activation)
        return Layer(attention, mlp, args.dims, args.eps)

    def make_head(self, args: EncoderArgs, labels: Labels) -> ClassificationHead:
        """Return the head of a classifier."""
        activation = None if labels.of_tokens else "tanh"
        return ClassificationHead(args.dims, labels, activation)

    def masks(self, texts: Texts) -> Sequence[Sequence[mx.array | None] | None]:
        """Return what is masked, or added to scores: for each layer, for each group."""
        return [None] * len(self.layers)

    def last(self, x: mx.array) -> mx.array:
        """Return the hidden states that the last layer's activations give."""
        return x

    def join(self, joined: Joined | None) -> None:
        """Let something else compute neighbouring layers together; None: each by its own code."""
        self._joined = joined

    def states(
        self, tokens: mx.array, texts: Texts, segments: mx.array | None = None, every: int = 1
    ) -> Iterator[mx.array]:
        """Yield the activations (N, D) behind the embeddings and some layers at a time, lazily.

        Args:
            tokens: of all texts, (N,).
            texts: their lengths.
            segments: the token type of each, or None for 0.
            every: how many layers.
        """
        x = self.embeddings(tokens, texts, segments)
        if not self.layers:
            yield self.last(x)
            return
        yield x
        masks, count = self.masks(texts), len(self.layers)
        for first in range(0, count, every):
            end = min(count, first + every)
            x = self._through(x, texts, masks, first, end)
            yield self.last(x) if end == count else x

    def _through(
        self,
        x: mx.array,
        texts: Texts,
        masks: Sequence[Sequence[mx.array | None] | None],
        first: int,
        end: int,
    ) -> mx.array:
        """Take activations through layers [first, end)."""
        if self._joined is not None and not self._training:
            made = self._joined.take(x, texts, masks, first, end)
            if made is not None:
                return made
        for layer, own in zip(self.layers[first:end], masks[first:end], strict=True):
            x = layer(x, texts, own)
        return x

    def __call__(self, ids: mx.array, cache: Any = None) -> mx.array:
        """Return the hidden states (B, T, D) of texts of one length, (B, T)."""
        texts = Texts([ids.shape[1]] * ids.shape[0])
        *_, x = self.states(ids.reshape(-1), texts)
        return x.reshape(*ids.shape, -1)

    def make_cache(self) -> list[Any]:
        """Return an empty list: nothing is kept between calls."""
        return []

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """Give stored weights their names here, and leave out those of parts that are not used."""
        placed = {}
        for stored, array in weights.items():
            name = self.place(stored)
            if name is not None:
                placed[name] = array
        return {own: part for name, array in placed.items() for own, part in _apart(name, array)}

    def place(self, name: str) -> str | None:
        """Return the name of a stored weight in this network; None if nothing uses it."""
        for old, new in _OLD_NORMS:
            if name.endswith(f"LayerNorm{old}"):
                name = name.removesuffix(old) + new
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        if self.labels is not None:
            for pattern, replacement in self.head_names:
                changed, count = re.subn(rf"^{pattern}\.", f"head.{replacement}.", name)
                if count:
                    return changed
            if name.startswith("head."):  # as converted folders have them
                return name
        if name.startswith(self.unused):
            return None
        for pattern, replacement in self.names:
            changed, count = re.subn(rf"^{pattern}\.", f"{replacement}.", name)
            if count:
                return changed
        return name

    def quant_predicate(self, path: str, module: Any) -> bool:
        """Whether a layer is quantized: no small tables, and no head."""
        small = path.endswith((".position", ".token_type", "relative")) or path.startswith("head.")
        return hasattr(module, "to_quantized") and not small

    def prove(self) -> int:
        """Trace texts through the network; nothing is evaluated.

        Returns:
            The tokens that it knows.
        """
        self(mx.zeros((1, min(_SEEN, self.context_length)), mx.int32))
        return self.vocabulary_size

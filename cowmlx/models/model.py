"""A loaded model: network, tokenizer, chat template and what is known about them."""

from __future__ import annotations

import copy
import weakref
from functools import cached_property
from itertools import count

from cowmlx import failures, resources
from cowmlx.accelerate.device import fuse_layers
from cowmlx.errors import Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import weights
from cowmlx.models import chat_format, config_types, headless, ranking
from cowmlx.models.network import is_encoder, positions
from cowmlx.networks import light_route
from cowmlx.remembered import Remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.device import Form
    from cowmlx.machines.network import RemoteNetwork
    from cowmlx.models.fingerprint import Fingerprint
    from cowmlx.models.images import ImageStore, NoImages
    from cowmlx.models.registry import Folder
    from cowmlx.text.chat_template import ChatTemplate
    from cowmlx.vision.encoder import ImageEncoder


_versions = count(1)
_uses = count(1)


class Model:
    """A network ready to run, with its tokenizer and chat template. Holds no state of a generation.

    Attributes:
        network: the ``mlx.Module``; called with tokens (B, T) and a cache it gives logits
            (B, T, :attr:`vocabulary_size`).
        config: ``config.json`` with what loading added to it.
        architecture: its ``model_type``.
        route: "light", or "mlx-lm" if mlx-lm itself had to be imported.
        package: the package that the network's modules belong to; its ``models.cache`` has the
            cache classes that go with the network.
        tokenizer: the tokenizer.
        chat_template: the chat template, or None.
        is_encoder: whether it makes vectors or labels of whole texts, and generates nothing.
        context_length: the tokens the model was made for, see :func:`config.context_length`.
        vocabulary_size: rows of the logits, often more than the tokenizer has tokens.
        end_tokens: the tokens that end a generation: the config's and the tokenizer's.
        parameters: number of parameters; a quantized weight counts the numbers it stands for.
        nbytes: bytes of all arrays.
        quantization: the quantization settings, or None.
        path: the folder.
        sentences: what sentence-transformers' files say of its vectors, or None.
        name: its repository's name, or its folder's.
        unread: its weights, if they were left on disk.
        form: the form of its weights on this device.
        labels: those of its classification head, or None without one.
        generates: whether its logits are those of next tokens.
        split: how it is split between machines: "tensor" or "pipeline"; None on one machine.
        folder_print: the hash of its folder, equal on all machines; None on one machine.
        weights_version: a number, unique in this process for a set of weights.
        images: those in its prompts, or why it takes none; None if it has no tower.
        remembered: results of probes of these weights.
        make_room: makes room for weights that are about to be read; called with their bytes, those
            that reading them takes at its peak, and this model.
        used: when its weights were last asked for, as a number that rises.
    """

    def __init__(
        self,
        folder: Folder,
        form: Form,
        *,
        chat_template: ChatTemplate | None,
        settings: dict[str, Any],
        end_tokens: frozenset[int],
        unread: weights.Unread | None = None,
        images: ImageStore | NoImages | None = None,
    ) -> None:
        net, config, tokenizer = folder.network, folder.config, folder.tokenizer
        self.network = net
        self.config = config
        self.architecture: str = config["model_type"]
        self.route, self.package = folder.route, folder.package
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self.is_encoder = is_encoder(net)
        own_length = net.context_length if self.is_encoder else None
        length = own_length or config_files.context_length(config, folder.settings)
        self.context_length: int = min(length, positions(net) or length)
        self.vocabulary_size = folder.width or tokenizer.vocabulary_size
        self.end_tokens = end_tokens
        self.parameters, self.nbytes = weights.count(net), weights.nbytes(net)
        self.quantization: dict[str, Any] | None = config.get("quantization")
        self.path, self.name = folder.path, folder.name
        self.sentences = folder.sentences
        self.form = form
        self.labels = ranking.names_of(net, config)
        bare = self.is_encoder or headless.is_noted(net)
        self.generates = self.labels is None and not bare
        self.weights_version = next(_versions)
        self.remembered = Remembered()
        self.split: str | None = None
        self.folder_print: str | None = None
        self.images = images
        self._settings = settings
        self._unread = unread
        self._kernels: dict[str, Any] | None = None
        self.make_room: Callable[[int, int, Model], Iterator[object]] | None = None
        self.used = next(_uses)
        self._slept: Fingerprint | None = None  # of the weights that it had when it fell asleep

    def run_on(
        self, network: RemoteNetwork, split: str, folder_print: str, kernels: dict[str, Any] | None
    ) -> None:
        """Let ranks compute from now on, and drop the weights here.

        Args:
            network: theirs.
            split: how they share it.
            folder_print: the hash of their folder and of this one.
            kernels: those that the first rank computes with.
        """
        self.network = network  # type: ignore[assignment]
        self.split = split
        if self.images is not None:
            from cowmlx.models.images import NoImages  # late: few models take images

            self.images = NoImages(self._on_one_machine("images"))
        self.folder_print = folder_print
        self._kernels = kernels
        # They go as soon as no context is left.
        weakref.finalize(network, network.group.close)

    def explained(self, error: BaseException) -> BaseException:
        """Return the error to report for one that the network may have raised."""
        return config_types.blamed(error, self.config, self.network)

    def require_one_machine(self, what: str) -> None:
        """Refuse what ranks cannot do.

        Raises:
            Unsupported: the model runs on several machines.
        """
        if self.split is not None:
            raise self._on_one_machine(what)

    def require_ranks(self) -> None:
        """Make sure that the machines of a model on several are there.

        Raises:
            Lost: one is lost.
        """
        if self.split is None:
            return
        network: Any = self.network
        network.group.poll()
        lost = network.group.lost
        if lost is not None:
            raise lost

    @staticmethod
    def _on_one_machine(what: str) -> Unsupported:
        return Unsupported(
            f"{what}: not yet with a model on several machines; load it without workers",
            argument="workers",
        )

    @property
    def tasks(self) -> list[str]:
        """What calls can do with it."""
        if self.split is not None:
            return ["generate"] if self.generates else []
        if self.labels is None:
            return ["generate", "embed", "rank"] if self.generates else ["embed"]
        if self.is_encoder and self.network.labels.of_tokens:
            return ["embed", "classify"]
        return ["embed", "rank", "classify"]

    def require_generation(self, what: str) -> None:
        """Refuse what needs a network that generates.

        Raises:
            Unsupported: the model is an encoder, or has no head for tokens.
        """
        if self.generates:
            return
        kind = "has no head for tokens, and"
        if self.is_encoder:
            kind = "is an encoder, which"
        elif self.labels is not None:
            kind = "is a classifier, which"
        tasks = f"its tasks are {', '.join(self.tasks)}"
        if not self.tasks:
            tasks = "on several machines it has no tasks"
        raise Unsupported(
            f"{what}: this {self.architecture} model {kind} generates nothing; {tasks}",
            argument="model",
            value=self.architecture,
        )

    def require_image_encoder(self) -> ImageEncoder[Any]:
        """Return its image encoder.

        Raises:
            Unsupported: it takes no images.
        """
        from cowmlx.models.images import ImageStore, NoImages  # late: few models take images

        if isinstance(self.images, ImageStore):
            return self.images.encoder
        if isinstance(self.images, NoImages):
            raise failures.kept(self.images.error)
        raise Unsupported(
            f"this {self.architecture} model takes text only", value=self.architecture
        )

    def require_task(self, task: str) -> None:
        """Refuse a task that needs a head that the model does not have.

        Raises:
            Unsupported: it is none of :attr:`tasks`.
        """
        if task not in self.tasks:
            raise Unsupported(
                f"this {self.architecture} model has no head for that; its tasks are "
                f"{', '.join(self.tasks)}",
                argument="model",
                value=self.architecture,
            )

    def with_network(self, network: Module) -> Model:
        """Return this model with another network of the same shape, such as one with an adapter."""
        other = copy.copy(self)
        other.network = network
        other._kernels = None
        other.weights_changed()
        return other

    def weights_changed(self) -> None:
        """Forget the results of probes of the earlier weights."""
        self.weights_version = next(_versions)
        self.remembered = Remembered()
        self._kernels = None

    def read_weights(self) -> None:
        """Read the weights that are on disk, all at once: see :meth:`read_steps`."""
        for _ in self.read_steps():
            pass

    def read_steps(self) -> Generator[None, None, None]:
        """Read the weights that a lazy load or sleep left on disk; nothing once they are read.

        Before anything computes with them.

        Raises:
            InputOutput: they cannot be read, now and ever: mlx takes it for read then. Or they are
                others than before the sleep.
            OutOfMemory: there is no memory for them now.
        """
        self.used = next(_uses)
        if self._unread is not None:
            if self._unread.pending and self.make_room is not None:
                for _ in self.make_room(*self._unread.bytes_to_load(self.form.passing), self):
                    yield
            for _ in self._unread.steps():
                yield
        if self._slept is not None:
            yield from self._check_weights()
        self.fuse_layers()

    @property
    def is_read(self) -> bool:
        """Whether its weights are in memory, and neither left on disk nor refused."""
        return self._unread is None or not self._unread.pending

    @property
    def is_asleep(self) -> bool:
        """Whether its weights are on disk since a sleep, or not yet checked after one."""
        return self._slept is not None

    def fall_asleep(self, blank: Model, known: Fingerprint) -> None:
        """Leave the weights on disk until something needs them.

        The network stays the same object, so what refers to it need not know.

        Args:
            blank: the same model, whose weights were left on disk.
            known: the fingerprint of the weights in memory.

        Raises:
            NotFound, OutOfMemory: nothing has changed.
        """
        network = self.network
        unread = weights.Unread(network, weights.shards(self.path), self.path)
        _become(network, blank.network)
        self._unread, self._slept, self._kernels = unread, known, None
        encoder = getattr(self.images, "encoder", None)
        if encoder is not None:
            encoder.drop_tower()
        for what in ("fingerprint", "hidden states", "mtp head"):
            self.remembered.forget(what)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of its weights, if they are read, with those of its tower."""
        encoder = getattr(self.images, "encoder", None)
        return (self.nbytes if self.is_read else 0) + (0 if encoder is None else encoder.nbytes)

    def _check_weights(self) -> Generator[None, None, None]:
        """Make sure that the weights are those from before the sleep.

        Raises:
            InputOutput: they are others, now and ever.
        """
        from cowmlx.models import fingerprint  # late: few models sleep

        found = yield from fingerprint.compute(self, read=True)
        if self._slept not in (None, found) and self._unread is not None:
            damage = f"{self.path} is another model than it was when this one fell asleep"
            self._unread.refuse(damage)
            self.remembered.forget("fingerprint")
            weights.drop(self.network)
            resources.give_back()
            self._unread.read()
        self._slept = None

    def fuse_layers(self) -> None:
        """Let kernels compute the layers, once the weights are read; nothing if it was done."""
        if self._kernels is None and self.is_read and self.split is None:
            self._kernels = fuse_layers(self.network, self.make_cache, self.form)

    def make_cache(self) -> list[Any]:
        """Return a fresh cache, one entry per layer that has one."""
        cache: list[Any] = light_route.cache_module(self.package).make_prompt_cache(self.network)
        return cache

    @property
    def is_fused(self) -> bool:
        """Whether kernels compute layers as one operation, or may once the weights are read."""
        if self._kernels is None:
            return self.form.on_cpu and not self.form.why_not
        return bool(self._kernels.get("fused"))

    @property
    def unread_bytes(self) -> int:
        """Bytes of weights that are still on disk."""
        return self.nbytes if self._unread is not None and self._unread.pending else 0

    @cached_property
    def chat_format(self) -> chat_format.ChatFormat:
        """What structures the model's answers in a chat."""
        return chat_format.ChatFormat(self.tokenizer, self._tool_parser())

    @property
    def summary(self) -> str:
        """What was loaded, in one line."""
        bits = self.quantization.get("bits") if isinstance(self.quantization, dict) else None
        packed = f", {bits} bits" if bits else ""
        return (
            f"{self.path}: {self.architecture}{packed}, {self.parameters:,} parameters, "
            f"{self.nbytes / 1e6:.1f} MB, {self.route} route"
        )

    def _tool_parser(self) -> str | None:
        sources = self.chat_template.sources if self.chat_template is not None else {}
        return chat_format.tool_parser(self.tokenizer, sources, self._settings)

    def info(self) -> dict[str, Any]:
        """Describe the model as JSON-ready values."""
        tokenizer = self.tokenizer
        parser = self._tool_parser()
        from cowmlx.text import infill  # late: a load needs none of it

        thinking = chat_format.thinking(tokenizer)
        return {
            "architecture": self.architecture,
            "route": self.route,
            "name": self.name,
            "path": self.path,
            "parameters": self.parameters,
            "bytes": self.nbytes,
            "quantization": self.quantization,
            "tasks": self.tasks,
            "labels": self.labels,
            "sentences": None if self.sentences is None else self.sentences.info(),
            "context_length": self.context_length,
            "vocabulary_size": self.vocabulary_size,
            "tokenizer_size": tokenizer.vocabulary_size,
            "bos_token": self._token("bos_token"),
            "eos_token": self._token("eos_token"),
            "special_tokens": {
                name: self._token(name) for name in sorted(tokenizer.special_tokens)
            },
            "end_tokens": [
                {"id": token, "text": self._text(token)} for token in sorted(self.end_tokens)
            ],
            "asleep": self.is_asleep,
            "activations": self.form.activations,
            "kernels": self._kernels,
            "split": self.split,
            "ranks": self._ranks(),
            "chat_template": self.chat_template is not None,
            "tools": self.chat_template is not None and self.chat_template.takes_tools,
            "tool_parser": parser,
            "tool_markers": chat_format.tool_markers(parser),
            "infill": infill.markers_of(tokenizer) is not None,
            "thinking": thinking is not None,
            "thinking_markers": thinking,
        }

    def _ranks(self) -> list[dict[str, Any]] | None:
        if self.split is None:
            return None
        network: Any = self.network
        network.group.poll()
        return [peer.info() for peer in network.group.peers]

    def _token(self, name: str) -> dict[str, Any] | None:
        text = self.tokenizer.special_tokens.get(name)
        return None if text is None else {"id": self.tokenizer.token_id(text), "text": text}

    def _text(self, token: int) -> str:
        known = 0 <= token < self.tokenizer.limit
        return self.tokenizer.id_to_text(token) if known else ""


def _become(network: Module, other: Module) -> None:
    """Let a network have what another of the same form has.

    All memory is allocated before anything is replaced; dropping the rest allocates none.
    """
    pairs = ((network, other), (vars(network), vars(other)))
    left = [(own, key) for own, new in pairs for key in own if key not in new]
    for own, new in pairs:
        dict.update(own, new)  # that of modules replaces parameters
    for own, key in left:
        dict.pop(own, key)

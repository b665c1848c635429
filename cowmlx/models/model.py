"""A loaded model: network, tokenizer, chat template and what is known about them."""

from __future__ import annotations

import copy
import weakref
from functools import cached_property
from itertools import count

from cowmlx.accelerate.device import fuse_layers
from cowmlx.errors import Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import weights
from cowmlx.models import chat_format, ranking
from cowmlx.networks import light_route
from cowmlx.remembered import Remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.device import Form
    from cowmlx.machines.network import RemoteNetwork
    from cowmlx.models.registry import Folder
    from cowmlx.text.chat_template import ChatTemplate


_versions = count(1)


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
        context_length: the tokens the model was made for, see :func:`config.context_length`.
        vocabulary_size: rows of the logits, often more than the tokenizer has tokens.
        end_tokens: the tokens that end a generation: the config's and the tokenizer's.
        parameters: number of parameters; a quantized weight counts the numbers it stands for.
        nbytes: bytes of all arrays.
        quantization: the quantization settings, or None.
        path: the folder.
        name: its repository's name, or its folder's.
        unread: its weights, if they were left on disk.
        form: the form of its weights on this device.
        labels: those of its classification head, or None without one.
        split: how it is split between machines: "tensor" or "pipeline"; None on one machine.
        folder_print: the hash of its folder, equal on all machines; None on one machine.
        weights_version: a number, unique in this process for a set of weights.
        remembered: results of probes of these weights.
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
    ) -> None:
        net, config, tokenizer = folder.network, folder.config, folder.tokenizer
        self.network = net
        self.config = config
        self.architecture: str = config["model_type"]
        self.route, self.package = folder.route, folder.package
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self.context_length = config_files.context_length(config, folder.settings)
        self.vocabulary_size = folder.width or tokenizer.vocabulary_size
        self.end_tokens = end_tokens
        self.parameters, self.nbytes = weights.count(net), weights.nbytes(net)
        self.quantization: dict[str, Any] | None = config.get("quantization")
        self.path, self.name = folder.path, folder.name
        self.form = form
        self.labels = ranking.names_of(net, config)
        self.weights_version = next(_versions)
        self.remembered = Remembered()
        self.split: str | None = None
        self.folder_print: str | None = None
        self._settings = settings
        self._unread = unread
        self._kernels: dict[str, Any] | None = None

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
        self.folder_print = folder_print
        self._kernels = kernels
        # They go as soon as no context is left.
        weakref.finalize(network, network.group.close)

    def require_one_machine(self, what: str) -> None:
        """Refuse what ranks cannot do.

        Raises:
            Unsupported: the model runs on several machines.
        """
        if self.split is not None:
            raise Unsupported(
                f"{what}: not yet with a model on several machines; load it without workers",
                argument="workers",
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
        """Read the weights that a lazy load left on disk; before anything computes with them.

        Raises:
            InputOutput: they cannot be read, now and ever: mlx takes it for read then.
            OutOfMemory: there is no memory for them now.
        """
        if self._unread is not None:
            self._unread.read()
        self.fuse_layers()

    def fuse_layers(self) -> None:
        """Let kernels compute the layers, once the weights are read; nothing if it was done."""
        read = self._unread is None or not self._unread.pending
        if self._kernels is None and read and self.split is None:
            self._kernels = fuse_layers(self.network, self.make_cache, self.form)

    def make_cache(self) -> list[Any]:
        """Return a fresh cache, one entry per layer that has one."""
        cache: list[Any] = light_route.cache_module(self.package).make_prompt_cache(self.network)
        return cache

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
        source = next(iter(sources.values())) if list(sources) == ["default"] else None
        return chat_format.tool_parser(self.tokenizer, source, self._settings)

    def info(self) -> dict[str, Any]:
        """Describe the model as JSON-ready values."""
        tokenizer = self.tokenizer
        parser = self._tool_parser()
        thinking = chat_format.thinking(tokenizer)
        return {
            "architecture": self.architecture,
            "route": self.route,
            "name": self.name,
            "path": self.path,
            "parameters": self.parameters,
            "bytes": self.nbytes,
            "quantization": self.quantization,
            "labels": self.labels,
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
            "activations": self.form.activations,
            "kernels": self._kernels,
            "split": self.split,
            "ranks": self._ranks(),
            "chat_template": self.chat_template is not None,
            "tools": self.chat_template is not None and self.chat_template.takes_tools,
            "tool_parser": parser,
            "tool_markers": chat_format.tool_markers(parser),
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

"""The calls of models, and of adapters for them."""

from __future__ import annotations

import gc
from weakref import WeakKeyDictionary, WeakSet

import mlx.core as mx

from cowmlx import interpreter, resources
from cowmlx.accelerate import rope
from cowmlx.cache.layers import BITS, can_quantize
from cowmlx.cache.shared import SharedPrefixes
from cowmlx.cache.trimming import can_trim_all
from cowmlx.call import keeps_call
from cowmlx.errors import BadState, Canceled, InvalidArgument, OutOfRange, Unsupported
from cowmlx.generated import constants
from cowmlx.generated.defaults import MODEL
from cowmlx.generation.batched import note_why_not
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.services.loading import Loading, ModelToCome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.models.embedding import HiddenStates
    from cowmlx.models.model import Model
    from cowmlx.models.split_models import Loaded
    from cowmlx.services.runtime import Runtime
    from cowmlx.text.chat_options import Conversation


ACTIVATIONS = {
    constants.ACTIVATIONS_DEFAULT: "default",
    constants.ACTIVATIONS_EXACT: "exact",
    constants.ACTIVATIONS_INT8: "int8",
}


# Options of a model on several machines.
_OF_MACHINES = ("workers", "secret_path", "split", "connect_timeout_ms", "silence_timeout_ms")


class Models:
    """Owns the open models, and what their contexts share.

    Args:
        runtime: shared by all services.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._prefixes: WeakKeyDictionary[Model, SharedPrefixes] = WeakKeyDictionary()
        self._on_ranks: WeakSet[Model] = WeakSet()

    def get(self, handle: int) -> Model:
        """Return the model of an open handle.

        Raises:
            UnknownHandle: it is none.
            BadState: it is still being loaded.
        """
        model: Model | ModelToCome = self._runtime.handles.get(constants.KIND_MODEL, handle)  # type: ignore[assignment]
        if isinstance(model, ModelToCome):
            raise BadState(
                f"model {handle} is still being loaded; call model_poll until it is loaded",
                reason="model_loading",
            )
        return model

    def prefixes(self, model: Model) -> SharedPrefixes:
        """Return the processed prompts that a model's contexts share."""
        return self._prefixes[model]

    def memory_trim(self) -> None:
        """Give unused buffers back, and the prompts kept for new contexts."""
        for prefixes in self._prefixes.values():
            prefixes.clear()
        rope.forget()
        self._runtime.arrays.trim()
        if self._runtime.own_python:
            gc.collect()  # cycles of objects may hold arrays
        resources.give_back()
        self._runtime.note_memory()

    @keeps_call
    def model_load(self, call: Call, path: str, params: dict[str, Any]) -> None:
        """Start loading a model folder; the call ends with its handle."""
        with interpreter.uncollected(self._runtime.own_python):
            from cowmlx.models import registry  # late: a start needs none of it

        activations = params["activations"]
        if activations not in ACTIVATIONS:
            known = ", ".join(f"{value} ({name})" for value, name in ACTIVATIONS.items())
            raise OutOfRange("activations", activations, known)
        loader = self._on_machines(path, params) or registry.load(
            path,
            adapter_path=params["adapter_path"],
            lazy=params["lazy"],
            trust_remote_code=params["trust_remote_code"],
            activations=activations,
            on_size=self._require_room if self._runtime.memory_is_limited else None,
        )
        streams, handles = self._runtime.streams, self._runtime.handles
        stream = streams.take()
        to_come = ModelToCome()

        def open_model(model: Model) -> int:
            self._prefixes[model] = SharedPrefixes(params["prefix_cache_bytes"])
            if call.reserved:
                return handles.put(constants.KIND_MODEL, call.reserved, model)
            return handles.add(constants.KIND_MODEL, model)

        def end() -> None:
            streams.give_back(stream)
            handles.give_up(constants.KIND_MODEL, call.reserved)

        own = self._runtime.own_python
        loading = Loading(call, loader, stream, end, open_model, to_come, own_python=own)
        if call.reserved:
            handles.put(constants.KIND_MODEL, call.reserved, to_come)
        self._runtime.scheduler.add(loading)

    def _require_room(self, size: int) -> None:
        self._runtime.require_room(size, "the model")

    def _on_machines(self, path: str, params: dict[str, Any]) -> Generator[Any, None, Model] | None:
        """Return what loads a model on several machines; None if it is on this one alone."""
        if all(params[name] == MODEL[name] for name in _OF_MACHINES):
            return None
        from cowmlx.models import split_models  # late: few hosts need it

        workers = split_models.check_workers(params)
        if workers is None:
            return None
        threads = self._runtime.threads
        return self._load_remote(
            split_models.load_on_machines(
                path, workers, params["split"], params["activations"], threads
            )
        )

    def _load_remote(self, steps: Generator[Any, None, Loaded]) -> Generator[Any, None, Model]:
        loaded = yield from steps
        self._on_ranks.add(loaded.model)
        note_why_not(loaded.model, loaded.alone, loaded.prompts)
        return loaded.model

    def end_ranks(self) -> None:
        """End the ranks of all models."""
        for model in list(self._on_ranks):
            network: Any = model.network
            network.group.close()

    def model_free(self, handle: int) -> None:
        """Close a model's handle; its contexts keep the model."""
        freed = Canceled("the model was freed", reason="freed")
        self._runtime.abandon(freed, self._runtime.handles.remove(constants.KIND_MODEL, handle))
        rope.forget()

    @keeps_call
    def model_inspect(self, call: Call, path: str, kv_bits: int) -> None:
        """Start looking at a model's folder; the call ends with the result of ``model_inspect``."""
        from cowmlx.cache.layers import bytes_of_tokens
        from cowmlx.models import registry  # late: a start needs none of it

        if kv_bits not in (0, *BITS):
            raise OutOfRange("kv_bits", kv_bits, "0, 4 or 8")
        steps = registry.inspect(path, lambda model: bytes_of_tokens(model, 1000, kv_bits))
        self._runtime.scheduler.add(SteppedCall(call, steps))

    def model_info(self, handle: int) -> dict[str, Any]:
        """Return the result of ``model_info``."""
        model = self.get(handle)
        trims = can_trim_all(model.make_cache())
        cache = {
            "trim_end": "in_place" if trims else "recomputed",
            "trim_front": "recomputed",
            "fork": "in_place",
            "quantise": "in_place" if can_quantize(model) else "no",
            "draft": "in_place" if trims else "no",
        }
        from cowmlx.folders import config  # late: a start needs none of it

        state = {
            "license": config.licence(model.path, model.config),
            "sampling": config.sampling(model.path),
        }
        return {**model.info(), **state, "cache": cache}

    @keeps_call
    def model_tokenize(self, call: Call, handle: int, text: str, flags: int) -> None:
        """Turn text into tokens; the call ends with them."""
        _check_flags(
            flags, ADD_SPECIAL=constants.ADD_SPECIAL, PARSE_SPECIAL=constants.PARSE_SPECIAL
        )
        model = self.get(handle)
        steps = model.tokenizer.encode_steps(
            text,
            add_special=bool(flags & constants.ADD_SPECIAL),
            parse_special=bool(flags & constants.PARSE_SPECIAL),
        )
        self._run(call, model, steps)

    @keeps_call
    def model_detokenize(self, call: Call, handle: int, tokens: Sequence[int], flags: int) -> None:
        """Turn tokens into text; the call ends with it."""
        _check_flags(flags, SKIP_SPECIAL=constants.SKIP_SPECIAL)
        model = self.get(handle)
        skip = bool(flags & constants.SKIP_SPECIAL)
        steps = model.tokenizer.decode_steps(tokens, skip_special=skip)
        self._run(call, model, steps)

    def _run(self, call: Call, model: Model, steps: Generator[None, None, Any]) -> None:
        """Do the first step of work with a tokenizer now, and what is left in turns."""
        try:
            next(steps)
        except StopIteration as stop:
            call.succeed(stop.value)
            return
        self._runtime.scheduler.add(SteppedCall(call, steps, subject=model))

    def model_is_end(self, handle: int, token: int) -> bool:
        """Whether a token ends a generation."""
        return token in self.get(handle).end_tokens

    @keeps_call
    def model_chat_prompt(
        self, call: Call, handle: int, messages: str, options: str | None
    ) -> None:
        """Render a conversation (JSON texts); the call ends with its tokens."""
        model = self.get(handle)
        self._run(call, model, read_conversation(model, messages, options).prompt_steps())

    @keeps_call
    def model_embed(
        self, call: Call, handle: int, texts: list[str], fields: dict[str, Any]
    ) -> None:
        """Start turning texts into vectors; the call ends with them."""
        from cowmlx.services.embedding import EmbeddingParams, embed_steps  # late: few need it

        model = self.get(handle)
        model.require_one_machine("model_embed")
        model.read_weights()
        params = EmbeddingParams(fields)

        def steps(hidden: HiddenStates) -> Generator[None, None, mx.array]:
            return embed_steps(model, hidden, texts, params)

        self._make_rows(call, model, len(texts), None, steps)

    @keeps_call
    def model_rank(
        self, call: Call, handle: int, query: str, documents: list[str], fields: dict[str, Any]
    ) -> None:
        """Start scoring documents by a query; the call ends with the scores."""
        from cowmlx.services.ranking import RankParams, rank_steps  # late: few hosts need it

        model = self.get(handle)
        model.read_weights()
        params = RankParams(fields, model, query)

        def steps(hidden: HiddenStates) -> Generator[None, None, mx.array]:
            return rank_steps(model, hidden, documents, params)

        labels = len(model.labels) if model.labels is not None else 1
        self._make_rows(call, model, len(documents), labels, steps)

    def _make_rows(
        self,
        call: Call,
        model: Model,
        count: int,
        dims: int | None,
        steps: Callable[[HiddenStates], Generator[None, None, mx.array]],
    ) -> None:
        """Start making ``count`` rows of ``dims`` numbers, or of a hidden state's where None."""
        from cowmlx.services.embedding import TextRows

        streams = self._runtime.streams
        stream = streams.take()
        try:
            with mx.stream(stream):
                hidden = self._hidden_states(model)
        except BaseException:
            streams.give_back(stream)
            raise
        width = hidden.dims if dims is None else dims
        if call.answer_size(count * width, width):
            streams.give_back(stream)
            return
        shape = count, width
        unit = TextRows(
            call, model, steps(hidden), shape, stream, lambda: streams.give_back(stream)
        )
        self._runtime.scheduler.add(unit)

    def _hidden_states(self, model: Model) -> HiddenStates:
        from cowmlx.models.embedding import HiddenStates

        states: HiddenStates = model.remembered.once("hidden states", lambda: HiddenStates(model))
        return states


def _check_flags(flags: int, **known: int) -> None:
    rest = flags & ~sum(known.values())
    if rest:
        names = ", ".join(f"COW_MLX_{name} ({value})" for name, value in known.items())
        raise InvalidArgument(
            f"flags has the unknown bits {rest:#x}; it can have {names}",
            reason="unknown_option",
            argument="flags",
            value=f"{rest:#x}",
        )


class Adapter:
    """An adapter of a model.

    Attributes:
        base: the model it was loaded for.
        adapted: the same with the adapter.
    """

    __slots__ = ("adapted", "base")

    def __init__(self, base: Model, adapted: Model) -> None:
        self.base = base
        self.adapted = adapted


class Adapters:
    """Owns the open adapters.

    Args:
        runtime: shared by all services.
        models: those that adapters are for.
    """

    def __init__(self, runtime: Runtime, models: Models) -> None:
        self._runtime = runtime
        self._models = models

    def get(self, handle: int) -> Adapter:
        """Return the adapter of an open handle.

        Raises:
            UnknownHandle: it is none.
        """
        return self._runtime.handles.get(constants.KIND_ADAPTER, handle)  # type: ignore[return-value]

    def adapter_load(self, model_handle: int, path: str, scale: float) -> int:
        """Load an adapter for a model and return its handle."""
        from cowmlx.models import adapters  # late: few hosts need it

        model = self._models.get(model_handle)
        model.require_one_machine("adapter_load")
        stream = self._runtime.streams.take()
        try:
            with mx.stream(stream):
                adapted = adapters.adapted(model, path, scale)
        finally:
            self._runtime.streams.give_back(stream)
        return self._runtime.handles.add(constants.KIND_ADAPTER, Adapter(model, adapted))

    def adapter_free(self, handle: int) -> None:
        """Close an adapter's handle; the contexts that use it keep it."""
        self._runtime.handles.remove(constants.KIND_ADAPTER, handle)


def read_conversation(model: Model, messages: str, options: str | None) -> Conversation:
    """Read a conversation (JSON texts), and render it."""
    from cowmlx.text.chat_options import Conversation  # late: not every host chats

    if model.chat_template is None:
        raise Unsupported(
            "this model has no chat template; write the prompt yourself and use model_tokenize"
        )
    parsed_messages = _parse_json("messages_json", messages, list)
    parsed_options = _parse_json("options_json", options, dict) if options else {}
    return Conversation(model, parsed_messages, parsed_options)


def _parse_json(name: str, text: str, kind: type) -> Any:
    from cowmlx import json_text
    from cowmlx.text.chat_messages import json_type

    try:
        value = json_text.parse(text)
    except json_text.Malformed as error:
        raise InvalidArgument(
            f"{name} is no JSON: {error}", reason="invalid_json", argument=name, **error.place
        ) from None
    if not isinstance(value, kind):
        wanted = "an array" if kind is list else "an object"
        raise InvalidArgument(
            f"{name} must be {wanted}, but is {json_type(value)}",
            reason="wrong_type",
            argument=name,
            accepted=wanted,
        )
    return value

"""The calls of models, and of adapters for them."""

from __future__ import annotations

import gc
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

import mlx.core as mx

from cowmlx import interpreter, resources
from cowmlx.accelerate import rope
from cowmlx.cache.footprint import bytes_of_texts
from cowmlx.cache.layers import BITS, why_not_quantized
from cowmlx.cache.shared import SharedPrefixes
from cowmlx.cache.trimming import can_trim_all
from cowmlx.call import keeps_call
from cowmlx.errors import BadState, Canceled, InvalidArgument, OutOfRange, Unsupported
from cowmlx.generated import constants
from cowmlx.generated.defaults import MODEL
from cowmlx.generation.batched import note_why_not
from cowmlx.generation.pace import PREFILL_CHUNK
from cowmlx.models.embedding import CHUNK
from cowmlx.models.images import ImageStore, info_of
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.services.conversations import chat_prompt_steps
from cowmlx.services.loading import Loading, ModelToCome
from cowmlx.services.sleeping import FallingAsleep, Sleep, Waking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.models.embedding import Admit, HiddenStates
    from cowmlx.models.model import Model
    from cowmlx.models.split_models import Loaded
    from cowmlx.services.runtime import Runtime


ACTIVATIONS = {
    constants.ACTIVATIONS_DEFAULT: "default",
    constants.ACTIVATIONS_EXACT: "exact",
    constants.ACTIVATIONS_INT8: "int8",
}


_TOKENS = 1000  # of the context that model_inspect describes

# Options of a model on several machines.
_OF_MACHINES = ("workers", "secret_path", "split", "connect_timeout_ms", "silence_timeout_ms")


class Models:
    """Owns the open models, and what their contexts share.

    Args:
        runtime: shared by all services.

    Attributes:
        sleep: puts them to sleep, and makes room for weights.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._prefixes: WeakKeyDictionary[Model, SharedPrefixes] = WeakKeyDictionary()
        self._on_ranks: WeakSet[Model] = WeakSet()
        self.sleep = Sleep(runtime, lambda model: self._prefixes[model].clear())

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
        self._runtime.streams.settle()
        self._runtime.arrays.trim()
        if self._runtime.own_python:
            gc.collect()  # cycles of objects may hold arrays
        for model in self._on_ranks:
            network: Any = model.network
            network.group.rest()
        resources.give_back()
        self._runtime.note_memory()

    @keeps_call
    def model_load(self, call: Call, path: str, params: dict[str, Any]) -> None:
        """Start loading a model folder; the call ends with its handle."""
        with interpreter.uncollected(self._runtime.own_python):
            from cowmlx.models import quantizing, registry  # late: a start needs none of it

        activations = params["activations"]
        if activations not in ACTIVATIONS:
            known = ", ".join(f"{value} ({name})" for value, name in ACTIVATIONS.items())
            raise OutOfRange("activations", activations, known)
        options = {
            "adapter_path": params["adapter_path"],
            "trust_remote_code": params["trust_remote_code"],
            "activations": activations,
            "quantize": quantizing.chosen(params),
        }
        loader = self._on_machines(path, params) or registry.load(
            path,
            lazy=params["lazy"],
            on_files=self._on_files,
            on_size=self.sleep.make_room,
            **options,
        )
        streams, handles = self._runtime.streams, self._runtime.handles
        stream = streams.take()
        to_come = ModelToCome()

        def open_model(model: Model) -> int:
            self._prefixes[model] = SharedPrefixes(params["prefix_cache_bytes"])
            if isinstance(model.images, ImageStore):
                model.images.capacity = params["media_cache"]
            self.sleep.note(model, partial(registry.load, model.path, lazy=True, **options))
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

    def _on_files(self, size: int) -> None:
        """Make sure that the files of a model's weights fit into the host's limit."""
        if self._runtime.memory_is_limited:
            self._runtime.require_room(size, "the model")

    def _on_machines(self, path: str, params: dict[str, Any]) -> Generator[Any, None, Model] | None:
        """Return what loads a model on several machines; None if it is on this one alone."""
        if all(params[name] == MODEL[name] for name in _OF_MACHINES):
            return None
        from cowmlx.models import split_models  # late: few hosts need it

        workers = split_models.check_workers(params)
        if workers is None:
            return None
        if params["quantize_bits"]:
            raise Unsupported(
                f"quantize_bits is {params['quantize_bits']}, but workers are given: convert the "
                "folder with `python -m cowmlx convert` and copy it to all machines",
                argument="quantize_bits",
                value=params["quantize_bits"],
            )
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
    def model_sleep(self, call: Call, handle: int) -> None:
        """Start putting a model to sleep."""
        model = self.get(handle)
        self._runtime.scheduler.add(FallingAsleep(call, self.sleep.steps(model), subject=model))

    @keeps_call
    def model_inspect(self, call: Call, path: str, kv_bits: int) -> None:
        """Start looking at a model's folder; the call ends with the result of ``model_inspect``."""
        from cowmlx.cache.footprint import footprint_of
        from cowmlx.cache.layers import KVQuantization, bytes_of_tokens
        from cowmlx.models import registry  # late: a start needs none of it

        if kv_bits not in (0, *BITS):
            raise OutOfRange("kv_bits", kv_bits, "0, 4 or 8")

        def of_context(model: Model) -> dict[str, int | None]:
            if model.is_encoder:
                return {}
            held = bytes_of_tokens(model, _TOKENS, kv_bits)
            found = footprint_of(model, KVQuantization(model, kv_bits, 0))
            peak = None if found is None else found.needed(_TOKENS, PREFILL_CHUNK)
            return {"cache_bytes_per_1000_tokens": held, "peak_bytes_of_1000_tokens": peak}

        steps = registry.inspect(path, of_context)
        self._runtime.scheduler.add(SteppedCall(call, steps))

    def model_info(self, handle: int) -> dict[str, Any]:
        """Return the result of ``model_info``."""
        model = self.get(handle)
        from cowmlx.folders import config  # late: a start needs none of it
        from cowmlx.models import embedded

        state = {
            "license": config.licence(model.path, model.config),
            "sampling": config.sampling(model.path),
        }
        table = embedded.token_table(model)
        width = None if table is None else table.width
        seen = {"embedding_width": width, "images": info_of(model.images)}
        return {**model.info(), **state, **seen, "cache": _cache_info(model)}

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

    @keeps_call
    def model_infill_prompt(self, call: Call, handle: int, prefix: str, suffix: str) -> None:
        """Make the prompt of an infill; the call ends with its tokens."""
        from cowmlx.text import infill  # late: few hosts need it

        model = self.get(handle)
        self._run(call, model, infill.prompt_steps(model.tokenizer, prefix, suffix))

    def model_is_end(self, handle: int, token: int) -> bool:
        """Whether a token ends a generation."""
        return token in self.get(handle).end_tokens

    @keeps_call
    def model_chat_prompt(
        self, call: Call, handle: int, messages: str, options: str | None
    ) -> None:
        """Render a conversation (JSON texts); the call ends with its tokens."""
        model = self.get(handle)
        self._run(call, model, chat_prompt_steps(model, messages, options, self._runtime))

    @keeps_call
    def model_embed(
        self, call: Call, handle: int, texts: list[str], fields: dict[str, Any]
    ) -> None:
        """Start turning texts into vectors; the call ends with them."""
        from cowmlx.services.embedding import EmbeddingParams, embed_steps  # late: few need it

        model = self.get(handle)
        model.require_one_machine("model_embed")

        def start() -> None:
            params = EmbeddingParams(fields, model)

            def steps(hidden: HiddenStates | None) -> Generator[None, None, mx.array]:
                return embed_steps(model, hidden, texts, params, self._admit(model))

            self._make_rows(call, model, len(texts), params.width, steps)

        self._with_weights(call, model, start)

    @keeps_call
    def model_rank(
        self, call: Call, handle: int, query: str, documents: list[str], fields: dict[str, Any]
    ) -> None:
        """Start scoring documents by a query; the call ends with the scores."""
        from cowmlx.services.ranking import RankParams, rank_steps  # late: few hosts need it

        model = self.get(handle)
        model.require_one_machine("model_rank")

        def start() -> None:
            model.require_task("rank")
            params = RankParams(fields, model, query)

            def steps(hidden: HiddenStates | None) -> Generator[None, None, mx.array]:
                return rank_steps(model, hidden, documents, params, self._admit(model))

            labels = len(model.labels) if model.labels is not None else 1
            self._make_rows(call, model, len(documents), lambda _: labels, steps)

        self._with_weights(call, model, start)

    @keeps_call
    def model_classify(self, call: Call, handle: int, text: str) -> None:
        """Start finding the labels of a text; the call ends with them."""
        from cowmlx.models.embedding import hidden_states_of
        from cowmlx.services.classifying import classify_steps  # late: few need it
        from cowmlx.services.embedding import EmbeddingParams

        model = self.get(handle)
        model.require_one_machine("model_classify")
        model.require_task("classify")

        def start() -> None:
            params = EmbeddingParams.of_bare_text(model)
            streams = self._runtime.streams
            stream = streams.take()
            try:
                with mx.stream(stream):
                    hidden = None if model.is_encoder else hidden_states_of(model)
            except BaseException:
                streams.give_back(stream)
                raise
            steps = classify_steps(model, hidden, text, params, self._admit(model))
            unit = SteppedCall(call, steps, stream, model, lambda: streams.give_back(stream))
            self._runtime.scheduler.add(unit)

        self._with_weights(call, model, start)

    def _admit(self, model: Model) -> Admit:
        """Return what makes sure that there is memory for texts that a model processes."""

        def admit(lengths: list[int]) -> tuple[int, int]:
            def size_of(count: int, chunk: int) -> int:
                return bytes_of_texts(model, lengths[:count], chunk)

            what = "a batch of texts"
            return self._runtime.admission.at_once(len(lengths), CHUNK, size_of, what)

        return admit

    def _with_weights(self, call: Call, model: Model, start: Callable[[], None]) -> None:
        """Start a call's work at once, or after a sleeping model is read in turns."""
        if model.is_read:
            model.read_weights()
            start()
        else:
            self._runtime.scheduler.add(Waking(call, model, start))

    def _make_rows(
        self,
        call: Call,
        model: Model,
        count: int,
        width_of: Callable[[int], int],
        steps: Callable[[HiddenStates | None], Generator[None, None, mx.array]],
    ) -> None:
        """Start making ``count`` rows, whose width follows from that of a hidden state."""
        from cowmlx.models.embedding import hidden_states_of
        from cowmlx.services.embedding import TextRows

        streams = self._runtime.streams
        stream = streams.take()
        settled = model.is_encoder  # nothing is computed for the width then
        try:
            with mx.stream(stream):
                hidden = None if model.is_encoder else hidden_states_of(model)
                own: Any = model.network if hidden is None else hidden
                width = width_of(own.dims)
            answered = call.answer_size(count * width, width)
        except BaseException:
            streams.give_back(stream, settled)
            raise
        if answered:
            streams.give_back(stream, settled)
            return
        on_end = partial(streams.give_back, stream)
        self._runtime.scheduler.add(
            TextRows(call, model, steps(hidden), (count, width), stream, on_end)
        )


def _cache_info(model: Model) -> dict[str, Any] | None:
    """Return what a context of a model does with its cache; None of an encoder."""
    if model.is_encoder:
        return None
    trims, why_not = can_trim_all(model.make_cache()), why_not_quantized(model)
    return {
        "trim_end": "in_place" if trims else "recomputed",
        "trim_front": "recomputed",
        "fork": "in_place",
        "quantise": "no" if why_not else "in_place",
        "draft": "in_place" if trims else "no" if model.split else "recomputed",
        "why_not": why_not,
    }


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

    @keeps_call
    def adapter_load(self, call: Call, model_handle: int, path: str, scale: float) -> None:
        """Load an adapter for a model; the call ends with its handle."""
        model = self._models.get(model_handle)
        model.require_one_machine("adapter_load")
        model.require_generation("adapter_load")
        stream = self._runtime.streams.take()
        steps = self._load_steps(model, path, scale)
        unit = SteppedCall(
            call, steps, stream, model, lambda: self._runtime.streams.give_back(stream)
        )
        self._runtime.scheduler.begin(unit)

    def _load_steps(self, model: Model, path: str, scale: float) -> Generator[None, None, int]:
        from cowmlx.models import adapters  # late: few hosts need it

        if model.is_asleep:  # before it has a copy, which would check other weights
            yield from model.read_steps()
        adapted = adapters.adapted(model, path, scale, self._models.sleep.require_room)
        return self._runtime.handles.add(constants.KIND_ADAPTER, Adapter(model, adapted))

    def adapter_free(self, handle: int) -> None:
        """Close an adapter's handle; the contexts that use it keep it."""
        self._runtime.handles.remove(constants.KIND_ADAPTER, handle)

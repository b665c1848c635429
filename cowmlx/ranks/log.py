"""Carries out the host's log: every rank does it in the same order, on one stream."""

from __future__ import annotations

import copy
import time
from array import array
from collections.abc import Generator
from itertools import islice
from typing import Any

import mlx.core as mx

from cowmlx.cache import trimming
from cowmlx.cache.batch import Batch
from cowmlx.errors import Lost
from cowmlx.generation import batched
from cowmlx.models import split_models
from cowmlx.models.split_models import Shard
from cowmlx.ranks import ring
from cowmlx.ranks.voice import Voice
from cowmlx.ranks.watch import Watch

_SENT = {2: mx.uint16, 4: mx.uint32}
CLEAR_INTERVAL = 256  # entries between returns of mlx's unused buffers


class Log:
    """A shard, and the sequences and batches that the host has begun."""

    def __init__(self, voice: Voice, config: dict[str, Any]) -> None:
        self._voice = voice
        self._config = config
        self._rank: int = config["rank"]
        self._group: Any = None
        self._port: ring.Port | None = None
        self._watch: Watch | None = None
        self._shard: Shard | None = None
        self._sequences: dict[int, list[Any]] = {}
        self._batches: dict[int, Batch] = {}
        self._rows: dict[int, Any] = {}
        self._operations = {
            "nothing": self._nothing,
            "rest": self._rest,
            "listen": self._listen,
            "meet": self._meet,
            "ring": self._join,
            "load": self._load,
            "forward": self._forward,
            "trim": self._trim,
            "copy": self._copy,
            "batch": self._batch,
            "join": self._join_batch,
            "take": self._take,
            "leave": self._leave,
            "feed": self._feed,
            "step": self._step,
        }

    def carry_out(self, head: dict[str, Any], body: bytes) -> None:
        """Carry out an entry; an exception ends the rank."""
        for sequence in head.get("drop", ()):
            self._sequences.pop(sequence, None)
            self._batches.pop(sequence, None)
        operation = self._operations.get(head.get("op", ""))
        if operation is None:
            raise Lost("the host asks for what this version does not know")
        operation(head, body)

    def _nothing(self, head: dict[str, Any], body: bytes) -> None:
        """Answer, to show that this rank is ready."""
        self._voice.say({"done": head["number"]})

    def _rest(self, head: dict[str, Any], body: bytes) -> None:
        """Return mlx's unused buffers."""
        mx.clear_cache()

    # ------------------------------------------------------------- Coming up

    def _listen(self, head: dict[str, Any], body: bytes) -> None:
        address = self._config.get("address") or head["address"]
        self._port = ring.Port(address)
        self._watch = Watch(self._rank, self._config["size"], self._config["key"])
        watched = self._watch.listen(address)
        self._voice.say({"done": head["number"], "ring": self._port.address, "watch": watched})

    def _meet(self, head: dict[str, Any], body: bytes) -> None:
        assert self._watch is not None
        self._watch.meet(head["addresses"], head["seconds"])
        self._voice.watch(self._watch)
        self._voice.say({"done": head["number"]})

    def _join(self, head: dict[str, Any], body: bytes) -> None:
        self._group = ring.join(self._rank, head["addresses"], self._config["key"])
        assert self._port is not None
        self._port.close()
        self._voice.say({"done": head["number"]})

    def _load(self, head: dict[str, Any], body: bytes) -> None:
        steps = split_models.load(self._config, self._group)
        shard = self._shard = self._finished(steps)
        facts = {
            name: getattr(shard, name) for name in ("layers", "kernels", "vocabulary", "dtype")
        }
        facts |= {"bytes": shard.nbytes, "peak": mx.get_peak_memory()}
        facts |= trimming.trims_of(shard.make_cache())
        facts |= {"alone": self._together(batched.why_not_steps)}
        facts |= {"prompts": self._together(batched.why_not_prompts)}
        self._voice.say({"done": head["number"], **facts})

    def _together(self, prove: Any) -> str | None:
        """Return why all ranks cannot do something, or None."""
        return ring.Together(self._network, self._group).find_out(prove, self._new_layers)

    def _finished(self, steps: Generator[float, None, Shard]) -> Shard:
        """Take all steps of a load, and report its progress."""
        while True:
            try:
                fraction = next(steps)
            except StopIteration as stop:
                shard: Shard = stop.value
                return shard
            self._voice.say({"fraction": fraction})

    # ------------------------------------------------------------- Sequences

    @property
    def _network(self) -> Any:
        assert self._shard is not None
        return self._shard.network

    def _new_layers(self) -> list[Any]:
        assert self._shard is not None
        return self._shard.make_cache()

    def _forward(self, head: dict[str, Any], body: bytes) -> None:
        began = time.perf_counter()
        layers = self._sequences.setdefault(head["id"], [])
        if not layers:
            layers.extend(self._new_layers())
        ids = mx.array(array("i", body).tolist(), mx.int32)
        rows = head["rows"]
        if len(ids) == 1 and rows:
            assert self._shard is not None
            logits = self._shard.decode(ids, layers)
        else:
            logits = self._network(ids[None], cache=layers)[0, len(ids) - rows :]
        self._answer(head, logits if rows else None, [layer.state for layer in layers], began)

    def _answer(self, head: dict[str, Any], logits: Any, state: Any, began: float) -> None:
        """Evaluate the same arrays on all ranks, and answer."""
        mx.eval(state if logits is None else [logits, state])
        body = b""
        if logits is not None and self._rank == 0:
            sent: Any = mx.contiguous(logits).view(_SENT[logits.itemsize])
            body = bytes(memoryview(sent))
        held = self._held(head)
        seconds = time.perf_counter() - began
        self._voice.say({"done": head["number"], "bytes": held, "seconds": seconds}, body)
        if head["number"] % CLEAR_INTERVAL == 0:
            mx.clear_cache()

    def _held(self, head: dict[str, Any]) -> int:
        """Return the bytes of an entry's sequence, or of a row of its batch."""
        if "batch" in head:
            return self._batches[head["batch"]].nbytes_of(self._rows[head["rows"][0]])
        return sum(layer.nbytes for layer in self._sequences[head["id"]])

    def _trim(self, head: dict[str, Any], body: bytes) -> None:
        for layer in self._sequences[head["id"]]:
            if layer.trim(head["count"]) != head["count"]:
                raise Lost("a layer has dropped another number of tokens than was asked for")

    def _copy(self, head: dict[str, Any], body: bytes) -> None:
        self._sequences[head["to"]] = copy.deepcopy(self._sequences[head["id"]])

    # --------------------------------------------------------------- Batches

    def _batch(self, head: dict[str, Any], body: bytes) -> None:
        stream = mx.default_stream(mx.default_device())
        self._batches[head["id"]] = Batch(self._new_layers(), stream)

    def _join_batch(self, head: dict[str, Any], body: bytes) -> None:
        layers = self._sequences.pop(head["id"], None) or self._new_layers()
        row = self._batches[head["batch"]].join(layers, head["length"])
        self._rows[head["row"]] = row

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        layers = self._batches[head["batch"]].take(self._rows[head["row"]])
        self._sequences[head["id"]] = layers

    def _leave(self, head: dict[str, Any], body: bytes) -> None:
        self._batches[head["batch"]].leave(self._rows.pop(head["row"]))

    def _feed(self, head: dict[str, Any], body: bytes) -> None:
        began = time.perf_counter()
        batch = self._batches[head["batch"]]
        given = iter(array("i", body))
        tokens = [[*islice(given, count)] for count in head["counts"]]
        batched.feed(self._network, batch, [self._rows[row] for row in head["rows"]], tokens)
        self._answer(head, None, batch.arrays, began)

    def _step(self, head: dict[str, Any], body: bytes) -> None:
        began = time.perf_counter()
        batch = self._batches[head["batch"]]
        rows = [self._rows[row] for row in head["rows"]]
        tokens = [[token] for token in array("i", body)]
        logits = batched.feed(self._network, batch, rows, tokens)[:, -1, :]
        logits = mx.take(logits, mx.array([row.index for row in rows]), axis=0)
        self._answer(head, logits, batch.arrays, began)

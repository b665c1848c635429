"""The prompt cache on disk: written in the background, read before a generation begins."""

from __future__ import annotations

import errno
import hashlib
from collections import deque
from contextlib import suppress
from functools import partial
from math import inf
from time import perf_counter

import mlx.core as mx

from cowmlx import failures
from cowmlx.cache import disk
from cowmlx.cache.disk_reader import Reader
from cowmlx.cache.prompt_files import PromptFiles
from cowmlx.cache.trimming import can_trim_all
from cowmlx.errors import (
    BadFormat,
    CowMlxError,
    InputOutput,
    InvalidArgument,
    NotFound,
    OutOfRange,
)
from cowmlx.services import saving
from cowmlx.services.transfers import Preparing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.cache.prompt_files import PromptFile
    from cowmlx.cache.sequence import Sequence, Snapshot
    from cowmlx.call import Call
    from cowmlx.generation.context import Context
    from cowmlx.generation.params import ContextParams
    from cowmlx.memory import RequireRoom
    from cowmlx.models.model import Model
    from cowmlx.scheduling.scheduler import Scheduler

# Tokens that a prompt must have more than the folder knows of it, to be written.
WRITTEN = 256
# Tokens that a file must have more than memory knows, to be read: processing fewer is as quick.
READ = 64
_PAUSE = 0.05  # seconds between two steps while others work
_MOST_PENDING = 4  # prompts that wait to be written; each keeps its state in memory


class PromptCache:
    """Processed prompts in a folder, for this process and others and for later ones.

    Args:
        folder: of the files.
        capacity: bytes that they may take.
        scheduler: gives the writing its turns.
        require_room: raises if there is no memory for some bytes, which are read for a purpose.

    Raises:
        InvalidArgument: a value is not accepted.
        InputOutput: the folder cannot be made or written to.
    """

    def __init__(
        self,
        folder: str,
        capacity: int,
        scheduler: Scheduler,
        require_room: RequireRoom,
    ) -> None:
        if not folder:
            raise InvalidArgument(
                "prompt_cache_dir is empty; it must name a folder, or be NULL for none",
                reason="missing",
                argument="prompt_cache_dir",
            )
        if capacity < 1:
            raise OutOfRange("prompt_cache_bytes", capacity, "at least 1 with prompt_cache_dir")
        self.files = PromptFiles(folder, capacity)
        self.written = self.found = 0
        self.problem: str | None = None
        self._scheduler = scheduler
        self._require_room = require_room
        self._writing = Writing(self)

    def info(self) -> dict[str, Any]:
        """Return the facts for ``runtime_info``."""
        files, size = self.files.usage()
        return {
            "folder": self.files.folder,
            "limit": self.files.capacity,
            "files": files,
            "bytes": size,
            "written": self.written,
            "found": self.found,
            "problem": self.problem,
        }

    # ---------------------------------------------------------------- Writing

    def writer(
        self, model: Model, params: ContextParams, sequence: Sequence, length: int
    ) -> Callable[[Snapshot], None] | None:
        """Return a writer of a processed prompt; None where it is too short to be kept.

        Args:
            model: that processes it.
            params: of the context.
            sequence: of that model and kind of cache.
            length: of the prompt.
        """
        if length < WRITTEN or model.split is not None:
            return None
        return partial(self._note, model, params, sequence)

    def _note(
        self, model: Model, params: ContextParams, sequence: Sequence, held: Snapshot
    ) -> None:
        """Write a processed prompt later, if the folder does not have most of it."""
        if len(held.tokens) >= WRITTEN:
            self._writing.add(model, self._write(model, params, sequence, held))
            self._scheduler.add(self._writing)

    def finish(self) -> None:
        """Write all that is to be written."""
        while self._writing.turn():
            pass

    def forget(self, model: Model) -> None:
        """Leave out what a model has processed and is not written yet: it falls asleep."""
        self._writing.forget(model)

    def _write(
        self, model: Model, params: ContextParams, sequence: Sequence, held: Snapshot
    ) -> Generator[None, None, None]:
        if not model.is_read:
            return  # it is asleep, and to compute the hash of its weights would wake it
        key = yield from saving.key_of(model, params.kv)
        name = _name_of(key, model)
        cuts = can_trim_all(held.layers)
        known = yield from self.files.longest(name, held.tokens, cuts=cuts)
        if known is not None and known.common + WRITTEN > len(held.tokens):
            self.files.touch(known.path)
            return
        metadata, arrays = saving.parts_of(held, key, sequence.template(), model.architecture)
        size = sum(array.nbytes for array in arrays.values())
        if size > self.files.capacity:
            return
        path = self.files.path_for(name, held.tokens)
        try:
            yield from disk.write(path, metadata, arrays, private=True)
        except InputOutput as error:
            if not (_is_full(error) and self.files.make_room(size)):
                raise
            yield from disk.write(path, metadata, arrays, private=True)
        self.files.note_written(path)
        self.written += 1
        if cuts:
            yield from self.files.remove_contained(name, held.tokens)
        self.files.drop_excess()

    # ---------------------------------------------------------------- Reading

    def read(self, context: Context, prompt: list[int]) -> Generator[None, None, Snapshot | None]:
        """Read the snapshot that has the most in common with a prompt; None if none is of use.

        Damaged files are removed.
        """
        key = yield from saving.key_of(context.model, context.params.kv)
        name, begin = _name_of(key, context.model), prompt[:-1]
        cuts = can_trim_all(context.sequence.make_layers())
        least = context.known_tokens(prompt) + READ
        while file := (yield from self.files.longest(name, begin, cuts=cuts)):
            if file.common < least:
                break
            try:
                snapshot = yield from self._snapshot(context, key, file)
            except (BadFormat, NotFound):  # damaged, or removed by another process
                self.files.discard(file.path)
                continue
            except CowMlxError:  # no memory or descriptor, or another user's file
                return None
            if snapshot.tokens[: file.common] != begin[: file.common]:
                self.files.discard(file.path)
                continue
            self.files.touch(file.path)
            self.found += 1
            return snapshot
        return None

    def _snapshot(
        self, context: Context, key: dict[str, str], file: PromptFile
    ) -> Generator[None, None, Snapshot]:
        model = context.model
        reader = Reader(file.path, private=True)
        try:
            template, require = context.sequence.template, self._require_room
            size = model.vocabulary_size
            return (yield from saving.read(reader, key, template, size, file.size, require))
        finally:
            reader.close()

    def begin(
        self,
        call: Call,
        context: Context,
        prompt: list[int],
        start: Callable[[Snapshot | None], None],
    ) -> None:
        """Begin a generation, behind a prompt's known start on disk if there is one.

        Args:
            call: that begins it.
            context: to begin on.
            prompt: all tokens.
            start: begins, given the snapshot.
        """
        if not self._may_know(context, prompt):
            start(None)
            return
        steps = self.read(context, prompt)
        self._scheduler.add(Preparing(call, context, steps, start))

    def _may_know(self, context: Context, prompt: list[int]) -> bool:
        """Whether it is worth looking for a prompt in the folder."""
        return (
            context.params.share_prefix
            and context.model.split is None
            and READ < len(prompt) <= context.params.max_tokens
            and self.files.has_any()
        )


class Writing:
    """Writes prompts one after the other while no other unit has work: a unit of the scheduler."""

    priority = -1
    shares_time = False
    patience = 0.0

    def __init__(self, cache: PromptCache) -> None:
        self._cache = cache
        self._pending: deque[tuple[Model, Generator[None, None, None]]] = deque()
        self._stream = mx.default_stream(mx.default_device())
        self._stepped = perf_counter()

    def add(self, model: Model, steps: Generator[None, None, None]) -> None:
        """Let steps be done behind the others; the oldest that have not begun may be left out."""
        self._pending.append((model, steps))
        if len(self._pending) > _MOST_PENDING:
            del self._pending[1]

    def forget(self, model: Model) -> None:
        """Leave out the steps of a model."""
        for of, steps in self._pending:
            if of is model:
                steps.close()
        self._pending = deque(one for one in self._pending if one[0] is not model)

    @property
    def due(self) -> float:
        """Deadline of its next turn, regardless of load."""
        return self._stepped + _PAUSE if self._pending else inf

    @property
    def wakes(self) -> float:
        """When it may want a turn although nothing has happened."""
        return 0.0 if self._pending else inf

    @property
    def finished(self) -> bool:
        """Whether there is nothing to write."""
        return not self._pending

    def attend(self) -> None:
        """Do nothing: no call waits."""

    def block(self) -> bool:
        """Return false: its turns wait themselves."""
        return False

    def turn(self) -> bool:
        """Do one step; false if there is none."""
        if not self._pending:
            return False
        _, steps = self._pending[0]
        self._stepped = perf_counter()
        try:
            with mx.stream(self._stream):
                next(steps)
            return True
        except StopIteration:
            self._cache.problem = None
        except Exception as error:
            self._cache.problem = str(failures.translate(error))
            with suppress(Exception):
                steps.close()
        self._pending.popleft()
        return True


def _is_full(error: InputOutput) -> bool:
    """Whether there was no place on the disk."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def _name_of(key: dict[str, str], model: Model) -> str:
    """Return the part of a file's name that says which weights, activations and cache it fits."""
    whole = {**key, "activations": model.form.activations}
    text = "\n".join(f"{name} {value}" for name, value in sorted(whole.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]

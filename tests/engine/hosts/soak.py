"""Many threads on many contexts of several models; each stream must be what its task gives alone.

Arguments: seconds, a seed, a folder for files, calf's folder, those of other models. Prints, as
JSON, how often each kind of work was done. Any status that is not expected ends it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from ctypes import byref, c_int32, c_int64
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.arrays import Arrays
from support.library import Library, StatusError
from support.scoring import prompt_logprobs
from support.signatures import DONE, ECANCELED, EHANDLE, ESTATE, ETIMEDOUT, EUNSUPPORTED, OK

THREADS, ATTEMPTS = 8, 3
LONG = 300  # tokens of the longest prompts; those of 256 go to the disk
FOREVER = 2**32 - 1
QUESTIONS = ["Tell me a story about a fox.", "What is a mouse?"]
CITY = {"type": "object", "properties": {"city": {"enum": ["Rio", "Rome"]}}, "required": ["city"]}
TOOLS = {"tools": [{"name": "get_weather", "parameters": CITY}], "tool_choice": "auto"}
TOOL_QUESTIONS = ["What is the weather in Rome?", "What is the weather in Oslo?", *QUESTIONS]
TEXTS = ["Once upon a time", "The fox and the hen. ", "Tom was a frog. One day"]
PARAMS: list[dict[str, Any]] = [
    {"max_tokens": 16},
    {"max_tokens": 24, "temperature": 0.8, "top_p": 0.9, "seed": 7},
    {"max_tokens": 12, "repetition_penalty": 1.3},
    {"max_tokens": 24, "draft_tokens": 3},
    {"max_tokens": 20, "grammar": "[a-z ]{9}", "grammar_kind": 2, "grammar_triggers": [" the"]},
    {"max_tokens": 16, "grammar": "[a-z ]{9}", "grammar_kind": 2, "draft_tokens": 2},
    {"max_tokens": 16, "draft_heads": 1},
]

lib = Library()


class Task(NamedTuple):
    """A prompt, a context's own params, how to continue, and what that gives alone."""

    model: int
    settings: dict[str, Any]
    prompt: list[int]
    params: dict[str, Any]
    tokens: list[int]
    text: str


class Chat(NamedTuple):
    """A question, perhaps with tools, and the text and the calls that it gets alone."""

    model: int
    messages: list[dict[str, str]]
    options: dict[str, Any] | None
    params: dict[str, Any]
    text: str
    calls: list[tuple[str, Any]]


def alone(model: int, settings: dict[str, Any], prompt: list[int], params: dict[str, Any]) -> Task:
    """A task, done on a separate context while nothing else runs."""
    context = lib.context(model, solo=True, **settings)
    try:
        lib.begin(context, prompt, **params)
        pieces = lib.drain(context)
    finally:
        lib.free(context)
    tokens = [piece.token for piece in pieces if piece.status == OK and piece.token is not None]
    return Task(model, settings, prompt, params, tokens, "".join(piece.text for piece in pieces))


def answered(
    model: int, question: str, options: dict[str, Any] | None = None, **params: Any
) -> Chat:
    """A chat, likewise."""
    messages = [{"role": "user", "content": question}]
    context = lib.context(model, solo=True)
    params = {"max_tokens": 24, **params}
    chat = lib.chat(context, messages, options=options, **params)
    lib.free(context)
    return Chat(model, messages, options, params, chat.said(), chat.calls)


def answered_with_tools(model: int) -> list[Chat]:
    """Chats whose tools may be called: a grammar begins behind the marker of a call."""
    ways: list[dict[str, Any]] = [{}, {"draft_tokens": 2}, {"temperature": 0.8, "seed": 3}]
    chats = [answered(model, text, TOOLS, **way) for text in TOOL_QUESTIONS for way in ways]
    cities = {call["city"] for chat in chats for _, call in chat.calls}
    assert cities and cities <= {"Rio", "Rome"}, cities
    return chats


def allow(error: StatusError, *statuses: int) -> None:
    """Raise an error that is none of these."""
    if error.status not in statuses:
        raise error


class AtRisk:
    """Contexts that another thread cancels while they are in here, and only then."""

    def __init__(self, draw: random.Random) -> None:
        self._lock = threading.Lock()
        self._contexts: list[int] = []
        self._draw = draw

    @contextmanager
    def __call__(self, context: int) -> Iterator[None]:
        with self._lock:
            self._contexts.append(context)
        try:
            yield
        finally:
            with self._lock:
                self._contexts.remove(context)

    def cancel_one(self) -> None:
        """Cancel one of them, if there is one."""
        with self._lock:
            if self._contexts:
                lib.cancel(self._draw.choice(self._contexts))


class Worker:
    """One thread's work: every kind of it again and again, in another order."""

    def __init__(
        self,
        number: int,
        seed: int,
        folder: Path,
        tasks: list[Task],
        chats: list[Chat],
        at_risk: AtRisk,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._draw = random.Random(f"{seed} {number}")
        self._tasks = tasks
        self._chats = [chat for chat in chats if not chat.options]
        self._tool_chats = [chat for chat in chats if chat.options]
        self._at_risk = at_risk
        self._file = folder / f"{number}.safetensors"

    @property
    def kinds(self) -> list[Callable[[], None]]:
        """All kinds of work."""
        return [
            self.stream, self.generate, self.chat, self.cancel, self.free, self.fork, self.trim,
            self.checkpoint, self.save_and_load, self.keep_in_memory, self.sleep, self.tokenize,
            self.think, self.score, self.rows, self.call_tools,
        ]  # fmt: skip

    def run_all(self) -> None:
        """Do each kind of work once."""
        kinds = self.kinds
        self._draw.shuffle(kinds)
        for kind in kinds:
            self.do(kind)
            self.done[kind.__name__] += 1

    def do(self, kind: Callable[[], None]) -> None:
        """Do one kind of work."""
        kind()

    # What kinds of work share.

    @contextmanager
    def _context(self, model: int, **settings: Any) -> Iterator[int]:
        draw = self._draw
        context = lib.context(
            model,
            priority=draw.choice([0, 0, -1]),
            solo=draw.random() < 0.25,
            share_prefix=draw.random() < 0.5,
            checkpoint_interval=draw.choice([0, 32, 1024]),
            **settings,
        )
        try:
            yield context
        finally:
            self._release(lib.free, context)

    def _release(self, free: Callable[[int], None], handle: int) -> None:
        free(handle)

    def _task(self) -> Task:
        return self._draw.choice(self._tasks)

    def _like(self, task: Task) -> Task:
        """Another task for a context of this one."""
        own = (task.model, task.settings)
        return self._draw.choice(
            [each for each in self._tasks if (each.model, each.settings) == own]
        )

    def _for(self, task: Task) -> AbstractContextManager[int]:
        return self._context(task.model, **task.settings)

    def _params(self, task: Task | Chat) -> dict[str, Any]:
        """The options of a task, at times with a function that leaves all logits as they are."""
        drafts = task.params.keys() & {"draft", "draft_tokens", "draft_heads"}
        if drafts or self._draw.random() < 0.75:
            return task.params
        return {**task.params, "logits_fn": lambda *_: None}

    def _check(self, context: int, task: Task) -> None:
        text = lib.generate(context, task.prompt, **self._params(task)).text
        assert text == task.text, (text, task)

    def _hold(self, context: int, tokens: list[int]) -> None:
        lib.begin(context, tokens, max_tokens=0)

    def _retried(self, context: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call that is cancelled at times, until it goes well."""
        for _ in range(ATTEMPTS):
            try:
                with self._at_risk(context):
                    return call(context, *arguments)
            except StatusError as error:
                allow(error, ECANCELED)
        return call(context, *arguments)

    # The kinds.

    def stream(self) -> None:
        """begin, poll, next."""
        task, given = self._task(), []
        with self._for(task) as context:
            lib.begin(context, task.prompt, **self._params(task))
            while True:
                timeout = self._draw.choice([None, 0, 1, FOREVER])
                if timeout is not None:
                    status = lib.c.cow_mlx_context_poll(context, timeout)
                    if status != ETIMEDOUT:
                        lib.check(status)
                piece = lib.next(context, capacity=self._draw.choice([1, 256]))
                if piece.needed:
                    piece = lib.next(context, capacity=piece.needed + 1)
                if piece.status == DONE:
                    break
                given.append(piece.token)
        assert given == task.tokens, (given, task)

    def generate(self) -> None:
        """Several tasks on one context."""
        task = self._task()
        with self._for(task) as context:
            self._check(context, task)
            self._check(context, self._like(task))

    def chat(self) -> None:
        """A chat."""
        chat = self._draw.choice(self._chats)
        with self._context(chat.model) as context:
            text = lib.chat(context, chat.messages, max_tokens=24).said()
        assert text == chat.text, (text, chat)

    def cancel(self) -> None:
        """What was heard before a cancel is right, and so is what comes after it."""
        task, heard = self._task(), [""]
        with self._for(task) as context:
            try:
                with self._at_risk(context):
                    lib.generate(context, task.prompt, heard.append, **self._params(task))
                assert "".join(heard) == task.text
            except StatusError as error:
                allow(error, ECANCELED)
                assert task.text.startswith("".join(heard)), (heard, task)
            self._check(context, task)

    def free(self) -> None:
        """A context that is freed while it generates."""
        task = self._task()
        context = lib.context(task.model, **task.settings)
        freed: list[str] = []

        def free(text: str) -> None:
            freed.append(text)
            self._release(lib.free, context)

        try:
            lib.generate(context, task.prompt, free, **task.params)
        except StatusError as error:
            if not freed:
                self._release(lib.free, context)
            allow(error, ECANCELED, EHANDLE)
        else:
            assert not task.text, "it was freed at its first text"
            self._release(lib.free, context)
        assert lib.c.cow_mlx_context_cancel(context) == EHANDLE

    def fork(self) -> None:
        """A context and its fork continue alike."""
        task = self._task()
        with self._for(task) as context:
            self._hold(context, task.prompt)
            forked = lib.fork(context)
            try:
                self._check(forked, task)
                self._check(context, self._like(task))
            finally:
                self._release(lib.free, forked)

    def trim(self) -> None:
        """What was trimmed is processed again."""
        task = self._task()
        with self._for(task) as context:
            self._hold(context, task.prompt)
            count = self._draw.randrange(len(task.prompt))
            trim = self._draw.choice([lib.trim_end, lib.trim_front])
            assert trim(context, count) == count
            assert len(lib.tokens(context)) == len(task.prompt) - count
            self._check(context, task)

    def checkpoint(self) -> None:
        """Another task is done, and taken back."""
        task = self._task()
        with self._for(task) as context:
            self._hold(context, task.prompt)
            checkpoint = lib.checkpoint(context)
            try:
                self._check(context, self._like(task))
                lib.rewind(context, checkpoint)
            finally:
                self._release(lib.free_checkpoint, checkpoint)
            assert lib.tokens(context) == task.prompt
            self._check(context, task)

    def save_and_load(self) -> None:
        """A file goes from one context to another, and both calls are cancelled at times."""
        task = self._task()
        with self._for(task) as context, self._for(task) as other:
            self._hold(context, task.prompt)
            self._retried(context, lib.save, self._file)
            self._retried(other, lib.restore, self._file)
            assert lib.tokens(other) == task.prompt
            self._check(other, task)

    def keep_in_memory(self) -> None:
        """An array goes from one context to another."""
        task, array = self._task(), c_int64()
        with self._for(task) as context, self._for(task) as other:
            self._hold(context, task.prompt)
            lib.check(lib.c.cow_mlx_context_save_array(context, byref(array)))
            try:
                lib.check(lib.c.cow_mlx_context_load_array(other, array))
            finally:
                self._release(Arrays(lib).free, array.value)
            assert lib.tokens(other) == task.prompt
            self._check(other, task)

    def sleep(self) -> None:
        """A model falls asleep, unless another thread works with it."""
        task = self._task()
        with self._for(task) as context:
            self._hold(context, task.prompt)
            try:
                lib.check(lib.c.cow_mlx_model_sleep(task.model))
            except StatusError as error:
                allow(error, ESTATE)
            assert lib.tokens(context) == task.prompt
            self._check(context, task)

    def think(self) -> None:
        """A chat with a bound of thinking, which a model without thinking refuses each time."""
        chat = self._draw.choice(self._chats)
        with self._context(chat.model) as context:
            try:
                lib.chat(context, chat.messages, max_tokens=24, thinking_tokens=2)
            except StatusError as error:
                allow(error, EUNSUPPORTED)
            text = lib.chat(context, chat.messages, max_tokens=24).said()
        assert text == chat.text, (text, chat)

    def call_tools(self) -> None:
        """A chat that may call a tool, whole behind one that is cancelled at times."""
        chat = self._draw.choice(self._tool_chats)

        def ask(context: int) -> None:
            params = self._params(chat)
            said = lib.chat(context, chat.messages, options=chat.options, **params)
            assert (said.said(), said.calls) == (chat.text, chat.calls), (said.events, chat)

        with self._context(chat.model) as context:
            self._retried(context, ask)
            ask(context)

    def score(self) -> None:
        """Log probabilities of a prompt, between two generations of the context."""
        task = self._task()
        with self._for(task) as context:
            self._hold(context, task.prompt)
            scored = prompt_logprobs(lib, context, task.tokens)
            assert [row[0][0] for row in scored] == task.tokens
            assert lib.tokens(context) == task.prompt
            self._check(context, task)

    def rows(self) -> None:
        """Rows of embeddings in the place of tokens, forked, and dropped for tokens."""
        task = self._task()
        with self._for(task) as context:
            width = lib.info(task.model)["embedding_width"]
            array = Arrays(lib).create(np.zeros((2, width), np.float32))
            try:
                given = [-1, *task.prompt, -1]
                tokens = (c_int32 * len(given))(*given)
                params = lib.params("generation", max_tokens=4)
                begin = lib.c.cow_mlx_context_begin_embeddings
                lib.check(begin(context, tokens, len(given), array, params))
            finally:
                self._release(Arrays(lib).free, array)
            said = lib.drain(context)
            forked = lib.fork(context)
            try:
                assert lib.tokens(forked)[: len(given)] == given, said
                self._check(forked, task)
            finally:
                self._release(lib.free, forked)
            self._check(context, task)

    def tokenize(self) -> None:
        """Text to tokens, and back."""
        model, text = self._chats[0].model, self._draw.choice(TEXTS)
        assert lib.detokenize(model, lib.tokenize(model, text)) == text


def prepare(seed: int, calf: str, others: list[str]) -> tuple[list[Task], list[Chat]]:
    """Compute what tasks give alone."""
    model, long = lib.load(calf), TEXTS[1] * (LONG // 5)
    prompts = [(model, lib.tokenize(model, text, flags=1)) for text in (*TEXTS, long)]
    chats = [answered(model, question) for question in QUESTIONS]
    chats += answered_with_tools(model)
    draw = random.Random(seed)
    for path in others:
        other = lib.load(path)
        prompts += [(other, [draw.randrange(10, 250) for _ in range(n)]) for n in (3, 20, LONG)]
    return [task for where, prompt in prompts for task in tasks_of(where, prompt)], chats


def tasks_of(model: int, prompt: list[int]) -> Iterator[Task]:
    """All that a model can do with a prompt."""
    quantizes = lib.info(model)["cache"]["quantise"] != "no"
    for settings in [{}, {"kv_bits": 8}] if quantizes else [{}]:
        for params in PARAMS:
            try:
                yield alone(model, settings, prompt, params)
            except StatusError as error:
                allow(error, EUNSUPPORTED)


def main(seconds: float, seed: int, folder: Path, calf: str, others: list[str]) -> None:
    """Let all threads work until the time is over."""
    lib.start(prompt_cache_dir=str(folder / "prompts"), prompt_cache_bytes=1 << 22)
    tasks, chats = prepare(seed, calf, others)
    at_risk, over = AtRisk(random.Random(seed + 1)), threading.Event()
    workers = [Worker(number, seed, folder, tasks, chats, at_risk) for number in range(THREADS)]
    failures: list[str] = []
    end = time.monotonic() + seconds

    def work(worker: Worker) -> None:
        try:
            worker.run_all()
            while time.monotonic() < end and not failures:
                worker.run_all()
        except BaseException:
            failures.append(traceback.format_exc())

    def meddle() -> None:
        while not over.is_set():
            at_risk.cancel_one()
            lib.trim_memory()  # in line with everybody's calls: about as often as they come

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    meddler = threading.Thread(target=meddle)
    for thread in (*threads, meddler):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    meddler.join()
    contexts = lib.info()["handles"]["context"]
    if failures or contexts:
        sys.exit("\n".join([*failures, f"{contexts} contexts are left"]))
    lib.stop()
    print(json.dumps(dict(sum((worker.done for worker in workers), Counter()))))


if __name__ == "__main__":
    length, chosen, where, path_of_calf, *rest = sys.argv[1:]
    main(float(length), int(chosen), Path(where), path_of_calf, rest)

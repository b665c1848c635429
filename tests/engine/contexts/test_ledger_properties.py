"""Random sequences of calls against a plain model of what contexts must hold.

Always the same sequences, unless LEDGER_EXAMPLES says how many others to try.
"""

from __future__ import annotations

import os

import pytest
from driver import KINDS, KV, opened, prompt, settle
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.library import StatusError
from support.signatures import (
    DONE,
    EBUFFER,
    ECANCELED,
    ECONTEXT,
    EINVAL,
    ENOENT,
    ESTATE,
    FINISH_CONTEXT,
    FINISH_LENGTH,
    OK,
)

EXAMPLES = int(os.environ.get("LEDGER_EXAMPLES", "0"))
STEPS = 40
WINDOW = 48
MAX_CONTEXTS = 3

number = st.integers(0, 999)
small = st.integers(0, 12)
counts = st.sampled_from([0, 1, 3, 30, 40, 50])  # tokens to generate; most continue for a while


class Held:
    """What a context must hold.

    Attributes:
        tokens: exactly these.
        begun: whether there is a generation, under way or over.
        left: tokens that it still gives; 0: it is over.
        stuck: whether a piece waits that did not fit its host's buffer.
        checkpoints: their tokens, by handle.
    """

    def __init__(self, window, tokens=()):
        self.window = window
        self.tokens = list(tokens)
        self.begun = False
        self.left = 0
        self.stuck = False
        self.checkpoints = {}

    def end(self):
        self.left, self.stuck = 0, False


class Ledger(RuleBasedStateMachine):
    """Contexts of one model, and what each must hold."""

    def __init__(self, lib, model, oracle, kind, scratch):
        super().__init__()
        self.lib, self.model, self.oracle, self.kind = lib, model, oracle, kind
        self.scratch = scratch
        self.contexts: dict[int, Held] = {}
        self.saved: dict[str, list[int]] = {}
        self.opened(True, False)

    def opened(self, share_prefix, narrow):
        window = WINDOW if narrow else 512
        handle = self.lib.context(self.model, max_tokens=window, share_prefix=share_prefix)
        self.contexts[handle] = Held(window)

    def pick(self, which):
        """One context, most often the first: what matters happens to one."""
        handles = list(self.contexts)
        return handles[which % len(handles) if which % 3 == 0 else 0]

    def fails(self, status, call, *arguments):
        with pytest.raises(StatusError) as error:
            call(*arguments)
        assert error.value.status == status, error.value.message

    def keep(self, handle, call, *arguments):
        """Make a call that needs all that a context holds to be its host's; None if it fails."""
        held = self.contexts[handle]
        if not held.stuck or self.kind == KV:
            return call(handle, *arguments)
        try:
            return call(handle, *arguments)
        except StatusError as error:
            assert error.status == ESTATE
            return None

    # ------------------------------------------------------------ Contexts

    @precondition(lambda self: len(self.contexts) < MAX_CONTEXTS)
    @rule(share_prefix=st.booleans(), narrow=st.booleans())
    def open(self, share_prefix, narrow):
        self.opened(share_prefix, narrow)

    @precondition(lambda self: 0 < len(self.contexts) < MAX_CONTEXTS)
    @rule(which=number)
    def fork(self, which):
        handle = self.pick(which)
        made = self.keep(handle, self.lib.fork)
        if made is not None:
            held = self.contexts[handle]
            self.contexts[made] = Held(held.window, held.tokens)

    @precondition(lambda self: len(self.contexts) > 1)
    @rule(which=number)
    def free(self, which):
        handle = self.pick(which)
        self.lib.free(handle)
        del self.contexts[handle]

    @rule(which=number)
    def reset(self, which):
        handle = self.pick(which)
        self.lib.reset(handle)
        held = self.contexts[handle]
        held.tokens, held.begun = [], False
        held.end()

    @rule()
    def trim_memory(self):
        self.lib.trim_memory()

    # ------------------------------------------------------- Checkpoints, files

    @rule(which=number)
    def checkpoint(self, which):
        handle = self.pick(which)
        made = self.keep(handle, self.lib.checkpoint)
        if made is not None:
            held = self.contexts[handle]
            held.checkpoints[made] = list(held.tokens)

    @rule(which=number, other=number, more=st.integers(0, 3))
    def rewind(self, which, other, more):
        """And continue from there, so that a later rewind has something to undo."""
        handle = self.pick(which)
        owner = self.pick(other)
        for checkpoint, tokens in list(self.contexts[owner].checkpoints.items())[:1]:
            if owner != handle:
                self.fails(EINVAL, self.lib.rewind, handle, checkpoint)
                continue
            self.lib.rewind(handle, checkpoint)
            held = self.contexts[handle]
            held.tokens = list(tokens)
            held.end()
            self.begin_with(handle, held.tokens + prompt(more, seed=other), more)

    @rule(which=number)
    def free_checkpoint(self, which):
        held = self.contexts[self.pick(which)]
        for checkpoint in list(held.checkpoints)[:1]:
            self.lib.free_checkpoint(checkpoint)
            del held.checkpoints[checkpoint]

    @rule(which=number, name=st.sampled_from("ab"))
    def save(self, which, name):
        handle = self.pick(which)
        self.keep(handle, self.saving, name)

    def saving(self, handle, name):
        self.lib.save(handle, self.scratch / name)
        self.saved[name] = list(self.contexts[handle].tokens)

    @rule(which=number, name=st.sampled_from("abc"))
    def load(self, which, name):
        handle = self.pick(which)
        held = self.contexts[handle]
        if name not in self.saved:
            self.fails(ENOENT, self.lib.restore, handle, self.scratch / "none")
        elif len(self.saved[name]) > held.window:
            self.fails(ECONTEXT, self.lib.restore, handle, self.scratch / name)
        else:
            self.lib.restore(handle, self.scratch / name)
            held.tokens = list(self.saved[name])
            held.end()

    # ------------------------------------------------------------- Generating

    @rule(
        which=number,
        keep=number,
        more=small,
        count=counts,
        draft=st.booleans(),
        steps=st.integers(0, 4),
        then=st.sampled_from(["", "settle", "cancel", "settle, cancel"]),
    )
    def begin(self, which, keep, more, count, draft, steps, then):
        """With some of the context's tokens, and new ones."""
        handle = self.pick(which)
        held = self.contexts[handle]
        tokens = held.tokens[: keep % (len(held.tokens) + 1)] if keep % 3 else held.tokens
        tokens = tokens[:150] + prompt(more, seed=keep)
        params = {"draft_tokens": 3} if draft and self.kind == KV else {}
        if not self.begin_with(handle, tokens, count, **params):
            return
        if steps and held.left:
            self.take(handle, min(steps, held.left))
        if "settle" in then:
            settle(self.lib, self.model)
        if "cancel" in then:
            self.stop(handle)

    def begin_with(self, handle, tokens, count, **params):
        held = self.contexts[handle]
        if not tokens:
            self.fails(EINVAL, self.lib.begin, handle, tokens)
            return False
        if len(tokens) > held.window:
            self.fails(ECONTEXT, self.lib.begin, handle, tokens)
            return False
        self.lib.begin(handle, tokens, max_tokens=count, **params)
        held.end()
        held.tokens, held.begun, held.left = tokens, True, count
        return True

    @rule(which=number, keep=number, more=small)
    def begin_and_refuse(self, which, keep, more):
        """A callback that cancels: the context holds a beginning of the prompt."""
        handle = self.pick(which)
        held = self.contexts[handle]
        tokens = held.tokens[: min(keep % 40, 30)] + prompt(more + 1)
        with pytest.raises(StatusError) as canceled:
            self.lib.begin(handle, tokens, prompt_progress=lambda *_: False)
        assert canceled.value.status == ECANCELED
        held.end()
        held.tokens, held.begun = self.lib.tokens(handle), True
        assert held.tokens == tokens[: len(held.tokens)]

    @rule(which=number, count=st.integers(1, 4))
    def next(self, which, count):
        self.take(self.pick(which), count)

    def take(self, handle, count):
        held = self.contexts[handle]
        if not held.begun:
            self.fails(ESTATE, self.lib.next, handle)
            return
        if held.left:
            expected = self.oracle.after(held.tokens, count)
        for step in range(count):
            piece = self.lib.next(handle)
            if not held.left:
                # A piece that its cache could not take back when it was cancelled comes still.
                assert piece.status == DONE or (held.stuck and self.kind != KV)
                if piece.status == OK:
                    held.tokens.append(piece.token)
                held.stuck = False
                return
            assert (piece.status, piece.token) == (OK, expected[step])
            self.took(held, piece)

    def took(self, held, piece):
        held.stuck = False
        held.left -= 1
        full = len(held.tokens) == held.window
        assert piece.finish == (0 if held.left and not full else piece.finish)
        if full or not held.left:
            assert piece.finish == (FINISH_LENGTH if not held.left else FINISH_CONTEXT)
            held.left = 0
        else:
            held.tokens.append(piece.token)

    @rule(which=number)
    def next_into_no_buffer(self, which):
        handle = self.pick(which)
        held = self.contexts[handle]
        if not held.left:
            return
        piece = self.lib.next(handle, capacity=0)
        if piece.status == EBUFFER:
            held.stuck = True
        else:
            assert piece.status == OK
            self.took(held, piece)

    @rule(which=number, more=st.integers(1, 5), count=st.integers(0, 6))
    def generate(self, which, more, count):
        handle = self.pick(which)
        held = self.contexts[handle]
        tokens = held.tokens[:150] + prompt(more)
        if len(tokens) > held.window:
            self.fails(ECONTEXT, self.lib.generate, handle, tokens)
            return
        done = self.lib.generate(handle, tokens, max_tokens=count)
        room = held.window - len(tokens)
        given = min(count, room + 1)
        assert done.stats.generated_tokens == given
        if given > 1:
            tokens += self.oracle.after(tokens, given - 1)
        held.end()
        held.tokens, held.begun = tokens, True

    @rule(which=number, at_once=st.booleans())
    def cancel(self, which, at_once):
        """Seen by the next call on the context, or by its next turn."""
        self.stop(self.pick(which), at_once)

    def stop(self, handle, at_once=True):
        self.lib.cancel(handle)
        self.contexts[handle].left = 0
        if at_once:
            self.take(handle, 1)

    @rule()
    def let_others_run_ahead(self):
        settle(self.lib, self.model)

    # ---------------------------------------------------------------- Trimming

    @rule(which=number, count=st.integers(0, 20))
    def trim_end(self, which, count):
        handle = self.pick(which)
        held = self.contexts[handle]
        dropped = min(count, len(held.tokens))
        assert self.lib.trim_end(handle, count) == dropped
        held.tokens = held.tokens[: len(held.tokens) - dropped]
        held.end()

    @rule(which=number, count=st.integers(0, 20))
    def trim_front(self, which, count):
        handle = self.pick(which)
        held = self.contexts[handle]
        dropped = min(count, len(held.tokens))
        assert self.lib.trim_front(handle, count) == dropped
        held.tokens = held.tokens[dropped:]
        held.end()

    # -------------------------------------------------------------- What holds

    @invariant()
    def every_context_holds_what_it_must(self):
        for handle, held in self.contexts.items():
            assert self.lib.tokens(handle) == held.tokens
            assert self.lib.info(handle)["tokens"] == len(held.tokens)

    def teardown(self):
        try:
            for handle, held in self.contexts.items():
                after = held.tokens[: held.window - 6] + prompt(2)
                self.lib.begin(handle, after, max_tokens=4)
                given = [self.lib.next(handle).token for _ in range(4)]
                assert given == self.oracle.after(after, 4), after
        finally:
            for handle in self.contexts:
                self.lib.free(handle)


@pytest.mark.parametrize("kind", KINDS)
def test_random_calls_leave_exactly_the_right_tokens(lib, tiny, oracle, tmp_path, kind):
    with opened(lib, tiny(kind)):
        run_state_machine_as_test(
            lambda: Ledger(lib, tiny(kind), oracle(kind), kind, tmp_path),
            settings=settings(
                max_examples=EXAMPLES or 25,
                stateful_step_count=STEPS,
                derandomize=not EXAMPLES,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

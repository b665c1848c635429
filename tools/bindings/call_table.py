"""The one table of calls that are not like most: where their bodies are, and what they may do.

A call that is not in the table has a generated body, which makes a request and waits.
"""

from __future__ import annotations

from enum import Flag, auto


class Is(Flag):
    """A property of a call."""

    # csrc has its body. It fills the same typed arguments as generated bodies do.
    BODY_BY_HAND = auto()
    # csrc has its body, and there are no typed arguments.
    ALL_BY_HAND = auto()
    # Has an operation of the dispatch thread, though all is by hand: bridge.pyx reads it.
    REQUESTED = auto()
    # Bindings make it by hand: its parameters have no roles.
    NO_ROLES = auto()
    # Returns at once. The library copies params and all that they point to.
    ASYNC = auto()
    # Refused when memory is nearly used up: libraries below end the process there.
    ALLOCATES = auto()
    # Made while another call runs: its failures are not those of context_info.
    READ_ONLY = auto()
    # Consumes its result, so that a NULL buffer is too small rather than a question.
    CONSUMES = auto()


DATA = Is.ALL_BY_HAND | Is.NO_ROLES  # moves data on the caller's thread: csrc/calls/array_calls.c

CALLS = {
    "error_details": Is.ALL_BY_HAND | Is.NO_ROLES,
    "runtime_start": Is.ALL_BY_HAND | Is.REQUESTED,
    "runtime_stop": Is.ALL_BY_HAND | Is.REQUESTED,
    "model_load": Is.ALLOCATES,
    "model_load_async": Is.ALL_BY_HAND | Is.ASYNC,
    "model_poll": Is.ALL_BY_HAND,
    "model_wake_fd": Is.ALL_BY_HAND,
    "model_free": Is.BODY_BY_HAND,
    "model_tokenize": Is.ALLOCATES,
    "model_chat_prompt": Is.ALLOCATES,
    "model_infill_prompt": Is.ALLOCATES,
    "model_embed": Is.ALLOCATES,
    "adapter_load": Is.ALLOCATES,
    "context_create": Is.ALLOCATES,
    "context_fork": Is.ALLOCATES,
    "context_tokens": Is.READ_ONLY,
    "context_save": Is.ALLOCATES,
    "context_load": Is.ALLOCATES,
    "context_save_array": Is.ALLOCATES,
    "context_load_array": Is.ALLOCATES,
    "context_info": Is.READ_ONLY,
    "context_begin": Is.ALLOCATES,
    "context_begin_embeddings": Is.ALLOCATES,
    "context_begin_async": Is.ALL_BY_HAND | Is.ASYNC,
    "context_next": Is.BODY_BY_HAND | Is.CONSUMES,
    "context_next_event": Is.ALL_BY_HAND,
    "context_poll": Is.BODY_BY_HAND,
    "context_wake_fd": Is.BODY_BY_HAND,
    "context_generate": Is.ALLOCATES,
    "context_prompt_logprobs": Is.ALLOCATES,
    "context_prompt_logits": Is.ALLOCATES,
    "context_hidden_states": Is.ALLOCATES,
    "context_perplexity": Is.ALLOCATES,
    "context_cancel": Is.ALL_BY_HAND,
    "context_stats": Is.READ_ONLY,
    "context_chat": Is.ALLOCATES,
    "context_chat_async": Is.ALL_BY_HAND | Is.ASYNC,
    "media_from_pixels": DATA | Is.REQUESTED | Is.ALLOCATES,
    "media_from_file": DATA | Is.REQUESTED | Is.ALLOCATES,
    "array_create": DATA,
    "array_read": DATA,
    "array_type": DATA,
    "array_view": DATA,
    "array_from_dlpack": DATA,
    "array_to_dlpack": DATA,
    "array_free": Is.ALL_BY_HAND,
    "array_wait": Is.ALLOCATES,
    "array_apply": Is.ALLOCATES,
    "arrays_load": Is.ALLOCATES,
    "arrays_save": Is.ALLOCATES,
    "program_create": Is.ALLOCATES,
    "program_load": Is.ALLOCATES,
    "program_derive": Is.ALLOCATES,
    "program_run": Is.BODY_BY_HAND | Is.ALLOCATES,
    "program_cancel": Is.ALL_BY_HAND,
    "training_create": Is.ALLOCATES,
    "training_create_for_model": Is.ALLOCATES,
    "training_step": Is.BODY_BY_HAND | Is.ALLOCATES,
    "training_fit": Is.ALLOCATES,
    "training_evaluate": Is.ALLOCATES,
    "training_parameter": Is.READ_ONLY,
    "training_info": Is.READ_ONLY,
    "training_save": Is.ALLOCATES | Is.READ_ONLY,
    "training_load": Is.ALLOCATES,
    "training_adapter": Is.ALLOCATES | Is.READ_ONLY,
    "training_export": Is.ALLOCATES | Is.READ_ONLY,
    "training_cancel": Is.ALL_BY_HAND,
}


def of(name: str) -> Is:
    """The properties of a call; ``name`` without "cow_mlx_"."""
    return CALLS.get(name, Is(0))


def names(which: Is) -> list[str]:
    """The calls that have all these properties."""
    return [name for name, properties in CALLS.items() if which in properties]

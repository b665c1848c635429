"""Every field of every params struct has an effect, or is refused by its name."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
from ctypes import POINTER, c_char_p, c_float, c_int32, c_size_t, cast

import pytest
from driver import delivered, prompt
from support import signatures
from support.library import StatusError
from support.paths import ROOT
from support.signatures import EHANDLE, EINVAL, ESTATE, EUNSUPPORTED, OK, OVERFLOW_ROLL

from cowmlx.accelerate import kernels

START = prompt(8)

# Out of range: the values, and a number or word of the message that says what is accepted.
INVALID = {
    "generation": {
        "temperature": [-0.1, -math.inf, math.inf, math.nan],
        "top_p": [0.0, -0.5, 1.01, math.inf, math.nan],
        "min_p": [-0.01, 1.01, math.inf, math.nan],
        "top_k": [-1, -(2**31)],
        "typical_p": [0.0, -1.0, 1.01, math.inf, math.nan],
        "xtc_probability": [-0.01, 1.01, math.inf, math.nan],
        "xtc_threshold": [0.1, -0.1, math.inf, math.nan],
        "repetition_penalty": [0.0, -1.0, math.inf, math.nan],
        "presence_penalty": [math.inf, -math.inf, math.nan],
        "frequency_penalty": [math.inf, -math.inf, math.nan],
        "grammar_kind": [1, 5, -1],
        "logprobs": [-1, -(2**31)],
        "draft_tokens": [-1, 65, 2**31 - 1],
        "thinking_tokens": [-2, -(2**63)],
        "timeout": [-1.0, math.inf, -math.inf, math.nan],
        "dry_multiplier": [-0.1, math.inf, math.nan],
        "dry_base": [0.9, math.inf, math.nan],
        "dry_allowed_length": [0, -1],
        "dry_penalty_last_n": [0, -2],
        "top_n_sigma": [-1.0, math.inf, math.nan],
        "mirostat": [1, 3, -1],
        "mirostat_tau": [0.0, -1.0, math.inf, math.nan],
        "mirostat_eta": [0.0, 1.01, math.nan],
        "dynatemp_range": [-0.1, math.inf, math.nan],
        "dynatemp_exponent": [0.0, -1.0, math.inf, math.nan],
    },
    "context": {
        "max_tokens": [513, 2**64 - 1],
        "kv_bits": [2, 3, 6, 16, -1],
        "kv_group_size": [32, 63, -1],
        "overflow": [2, -1],
        "keep_tokens": [1, 2**64 - 1],
        "checkpoint_interval": [1, 31],
    },
    "embed": {
        "pooling": [-1, 6, 2**31 - 1],
        "batch_tokens": [0, 2**64 - 1],
        "max_tokens": [513, 2**64 - 1],
        "truncate_dims": [65, 2**64 - 1],
        "token_vectors": [513, 2**64 - 1],
    },
    "rank": {"max_tokens": [513, 2**64 - 1], "batch_tokens": [0, 2**64 - 1]},
}
OPERATIONS = {
    "generation": "context_begin",
    "context": "context_create",
    "embed": "model_embed",
    "rank": "model_rank",
}
# Where a test shows the effect of a field: a file of this folder, or a folder of tests. That it
# gives the field a value is checked; words and comments do not count.
SHOWN = {
    "generation": {
        "max_tokens": "test_finish",
        "temperature": "test_sampling",
        "top_p": "test_sampling",
        "min_p": "test_sampling",
        "top_k": "test_sampling",
        "repetition_penalty": "test_penalty",
        "repetition_window": "test_penalty",
        "seed": "test_sampling",
        "stop": "test_stop_texts",
        "stop_count": "test_stop_texts",
        "prompt_progress": "test_callbacks",
        "user_data": "test_params_fields",
        "bias_tokens": "test_penalty",
        "bias_values": "test_penalty",
        "bias_count": "test_penalty",
        "typical_p": "test_sampling",
        "xtc_probability": "test_sampling",
        "xtc_threshold": "test_sampling",
        "presence_penalty": "test_penalty",
        "presence_window": "test_penalty",
        "frequency_penalty": "test_penalty",
        "frequency_window": "test_penalty",
        "grammar": "test_grammar",
        "grammar_kind": "test_grammar",
        "logprobs": "test_logprobs",
        "draft": "test_drafting",
        "draft_tokens": "test_drafting",
        "timeout": "test_timeout",
        "dry_multiplier": "test_dry",
        "dry_base": "test_dry",
        "dry_allowed_length": "test_dry",
        "dry_penalty_last_n": "test_dry",
        "dry_sequence_breakers": "test_dry",
        "dry_sequence_breaker_count": "test_dry",
        "top_n_sigma": "test_sampling",
        "mirostat": "test_mirostat",
        "mirostat_tau": "test_mirostat",
        "mirostat_eta": "test_mirostat",
        "dynatemp_range": "test_sampling",
        "dynatemp_exponent": "test_sampling",
        "thinking_tokens": "test_thinking_budget",
        "thinking_end_text": "test_thinking_budget",
        "grammar_triggers": "test_triggers",
        "grammar_trigger_count": "test_triggers",
        "logits_fn": "test_host_logits",
        "draft_heads": "test_draft_heads",
    },
    "context": {
        "max_tokens": "test_finish",
        "kv_bits": "test_kv_bits",
        "kv_group_size": "test_kv_bits",
        "solo": "test_params_fields",
        "priority": "test_concurrency",
        "overflow": "test_overflow",
        "keep_tokens": "test_overflow",
        "share_prefix": "test_shared_prefix",
        "checkpoint_interval": "test_points",
    },
    "model": {
        "adapter_path": "tests/models",
        "progress": "test_load",
        "user_data": "test_params_fields",
        "lazy": "test_load",
        "trust_remote_code": "test_bad_models",
        "prefix_cache_bytes": "test_shared_prefix",
        "activations": "test_activations",
        "workers": "test_split_models",
        "worker_count": "test_split_models",
        "secret_path": "test_machines_refused",
        "split": "test_machines_refused",
        "connect_timeout_ms": "test_machines_refused",
        "silence_timeout_ms": "test_machines_refused",
        "quantize_bits": "test_quantize",
        "quantize_group": "test_quantize",
        "quantize_mode": "test_quantize",
        "media_cache": "test_families",
    },
    "runtime": {
        "python_home": "tests/boot",
        "device": "test_params_fields",
        "memory_limit": "test_params_fields",
        "cache_limit": "test_params_fields",
        "log": "tests/boot",
        "log_user_data": "tests/boot",
        "log_level": "tests/boot",
        "threads": "test_params_fields",
        "wired_limit": "test_device_memory",
        "quality_of_service": "test_params_fields",
        "prompt_cache_dir": "test_prompt_cache",
        "prompt_cache_bytes": "test_prompt_cache",
        "model_memory": "test_sleep",
        "cache_dir": "test_tokenizer_cache",
    },
    "embed": {
        "pooling": "test_embedding",
        "normalize": "test_embedding",
        "add_special": "test_embedding",
        "batch_tokens": "test_embedding",
        "prompt": "test_sentences",
        "prompt_name": "test_sentences",
        "max_tokens": "test_sentences",
        "truncate_dims": "test_sentences",
        "token_vectors": "test_sentences",
    },
    "rank": dict.fromkeys(
        (
            *("prompt", "instruction", "yes", "no", "normalize", "truncate", "max_tokens"),
            "batch_tokens",
        ),
        "test_ranking",
    ),
    "program": {"fixed": "tests/c_programs"},
    "run": {
        "submit": "tests/c_programs",
        "check_finite": "tests/c_programs",
        "donate": "tests/c_programs",
        "donate_count": "tests/c_programs",
    },
    "training": dict.fromkeys(
        (
            "optimizer",
            "train",
            "train_count",
            "initial_names",
            "initial_arrays",
            "initial_count",
            "seed",
            "clip_value",
            "clip_norm",
            "micro_batch",
            "skip_non_finite",
            "fine_tune",
        ),
        "tests/training",
    ),
    "fit": dict.fromkeys(
        (
            "steps",
            "epochs",
            "batch_size",
            "shuffle",
            "event_every",
            "inputs",
            "inputs_count",
            "next_batch",
            "user_data",
            "validation",
            "validation_count",
            "evaluate_every",
            "patience",
            "min_delta",
            "folder",
            "save_every",
            "lines",
            "lines_file",
            "validation_lines",
            "validation_file",
            "lines_options",
        ),
        "tests/training",
    ),
}
# Fields that the tests' params take together.
PAIRS = {
    **dict.fromkeys(("bias_tokens", "bias_values", "bias_count"), "bias"),
    "stop_count": "stop",
    "dry_sequence_breaker_count": "dry_sequence_breakers",
    "grammar_trigger_count": "grammar_triggers",
    "worker_count": "workers",
    "donate_count": "donate",
    "train_count": "train",
    **dict.fromkeys(("initial_names", "initial_arrays", "initial_count"), "initial"),
    "inputs_count": "inputs",
    "validation_count": "validation",
    "log_user_data": "log",
}
NOUNS = sorted(SHOWN)
# How a message says what is accepted.
ACCEPTED = ("must be", "it can be", "stands for", "leave it at", "but kv_bits is 0")


def cases(table):
    return [
        pytest.param(noun, field, value, id=f"{noun}.{field}={value}")
        for noun, fields in table.items()
        for field, values in fields.items()
        for value in values
    ]


def call_with(lib, model, noun, **values):
    """Make the call that takes these params: its status and its message, if it fails."""
    params = lib.params(noun, **values)
    if noun == "context":
        out = c_int32(-77)
        status = lib.c.cow_mlx_context_create(model, params, out)
        message = lib.message()
        assert (status == OK) == (out.value != -77)
        lib.c.cow_mlx_context_free(out)
        return status, message
    texts, dims = (signatures.cow_mlx_text * 1)((b"fox", 3)), c_size_t()
    if noun == "embed":
        status = lib.c.cow_mlx_model_embed(model, texts, 1, params, None, 0, dims)
        return status, lib.message()
    if noun == "rank":
        given = {"prompt": "{query}{document}", "yes": "a", "no": "b"}
        params = lib.params(noun, **given, **values)
        status = lib.c.cow_mlx_model_rank(model, b"fox", texts, 1, params, None, 0, dims)
        return status, lib.message()
    context = lib.context(model)
    status = lib.c.cow_mlx_context_begin(context, (c_int32 * 3)(11, 12, 13), 3, params)
    message = lib.message()
    assert status == OK or lib.tokens(context) == [], "refused, but something was done"
    lib.free(context)
    return status, message


def refused(lib, model, noun, status, *words, **values):
    """Fail unless the values are refused with a message that has all these words."""
    got, message = call_with(lib, model, noun, **values)
    assert got == status, message
    assert message.startswith(f"{OPERATIONS[noun]}: ")
    for word in words:
        assert word in message
    return message


def names_given(where):
    """What a test, or a folder of them, gives to calls or sets in structs; no word of a comment."""
    folder = ROOT / where
    pattern = "*.[pch]*" if folder.is_dir() else f"{where}.py"
    files = sorted((folder if folder.is_dir() else ROOT / "tests").rglob(pattern))
    for path in files:
        if path.suffix in (".c", ".h"):
            yield from re.findall(r"(?:\.|->)(\w+)", path.read_text())
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword):
                yield node.arg
            elif isinstance(node, ast.Dict):
                yield from (key.value for key in node.keys if isinstance(key, ast.Constant))
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Call):  # parametrised: ("field", value); or by position
                yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))
                yield from (each.id for each in node.args if isinstance(each, ast.Name))


@pytest.mark.parametrize("noun", NOUNS)
def test_every_field_is_known_here(noun):
    """A new one has to be shown, or refused, by a test."""
    fields = {name for name, _ in signatures.STRUCTS[f"cow_mlx_{noun}_params"]._fields_}
    assert fields - {"struct_size"} == set(SHOWN[noun])


def test_every_struct_of_params_is_known_here():
    structs = {name for name in signatures.STRUCTS if name.endswith("_params")}
    assert structs == {f"cow_mlx_{noun}_params" for noun in NOUNS}


@pytest.mark.parametrize(
    ("field", "where"),
    [
        pytest.param(field, where, id=f"{noun}.{field}")
        for noun in NOUNS
        for field, where in SHOWN[noun].items()
    ],
)
def test_every_field_is_shown_where_it_is_said_to_be(field, where):
    name = PAIRS.get(field, field)
    assert name in set(names_given(where)), f"no test of {where} gives {name} a value"


@pytest.mark.parametrize(("noun", "field", "value"), cases(INVALID))
def test_what_is_out_of_range_is_refused_with_the_range(lib, tiny, noun, field, value):
    shown = str(value) if isinstance(value, int) else f"{value:g}"
    message = refused(lib, tiny("llama"), noun, EINVAL, field, shown, **{field: value})
    assert any(words in message for words in ACCEPTED)


# Values that are good alone: what they are refused with, and the words of the message.
TOGETHER = [
    ("generation", {"typical_p": 0.5}, "typical_p temperature"),
    ("generation", {"xtc_probability": 0.5, "xtc_threshold": 0.1}, "xtc_probability temperature"),
    ("generation", {"xtc_probability": 0.5, "temperature": 1.0}, "xtc_threshold 0.5"),
    (
        "generation",
        {"xtc_probability": 0.5, "xtc_threshold": 0.51, "temperature": 1.0},
        "xtc_threshold 0.51 0.5",
    ),
    ("generation", {"xtc_threshold": 0.1, "temperature": 1.0}, "xtc_threshold xtc_probability"),
    (
        "generation",
        {"repetition_penalty": 1.5, "repetition_window": 0},
        "repetition_window at least 1",
    ),
    ("generation", {"presence_penalty": 0.1, "presence_window": 0}, "presence_window at least 1"),
    (
        "generation",
        {"frequency_penalty": -0.1, "frequency_window": 0},
        "frequency_window at least 1",
    ),
    ("generation", {"mirostat": 2}, "mirostat temperature"),
    ("generation", {"dynatemp_range": 0.5}, "dynatemp_range temperature"),
    ("generation", {"dry_sequence_breakers": [""]}, "dry_sequence_breakers[0] empty"),
    ("generation", {"dry_sequence_breakers": ["a" * 257]}, "dry_sequence_breakers[0] 257 256"),
    ("generation", {"dry_sequence_breakers": ["a"] * 257}, "dry_sequence_breaker_count 257 256"),
    ("generation", {"grammar": "a", "grammar_kind": 0}, "grammar_kind GBNF"),
    ("generation", {"grammar": "a", "grammar_kind": 5}, "grammar_kind 5 GBNF"),
    ("generation", {"bias": {11: math.nan}}, "bias 11"),
    ("generation", {"bias": {11: math.inf}}, "bias 11"),
    ("generation", {"bias": {-1: 1.0}}, "bias_tokens -1"),
    ("generation", {"bias": {10**6: 1.0}}, "bias_tokens 1000000"),
    ("generation", {"logprobs": 10**6}, "logprobs 1000000 vocabulary"),
    ("context", {"kv_bits": 4, "kv_group_size": 63}, "kv_group_size 63 128"),
    (
        "context",
        {"overflow": OVERFLOW_ROLL, "keep_tokens": 64, "max_tokens": 64},
        "keep_tokens 64",
    ),
]


@pytest.mark.parametrize(("noun", "values", "words"), TOGETHER, ids=str)
def test_options_that_do_not_go_together_are_refused(lib, tiny, noun, values, words):
    refused(lib, tiny("llama"), noun, EINVAL, *words.split(), **values)


def test_what_a_model_or_its_cache_cannot_do_is_refused_with_the_reason(lib, tiny):
    marks = "this model marks no thinking"
    refused(lib, tiny("llama"), "generation", EUNSUPPORTED, marks, thinking_tokens=2)
    refused(lib, tiny("mamba2"), "context", EUNSUPPORTED, "kv_bits is 4", "mamba2", kv_bits=4)


def test_a_draft_must_be_an_open_model(lib, tiny, open_context):
    model = tiny("llama")
    for draft in (1, -1, open_context(model)):
        refused(lib, model, "generation", EHANDLE, str(draft), draft=draft)


def test_a_bias_of_nothing_left_is_refused(lib, tiny):
    model = tiny("llama")
    size = lib.info(model)["vocabulary_size"]
    bias = dict.fromkeys(range(size), -math.inf)
    refused(lib, model, "generation", EINVAL, "bias_values", str(size), bias=bias)
    del bias[40]
    assert call_with(lib, model, "generation", bias=bias)[0] == OK


def test_arrays_of_a_bias_that_are_not_there(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    tokens = cast((c_int32 * 2)(11, 11), POINTER(c_int32))
    values = cast((c_float * 2)(1, 2), POINTER(c_float))
    for name, count, given in (
        ("bias_tokens", 2, (None, values)),
        ("bias_values", 2, (tokens, None)),
        ("bias_count", 2**64 - 1, (tokens, values)),
        ("bias_tokens", 2, (tokens, values)),  # one token twice
    ):
        params = lib.params("generation", max_tokens=1)
        params.bias_tokens, params.bias_values = given
        params.bias_count = count
        assert lib.c.cow_mlx_context_begin(context, (c_int32 * 1)(11), 1, params) == EINVAL
        assert name in lib.message()
        assert lib.tokens(context) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", 1e-30),
        ("temperature", 3e38),
        ("top_p", 1e-30),
        ("top_p", 1.0),
        ("min_p", 0.0),
        ("min_p", 1.0),
        ("top_k", 0),
        ("top_k", 2**31 - 1),
        ("repetition_penalty", 1e-30),
        ("repetition_penalty", 3e38),
        ("repetition_window", 1),
        ("repetition_window", 2**64 - 1),
        ("seed", 2**64 - 1),
        ("typical_p", 1e-45),
        ("typical_p", 1.0),
        ("presence_penalty", -3e38),
        ("presence_penalty", 3e38),
        ("presence_window", 2**64 - 1),
        ("frequency_penalty", -3e38),
        ("frequency_penalty", 3e38),
        ("frequency_window", 2**64 - 1),
        ("bias", {11: -math.inf, 12: -3e38, 13: 3e38}),
        ("logprobs", 1),
        ("draft_tokens", 64),
        ("timeout", 1e300),
    ],
    ids=str,
)
def test_the_ends_of_the_ranges_work(lib, tiny, open_context, field, value):
    context = open_context(tiny("llama"))
    settings = {"temperature": 1.0, "repetition_penalty": 1.1, "top_p": 0.9, "max_tokens": 4}
    settings |= {"presence_penalty": 0.1, "frequency_penalty": 0.1}
    lib.begin(context, START, **{**settings, field: value})
    pieces = lib.drain(context)
    assert all(
        0 <= token < lib.info(tiny("llama"))["vocabulary_size"] for token in delivered(pieces)
    )
    assert len(delivered(pieces)) == 4


@pytest.mark.parametrize("count", [1, 3, 5000, 2**64 - 1])
def test_stop_texts_that_are_not_there(lib, tiny, count):
    refused(lib, tiny("llama"), "generation", EINVAL, "stop", str(count), stop_count=count)


def test_a_null_and_an_empty_stop_text(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    for texts in ((b"a", None), (b"a", b"")):
        params = lib.params("generation", max_tokens=1)
        params.stop = (c_char_p * 2)(*texts)
        params.stop_count = 2
        status = lib.c.cow_mlx_context_begin(context, (c_int32 * 1)(11), 1, params)
        assert status == EINVAL
        assert "stop[1]" in lib.message()


def test_a_stop_text_that_is_not_utf8(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    params = lib.params("generation", max_tokens=1)
    params.stop = (c_char_p * 1)(b"a\xff")
    params.stop_count = 1
    assert lib.c.cow_mlx_context_begin(context, (c_int32 * 1)(11), 1, params) == EINVAL
    assert "stop[0]" in lib.message()
    assert "UTF-8" in lib.message()


# ------------------------------------------- Fields whose effect is shown here


def test_user_data_reaches_the_callbacks(lib, tiny, folder, open_context):
    """The pointer itself, whatever it is."""
    seen = []
    kind = signatures.cow_mlx_prompt_fn
    params = lib.params("generation", max_tokens=0)
    params.prompt_progress = prompt_progress = kind(lambda done, total, data: not seen.append(data))
    params.user_data = 0x1234
    context = open_context(tiny("llama"))
    assert lib.c.cow_mlx_context_begin(context, (c_int32 * 1)(11), 1, params) == 0
    assert set(seen) == {0x1234}
    assert prompt_progress

    seen.clear()
    params = lib.params("model", lazy=False)
    progress = signatures.cow_mlx_progress_fn(lambda *arguments: not seen.append(arguments[-1]))
    params.progress, params.user_data = progress, 0x5678
    out = c_int32()
    assert lib.c.cow_mlx_model_load(bytes(folder("llama-other")), params, out) == 0
    lib.free_model(out.value)
    assert set(seen) == {0x5678}


def test_context_params_are_reported(lib, tiny, open_context):
    context = open_context(tiny("llama"), max_tokens=77, solo=True, priority=-3)
    info = lib.info(context)
    assert (info["max_tokens"], info["solo"], info["priority"]) == (77, True, -3)
    info = lib.info(open_context(tiny("llama")))
    assert (info["max_tokens"], info["solo"], info["priority"]) == (512, False, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "cpu"},
        {"device": "tpu"},
        {"memory_limit": 1 << 30},
        {"cache_limit": 1 << 20},
        {"threads": 1},
        {"wired_limit": 0},
        {"quality_of_service": "utility"},
        {"cache_dir": "/nowhere"},
    ],
    ids=str,
)
def test_another_start_with_other_params_is_refused(lib, changes):
    """The runtime runs with the defaults here; a test in a separate process shows the effects."""
    if changes == {"device": "cpu"} and lib.info()["device"] == "cpu":
        changes = {"device": "gpu"}
    with pytest.raises(StatusError) as error:
        lib.start(**changes)
    assert error.value.status == ESTATE
    assert lib.info()["device"]


LIMITED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from support.library import Library

lib = Library()
limits = {"memory_limit": 3 << 30, "cache_limit": 1 << 20, "threads": 3}
lib.start(device="cpu", quality_of_service="background", **limits)
context = lib.context(lib.load(sys.argv[2]))
lib.generate(context, list(range(11, 200)), max_tokens=4)
print(json.dumps(lib.info()))
lib.stop()
"""


def test_limits_and_the_device_are_those_of_the_start(folder):
    """In a separate process: here the runtime runs already."""
    command = [sys.executable, "-c", LIMITED, str(ROOT / "tests"), str(folder("llama"))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    info = json.loads(done.stdout)
    assert info["device"] == "cpu"
    assert info["memory"]["limit"] == 3 << 30
    assert info["memory"]["cache"] <= 1 << 20
    assert info["kernels"]["threads"] == (3 if kernels.available() else None)


def test_a_wired_limit_below_its_default_is_refused(lib):
    with pytest.raises(StatusError, match=r"EINVAL.*wired_limit is -2, must be -1 for"):
        lib.start(wired_limit=-2)


@pytest.mark.parametrize("name", ["", "utilities", "user-initiated "])
def test_another_quality_of_service_is_refused(lib, name):
    with pytest.raises(StatusError, match=f'EINVAL.*quality_of_service is "{name}", must be "user'):
        lib.start(quality_of_service=name)


def test_a_negative_number_of_threads_is_refused(lib):
    with pytest.raises(StatusError, match=r"EINVAL.*threads is -1, must be 0 for"):
        lib.start(threads=-1)


@pytest.mark.parametrize("name", ["temperature", "repetition_penalty", "presence_penalty"])
def test_a_value_beyond_all_numbers_is_told_so(lib, tiny, open_context, name):
    with pytest.raises(StatusError, match=f"EINVAL.*{name} is inf, .* finite"):
        lib.begin(open_context(tiny("llama")), [11], **{name: math.inf})

"""A language model trained over the C ABI on lines: losses, adapters, exports, resumed, refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from support import tiny_models
from support.callbacks import StatusError
from support.paths import EYES
from support.seen import said
from support.signatures import (
    ECANCELED,
    EFORMAT,
    EINVAL,
    ENOENT,
    EUNSUPPORTED,
    TRAINING_END,
    TRAINING_EVALUATION,
    TRAINING_STEP,
)
from support.trainings import data, network

HERE = Path(__file__).parent
LINES = [
    {"text": f"The quick brown fox jumps over {n} lazy dogs. " * (1 + n % 3)} for n in range(9)
]
CHAT = [
    {
        "messages": [
            {"role": "user", "content": f"Who is {n}?"},
            {"role": "assistant", "content": f"The fox {n}."},
        ]
    }
    for n in range(6)
]
OPTIONS = {
    "optimizer": {"name": "adam", "learning_rate": 0.01},
    "seed": 3,
    "fine_tune": {"rank": 4, "dropout": 0.1},
}


def text(lines) -> bytes:
    return "\n".join(json.dumps(line) for line in lines).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.make(tmp_path_factory.mktemp("trained"), "llama")


@pytest.fixture(scope="module")
def model(lib, folder):
    handle = lib.load(folder)
    yield handle
    lib.free_model(handle)


def logits(lib, context):
    lib.reset(context)
    return lib.begin(context, [5, 9, 40, 41], max_tokens=0) or lib.logits(context)


def test_a_model_learns_and_contexts_take_what_it_learnt(trainings, lib, model):
    """While the fit runs: the context's model stays as it is, and its adapter is what was then."""
    context = lib.context(model)
    before = logits(lib, context)
    training = trainings.create_for_model(model, **OPTIONS)
    adapters = []

    def told(event):
        if event.kind == TRAINING_STEP and event.step in (2, 6):
            adapters.append(trainings.adapter(training))
            assert logits(lib, context) == before

    events = trainings.fit(training, told, lines=text(LINES), steps=8, batch_size=3)
    steps = [event for event in events if event.kind == TRAINING_STEP]
    assert steps[-1].loss < steps[0].loss - 1
    assert events[-1].kind == TRAINING_END
    assert logits(lib, context) == before
    found = []
    for adapter in adapters:
        lib.set_adapter(context, adapter)
        found.append(logits(lib, context))
    assert before != found[0] != found[1] != before
    lib.set_adapter(context, 0)
    assert logits(lib, context) == before
    lib.free(context)
    for adapter in adapters:
        lib.free_adapter(adapter)
    trainings.free(training)


def test_an_interrupted_run_ends_with_the_same_bits(trainings, model, tmp_path):
    """With dropout, in micro-batches, evaluated."""
    options = {**OPTIONS, "micro_batch": 2}
    given = {
        "lines": text(LINES),
        "validation_lines": text(LINES[:2]),
        "batch_size": 4,
        "evaluate_every": 2,
    }
    whole = trainings.create_for_model(model, **options)
    events = trainings.fit(whole, **given, steps=7)
    assert sum(event.kind == TRAINING_EVALUATION for event in events) == 4
    first = trainings.create_for_model(model, **options)
    trainings.fit(first, **given, steps=4, save_every=4, folder=tmp_path / "run")
    other = trainings.create_for_model(model, **options)
    trainings.load(other, tmp_path / "run")
    trainings.fit(other, **given, steps=7)
    assert trainings.parameters(other) == trainings.parameters(whole)
    for training in (whole, first, other):
        trainings.free(training)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_plain_mlx_lm_reads_an_export(trainings, lib, model, folder, tmp_path, kind):
    training = trainings.create_for_model(
        model, optimizer={"name": "sgd", "learning_rate": 0.1}, fine_tune={"type": kind}
    )
    trainings.fit(training, lines=text(LINES), steps=3)
    trainings.export(training, tmp_path / "out")
    if kind == "lora":
        trainings.export(training, tmp_path / "fused", fuse=True)
    places = [tmp_path / "out"] if kind == "full" else [tmp_path / "fused"]
    context = lib.context(model)
    adapter = trainings.adapter(training)
    lib.set_adapter(context, adapter)
    expected = mx.array(logits(lib, context))
    (tmp_path / "tokens.json").write_text(json.dumps([5, 9, 40, 41]))
    runs = (
        [(places[0], None)] if kind == "full" else [(places[0], None), (folder, tmp_path / "out")]
    )
    for path, adapter_path in runs:
        code = (
            "import sys, json, mlx.core as mx\n"
            "mx.set_default_device(mx.cpu)\n"
            "from mlx_lm.utils import load_model\n"
            "from mlx_lm.tuner.utils import load_adapters\n"
            "from pathlib import Path\n"
            "net, _ = load_model(Path(sys.argv[1]))\n"
            "net = load_adapters(net, sys.argv[2]) if sys.argv[2] else net\n"
            "net.eval()\n"
            "found = net(mx.array([json.load(open(sys.argv[3]))]))[0, -1]\n"
            "print(json.dumps(found.astype(mx.float32).tolist()))\n"
        )
        arguments = [str(path), str(adapter_path or ""), str(tmp_path / "tokens.json")]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        found = mx.array(json.loads(done.stdout))
        assert mx.abs(found - expected).max().item() < 2e-2
    lib.free(context)
    lib.free_adapter(adapter)
    trainings.free(training)


def test_what_lines_became_is_told(trainings, model):
    training = trainings.create_for_model(model, **OPTIONS)
    assert trainings.info(training)["data"] is None
    options = {"max_seq_length": 16, "mask_prompt": False}
    trainings.fit(training, lines=text(LINES), steps=1, lines_options=options)
    told = trainings.info(training)["data"]
    assert told["lines"] == told["rows"] == 9 and told["longest"] == 16 and told["cut"] > 0
    trainings.fit(training, lines=text(CHAT), steps=2, lines_options={"mask_prompt": True})
    masked = trainings.info(training)["data"]
    assert masked["targets"] < masked["tokens"]
    trainings.free(training)


def test_a_file_of_lines_is_what_its_text_is(trainings, model, tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(text(LINES))
    ends = []
    for given in (
        {"lines": text(LINES), "validation_lines": text(CHAT)},
        {"lines_file": path, "validation_lines": text(CHAT)},
    ):
        training = trainings.create_for_model(model, **OPTIONS)
        events = trainings.fit(training, **given, epochs=1)
        ends.append([(event.step, event.loss) for event in events if event.kind == TRAINING_STEP])
        one = trainings.evaluate(training, lines=text(CHAT))
        assert one.validation_loss == events[-1].validation_loss
        trainings.free(training)
    assert ends[0] == ends[1] and len(ends[0]) == 3


def test_an_evaluation_on_a_file(trainings, model, tmp_path):
    path = tmp_path / "validation.jsonl"
    path.write_bytes(text(CHAT))
    training = trainings.create_for_model(model, **OPTIONS)
    given = {"lines": text(LINES), "steps": 1}
    by_file = trainings.fit(training, **given, validation_file=path)[-1]
    assert by_file.validation_loss == trainings.evaluate(training, lines=text(CHAT)).validation_loss
    trainings.free(training)


def refused(call, *arguments, **more):
    with pytest.raises(StatusError) as error:
        call(*arguments, **more)
    return error.value


CREATED = {
    "train": ({"train": ["x"]}, EINVAL, "train"),
    "initial": ({"initial": {"w": data()[0]}}, EINVAL, "initial_names"),
    "fine_tune": ({"fine_tune": {"ranks": 4}}, EINVAL, "fine_tune.ranks"),
    "a seed twice": ({"fine_tune": {"seed": 4}}, EINVAL, "fine_tune.seed"),
    "a list": ({"fine_tune": [4]}, EINVAL, "fine_tune"),
    "no learning rate": ({"optimizer": {"name": "adam"}}, EINVAL, "optimizer.learning_rate is"),
    "an adapter's option": ({"fine_tune": {"type": "full", "rank": 4}}, EINVAL, "fine_tune.rank"),
    "a huge seed": ({"seed": 2**63}, EINVAL, "seed"),
    "no such keys": ({"fine_tune": {"keys": ["nothing"]}}, None, "nothing"),
}


@pytest.mark.parametrize("case", CREATED)
def test_a_training_that_cannot_be_is_refused(trainings, model, case):
    params, status, said = CREATED[case]
    error = refused(trainings.create_for_model, model, **params)
    assert said in error.message
    assert status is None or error.status == status


FITS = {
    "nothing": ({"steps": 1}, EINVAL, "lines and lines_file"),
    "no lines": ({"lines": b"", "steps": 1}, EINVAL, "empty"),
    "both": ({"lines": b"x", "lines_file": "/tmp/x", "steps": 1}, EINVAL, "exclude"),
    "arrays and lines": ({"inputs": data(), "lines": b"x", "steps": 1}, EINVAL, "arrays"),
    "no file": ({"lines_file": "/nowhere/x.jsonl", "steps": 1}, ENOENT, "/nowhere"),
    "a malformed line": (
        {"lines": text(LINES[:2]) + b'\n{"text": 3}\n{"text"', "steps": 1},
        EFORMAT,
        "line 3",
    ),
    "no utf-8": ({"lines": b'{"text": "\xff"}', "steps": 1}, EINVAL, "UTF-8"),
    "an option": (
        {"lines": text(LINES), "steps": 1, "lines_options": {"window": 3}},
        EINVAL,
        "window",
    ),
    "an option of params": (
        {"lines": text(LINES), "steps": 1, "lines_options": {"batch_size": 3}},
        EINVAL,
        "batch_size",
    ),
    "a window beyond the model's": (
        {"lines": text(LINES), "steps": 1, "lines_options": {"max_seq_length": 1 << 20}},
        EINVAL,
        "context length",
    ),
    "long rows": (
        {
            "lines": text(LINES),
            "steps": 1,
            "lines_options": {"max_seq_length": 8, "long_rows": "refuse"},
        },
        EFORMAT,
        "max_seq_length 8",
    ),
}


@pytest.mark.parametrize("case", FITS)
def test_a_fit_that_cannot_be_is_refused(trainings, model, case):
    params, status, said = FITS[case]
    training = trainings.create_for_model(model, **OPTIONS)
    before = trainings.parameters(training)
    error = refused(trainings.fit, training, **params)
    assert error.status == status and said in error.message
    assert trainings.parameters(training) == before
    assert trainings.info(training)["running"] is False
    trainings.free(training)


def test_what_is_of_programs_and_what_is_of_models(trainings, model, tmp_path):
    language = trainings.create_for_model(model, **OPTIONS)
    program = trainings.create(network())
    assert refused(trainings.step, language, data()).status == EINVAL
    assert (
        refused(trainings.fit, language, None, lambda step: data(), lines=b"x", steps=1).status
        == EINVAL
    )
    assert refused(trainings.fit, program, lines=text(LINES), steps=1).status == EINVAL
    assert refused(trainings.evaluate, program, lines=text(LINES)).status == EINVAL
    assert refused(trainings.adapter, program).status == EUNSUPPORTED
    assert refused(trainings.export, program, tmp_path / "x").status == EUNSUPPORTED
    assert refused(trainings.export, language, tmp_path / "x", dequantize=True).status == EINVAL
    assert refused(trainings.export, language, tmp_path / "no" / "x").status == ENOENT
    assert refused(trainings.create, network(), fine_tune={}).status == EINVAL
    assert not (tmp_path / "x").exists()
    for training in (language, program):
        trainings.free(training)


def test_a_line_without_end_is_refused_at_once(trainings, model, tmp_path):
    """Its end is not looked for: to read 2 TB would take an hour."""
    path = tmp_path / "sparse.jsonl"
    with open(path, "wb") as file:
        file.truncate(1 << 41)
    training = trainings.create_for_model(model, **OPTIONS)
    error = refused(trainings.fit, training, lines_file=path, steps=1)
    assert (error.status, error.details["line"]) == (EFORMAT, 1)
    trainings.free(training)


@pytest.mark.parametrize("dequantize", [False, True])
@pytest.mark.parametrize("keys", [None, ["self_attn.q_proj"]])
def test_a_model_quantized_as_it_was_loaded_is_exported(
    trainings, lib, folder, tmp_path, dequantize, keys
):
    model = lib.load(folder, quantize_bits=4, quantize_group=32)
    training = trainings.create_for_model(model, fine_tune={"rank": 4, "keys": keys})
    trainings.fit(training, lines=text(LINES), steps=3)
    trainings.export(training, tmp_path / "out", fuse=True, dequantize=dequantize)
    adapter = trainings.adapter(training)
    context = lib.context(model)
    lib.set_adapter(context, adapter)
    expected = mx.array(logits(lib, context))
    exported = lib.load(tmp_path / "out")
    other = lib.context(exported)
    found = mx.array(logits(lib, other))
    if dequantize:
        assert mx.abs(found - expected).max().item() < 0.05
    else:  # which rounds again
        for name in ("quantization", "bytes"):
            assert lib.info(exported)[name] == lib.info(model)[name]
    for each in (context, other):
        lib.free(each)
    lib.free_adapter(adapter)
    trainings.free(training)
    for each in (model, exported):
        lib.free_model(each)


def test_a_model_that_sees_is_exported_with_its_tower(trainings, lib, tmp_path):
    model = lib.load(EYES)
    training = trainings.create_for_model(model, fine_tune={"rank": 4})
    trainings.fit(training, lines=text(CHAT), steps=3)
    trainings.export(training, tmp_path / "out", fuse=True)
    exported, adapter = lib.load(tmp_path / "out"), trainings.adapter(training)
    found = []
    for each, own in ((model, 0), (model, adapter), (exported, 0)):
        context = lib.context(each)
        if own:
            lib.set_adapter(context, own)
        lib.begin(context, said(lib, each, (60, 60, 1), "What is this?"), max_tokens=0)
        found.append(mx.array(lib.logits(context)))
        lib.free(context)
    before, adapted, merged = found
    assert mx.abs(merged - adapted).max().item() < 1e-2 < mx.abs(merged - before).max().item()
    lib.free_adapter(adapter)
    trainings.free(training)
    for each in (model, exported):
        lib.free_model(each)


def test_a_run_of_another_model_is_refused(trainings, lib, model, tmp_path):
    other = lib.load(tiny_models.make(tmp_path / "other", "qwen3"))
    first = trainings.create_for_model(model, **OPTIONS)
    trainings.save(first, tmp_path / "run")
    second = trainings.create_for_model(other, **OPTIONS)
    error = refused(trainings.load, second, tmp_path / "run")
    assert (error.status, error.reason) == (EFORMAT, "saved_training_mismatch")
    for training in (first, second):
        trainings.free(training)
    lib.free_model(other)


def test_a_model_may_be_freed_while_it_is_trained(trainings, lib, folder):
    model = lib.load(folder)
    training = trainings.create_for_model(model, **OPTIONS)
    lib.free_model(model)
    events = trainings.fit(training, lines=text(LINES), steps=2)
    assert events[-1].step == 2
    trainings.free(training)


def test_a_cancel_keeps_the_state(trainings, model):
    training = trainings.create_for_model(model, **OPTIONS)

    def told(event):
        if event.step == 2:
            assert trainings.cancel(training) == 0

    error = refused(trainings.fit, training, told, lines=text(LINES), steps=99, batch_size=2)
    assert error.status == ECANCELED
    assert trainings.info(training)["step"] == 2
    trainings.free(training)


def test_a_context_generates_beside_a_fit_as_without(trainings, lib, model):
    """Each token of a host's is there before the next steps of a long fit are made."""
    context = lib.context(model)
    expected = lib.generate(context, [5, 9, 40, 41], max_tokens=20).text
    training = trainings.create_for_model(model, **OPTIONS)
    seen = []

    def told(event):
        if event.step == 1 and event.kind == TRAINING_STEP:
            lib.reset(context)
            seen.append(lib.generate(context, [5, 9, 40, 41], max_tokens=20).text)
            seen.append(trainings.info(training)["step"])

    trainings.fit(training, told, lines=text(LINES), steps=3)
    assert seen[0] == expected
    assert seen[1] <= 2
    lib.free(context)
    trainings.free(training)

"""What keeps a model from being split: said by name, before anything is loaded or left behind."""

from __future__ import annotations

import os
import shutil
import socket
import struct

import mlx.core as mx
import pytest
from support import in_process, tiny_models
from support.library import StatusError
from support.signatures import (
    ECANCELED,
    EFORMAT,
    EINVAL,
    ELOST,
    ENOENT,
    ENOMEM,
    ESTATE,
    EUNSUPPORTED,
    SPLIT_PIPELINE,
    SPLIT_TENSOR,
)
from support.strangers import Stranger, says, sizes, wait_for_end
from support.strangers import worker as other_worker
from support.workers import SECRET, local_ranks, on

from cowmlx.errors import Canceled, NotFound
from cowmlx.generated.defaults import MODEL
from cowmlx.machines import child, wire
from cowmlx.machines.opening import Workers
from cowmlx.models import split_models

NOWHERE = "127.0.0.1:9"
UINT32_MAX = 2**32 - 1


@pytest.fixture
def fails(lib, place, secret):
    """Loads with these params; the status, the reason and the message of what it fails with."""

    def fails(name="tensor", **params):
        with pytest.raises(StatusError) as caught:
            lib.load(place / "models" / name, **{"secret_path": secret, **params})
        assert local_ranks() == []
        return caught.value.status, caught.value.reason, caught.value.message

    return fails


@pytest.fixture
def stranger():
    """Listens where a worker should; its address."""
    open_ones = []

    def stranger(serve):
        open_ones.append(Stranger(serve))
        return open_ones[-1].address

    yield stranger
    for open_one in open_ones:
        open_one.close()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"workers": ["no port"]}, "workers[0] is"),
        ({"workers": ["[::1]:7707"]}, "IPv4"),
        ({"workers": [f"127.0.0.1:{port}" for port in range(1, 65)]}, "worker_count is 64"),
        ({"workers": [NOWHERE], "secret_path": None}, "secret_path is NULL"),
        ({"workers": [NOWHERE], "split": 3}, "split is 3"),
        ({"workers": [NOWHERE], "connect_timeout_ms": 0}, "connect_timeout_ms is 0"),
        ({"workers": [NOWHERE], "silence_timeout_ms": 99}, "silence_timeout_ms is 99"),
        ({"workers": [NOWHERE], "lazy": True}, "lazy is given"),
        ({"workers": [NOWHERE], "trust_remote_code": True}, "trust_remote_code is given"),
        ({"workers": [NOWHERE], "adapter_path": "a"}, "adapter_path is given"),
        ({"secret_path": "a"}, "secret_path is given"),
        ({"secret_path": None, "split": SPLIT_TENSOR}, "split is given"),
    ],
)
def test_options_that_cannot_be(fails, params, words):
    status, _, message = fails(**params)
    assert status == EINVAL
    assert words in message


def test_a_secret_that_cannot_be_read_or_is_too_short(fails, tmp_path):
    (tmp_path / "short").write_text("short")
    assert fails(workers=[NOWHERE], secret_path=tmp_path / "none")[0] == ENOENT
    status, _, message = fails(workers=[NOWHERE], secret_path=tmp_path / "short")
    assert status == EINVAL
    assert "has 5 bytes" in message


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_secret_that_is_no_file(fails, tmp_path, make):
    make(tmp_path / "secret")
    status, _, message = fails(workers=[NOWHERE], secret_path=tmp_path / "secret")
    assert status == EINVAL
    assert "must be a regular file" in message


@pytest.mark.parametrize(
    ("family", "config", "params", "words"),
    [
        ("gemma", {}, {}, "neither a tensor split nor a pipeline"),
        ("llama", {}, {"split": SPLIT_PIPELINE}, "as a tensor alone"),
        ("llama", {"num_key_value_heads": 1}, {}, "num_key_value_heads is 1"),
        ("qwen2", {"num_hidden_layers": 1}, {"split": SPLIT_PIPELINE}, "it has 1 layers"),
        ("llama", {"intermediate_size": 95}, {}, "cannot be split"),
    ],
)
def test_models_that_cannot_be_split(lib, tmp_path, secret, family, config, params, words):
    folder = tiny_models.make(tmp_path / "model", family, config=config)
    with pytest.raises(StatusError, match=words) as caught:
        lib.load(folder, workers=[NOWHERE], secret_path=secret, **params)
    assert caught.value.status in (EUNSUPPORTED, EINVAL)


def test_nobody_listens(fails):
    status, reason, message = fails(workers=[NOWHERE], connect_timeout_ms=300)
    assert (status, reason) == (ELOST, "unreachable")
    assert f"worker {NOWHERE}: no worker was there within 0.3 seconds" in message


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", f"{'a' * 64}.invalid"])
def test_a_name_that_nobody_has(fails, name):
    status, reason, message = fails(workers=[f"{name}:7"], connect_timeout_ms=2000)
    assert (status, reason) == (ELOST, "unreachable")
    assert f"{name}:7" in message


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        sizes(1 << 31, 0),
        sizes(2, 1 << 31) + b"{}",
        sizes(2, 0) + b"[]",
        sizes(14, 0) + b'{"cowmlx": 99}',
        sizes(4, 0) + b"\xff\xfe{}",
    ],
)
def test_strangers(fails, stranger, data):
    status, reason, message = fails(workers=[stranger(says(data))], connect_timeout_ms=5000)
    assert (status, reason) == (ELOST, "unreachable")
    assert "it is no worker" in message


def test_one_that_says_nothing(fails, stranger):
    status, reason, _ = fails(workers=[stranger(wait_for_end)], connect_timeout_ms=400)
    assert (status, reason) == (ELOST, "unreachable")


def test_one_with_another_secret(fails, stranger, worker, tmp_path):
    (tmp_path / "secret").write_text("another secret of these machines")
    status, reason, message = fails(workers=[worker.address], secret_path=tmp_path / "secret")
    assert (status, reason) == (EINVAL, "wrong_secret")
    assert worker.address in message
    assert SECRET not in "".join(worker.says("its secret is another one"))
    liar = stranger(other_worker(b"what the host does not know", wait_for_end))
    assert fails(workers=[liar])[:2] == (EINVAL, "wrong_secret")
    odd = stranger(other_worker(SECRET.encode(), wait_for_end, proof="\ud800"))
    assert fails(workers=[odd])[:2] == (EINVAL, "wrong_secret")


def test_one_with_other_versions(fails, stranger):
    older = {"libcowmlx": "0.9.0", "mlx": "\ud800\x1b\0"}
    address = stranger(other_worker(SECRET.encode(), wait_for_end, versions=older))
    status, reason, message = fails(workers=[address])
    assert (status, reason) == (EUNSUPPORTED, "version_mismatch")
    assert "libcowmlx 0.9.0, not" in message


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 64,
        sizes(2, 1 << 30) + b"{}",
        sizes(1 << 30, 0),
        wire.encoded({"what no rank says": 1}),
    ],
)
def test_a_worker_that_answers_with_garbage(fails, stranger, data):
    def garbage(sock):
        sock.sendall(data)
        wait_for_end(sock)

    address = stranger(other_worker(SECRET.encode(), garbage))
    status, reason, message = fails(workers=[address])
    assert (status, reason) == (ELOST, "machine_lost")
    assert "it sent garbage" in message


@pytest.mark.parametrize("told", [None, {"kind": [], "reason": []}, {"reason": {}, "message": 5}])
def test_a_refusal_that_nobody_understands(fails, stranger, told):
    address = stranger(says(wire.encoded({"refused": told})))
    assert fails(workers=[address])[:2] == (ELOST, "machine_lost")


@pytest.mark.parametrize("closes", [False, True])
def test_a_worker_that_cannot_start_a_rank(fails, stranger, closes):
    def refuse(sock):
        wire.tune(sock)
        wire.write(sock, {"refused": {"kind": "OutOfMemory", "message": "no process is left"}})
        if closes:  # so that the host's next message fails at once
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            wait_for_end(sock)

    address = stranger(other_worker(SECRET.encode(), refuse))
    status, _, message = fails(workers=[address])
    assert status == ENOMEM, message
    assert f"rank 1 ({address}): no process is left" in message


def test_a_model_that_the_worker_lacks(fails, start_worker, tmp_path, place):
    (tmp_path / "models/other").mkdir(parents=True)
    (tmp_path / "models/tensor").symlink_to(place / "models/pipeline")
    worker = start_worker(models=tmp_path / "models")
    status, _, message = fails("pipeline", workers=[worker.address])
    assert status == ENOENT
    assert "no model named 'pipeline'" in message
    status, reason, message = fails("tensor", workers=[worker.address])
    assert (status, reason) == (EFORMAT, "weights_mismatch")
    assert "another model than the host's" in message


def test_a_model_without_a_head_has_no_tasks(lib, start_worker, tmp_path, place, secret):
    folder = tmp_path / "models/headless"
    shutil.copytree(place / "models/tensor", folder)
    stored = dict(mx.load(str(folder / "model.safetensors")))
    kept = {name: array for name, array in stored.items() if not name.startswith("lm_head.")}
    mx.save_safetensors(str(folder / "model.safetensors"), kept, {"format": "mlx"})
    tiny_models.change_config(folder, {"architectures": ["LlamaModel"]})
    model = lib.load(folder, **on([start_worker(models=tmp_path / "models")], secret))
    assert lib.info(model)["tasks"] == []
    with pytest.raises(StatusError, match="nothing; on several machines it has no tasks") as caught:
        lib.context(model)
    lib.free_model(model)
    assert caught.value.status == EUNSUPPORTED


def test_a_worker_that_is_busy(lib, fails, start_worker, place, secret):
    worker = start_worker()
    model = lib.load(place / "models/tensor", **on([worker], secret))
    with pytest.raises(StatusError) as caught:
        lib.load(place / "models/pipeline", **on([worker], secret))
    lib.free_model(model)
    assert caught.value.status == ESTATE
    assert caught.value.reason == "machine_busy"
    lib.free_model(lib.load(place / "models/pipeline", **on([worker], secret)))


def test_ranks_start_for_longer_than_workers_take_to_connect(place):
    workers = Workers([], "", connect_seconds=0.0, silence_seconds=5.0)
    steps = split_models.load_on_machines(str(place / "models/pipeline"), workers)
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            loaded = stop.value
            break
        if callable(step):
            step(0.01)
    (rank,) = loaded.model.network.group.peers
    assert rank.state == "ready"
    loaded.model.network.group.close()


@pytest.mark.parametrize("stage", ["connect", "shard"])
def test_a_load_is_cancelled(lib, place, secret, worker, stage):
    with pytest.raises(StatusError) as caught:
        lib.load(
            place / "models/tensor",
            progress=lambda fraction, now: now != stage,
            **on([worker], secret),
        )
    assert caught.value.status == ECANCELED
    assert local_ranks() == []


def test_a_load_is_cancelled_while_a_worker_is_awaited(lib, place, secret, worker):
    told = []

    def progress(fraction, stage):
        told.append(stage)
        return told.count("connect") < 3

    with pytest.raises(StatusError) as caught:
        lib.load(
            place / "models/pipeline",
            progress=progress,
            workers=[worker.address, NOWHERE],
            secret_path=secret,
        )
    assert caught.value.status == ECANCELED
    assert told.count("connect") == 3


def test_a_worker_that_comes_late(lib, place, secret, start_worker):
    early = start_worker()
    port = early.address.rpartition(":")[2]
    early.end()
    begun = []

    def progress(fraction, stage):
        if stage == "connect" and not begun:
            begun.append(start_worker(listen=f"127.0.0.1:{port}"))
        return True

    model = lib.load(
        place / "models/tensor",
        progress=progress,
        workers=[early.address],
        secret_path=secret,
        silence_timeout_ms=UINT32_MAX,
    )
    lib.free_model(model)


def test_an_environment_without_a_program_that_runs_ranks(tmp_path):
    with pytest.raises(NotFound, match="as a bundle has none") as caught:
        child.python(str(tmp_path))
    assert caught.value.reason == "python_not_found"


def test_the_runtime_stops_while_ranks_load(place, secret, worker):
    stages = []
    call = in_process.Call()
    call.post_progress = lambda fraction, stage: stages.append(stage)
    with in_process.started() as engine:
        params = {"workers": [worker.address], "secret_path": str(secret)}
        engine.model_load(call, str(place / "models/tensor"), {**MODEL, **params})
        while "shard" not in stages:
            engine.step()
        assert local_ranks()
    assert isinstance(call.error, Canceled)
    assert local_ranks() == []


def test_the_runtime_stops_while_a_worker_is_awaited(place, secret):
    call = in_process.Call()
    with in_process.started() as engine:
        params = {"workers": [NOWHERE], "secret_path": str(secret)}
        engine.model_load(call, str(place / "models/tensor"), {**MODEL, **params})
        for _ in range(20):
            engine.step()
        assert call.error is None
    assert isinstance(call.error, Canceled)

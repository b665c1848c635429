"""Loading without waiting: a handle at once, the model when a poll says so."""

from __future__ import annotations

import threading

import pytest
from driver import KV, greedy, prompt
from support.async_calls import FOREVER, begin, held, load, model_fd, poll
from support.callbacks import Callbacks, StatusError
from support.signatures import (
    ECANCELED,
    EFORMAT,
    EHANDLE,
    EINVAL,
    ENOENT,
    ESTATE,
    ETIMEDOUT,
    OK,
)
from support.wake import readable

from cowmlx.services.loading import Loading

BIG = "llama-big"


def loaded(lib, model):
    """Wait for a model."""
    lib.check(lib.c.cow_mlx_model_poll(model, FOREVER))
    return model


def failure(lib, model):
    with pytest.raises(StatusError) as error:
        loaded(lib, model)
    return error.value


def test_the_model_is_that_of_load(lib, folder, oracle):
    model = loaded(lib, load(lib, folder(KV)))
    with_context = lib.context(model)
    assert greedy(lib, with_context, prompt(9)) == oracle(KV).after(prompt(9))
    lib.free(with_context)
    assert lib.c.cow_mlx_model_poll(model, 0) == OK
    lib.free_model(model)
    assert lib.c.cow_mlx_model_poll(model, 0) == EHANDLE


def test_nothing_waits_for_the_dispatch_thread(lib, folder):
    """And until it is loaded, a model is of no use."""
    with held(lib):
        model = load(lib, folder(KV))
        assert lib.c.cow_mlx_model_poll(model, 0) == ETIMEDOUT
        assert lib.c.cow_mlx_model_poll(model, 1) == ETIMEDOUT
        fd = model_fd(lib, model)
        assert not readable(fd)
    assert readable(fd, 60)
    with held(lib):
        assert lib.c.cow_mlx_model_poll(model, 0) == OK
    assert model_fd(lib, model) == fd
    lib.free_model(model)
    with pytest.raises(OSError, match="Bad file descriptor"):
        readable(fd)


def test_a_model_to_come_is_of_no_use(lib, folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Loading, "_may_step", lambda self: False)
        model = load(lib, folder(KV))
        for ask in (lib.context, lib.info, lambda model: lib.tokenize(model, "text")):
            with pytest.raises(StatusError) as refused:
                ask(model)
            assert (refused.value.status, refused.value.reason) == (ESTATE, "model_loading")
            assert "model_poll" in refused.value.message
        assert lib.c.cow_mlx_model_poll(model, 0) == ETIMEDOUT
        assert lib.info()["handles"]["model"] > 0
    lib.free_model(lib.load(folder(KV)))  # so that there is work, and the scheduler looks at it
    loaded(lib, model)
    lib.free(lib.context(model))
    lib.free_model(model)


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("/nowhere/at/all", {}, ENOENT),
        ("empty", {}, ENOENT),
        ("broken", {}, EFORMAT),
        (KV, {"activations": 7}, EINVAL),
        (b"\xff\xfe", {}, EINVAL),
    ],
)
def test_a_failure_is_told_by_every_poll(lib, folder, tmp_path, path, params, status):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    places = {"empty": tmp_path / "empty", "broken": tmp_path / "broken", KV: folder(KV)}
    handles = lib.info()["handles"]
    model = load(lib, places.get(path, path), **params)
    for _ in range(2):
        error = failure(lib, model)
        assert error.status == status
        assert error.message.startswith("model_load_async: ")
    assert readable(model_fd(lib, model))
    with pytest.raises(StatusError) as unknown:
        lib.context(model)
    assert unknown.value.status == EHANDLE
    lib.free_model(model)
    assert lib.info()["handles"] == handles
    with pytest.raises(StatusError) as freed:
        lib.free_model(model)
    assert freed.value.status == EHANDLE


def test_progress_is_told_by_polls(lib, folder):
    told = []

    def progress(fraction, stage):
        told.append((threading.get_ident(), fraction, stage))

    callbacks = Callbacks()
    model = load(lib, folder(BIG), callbacks, progress=progress)
    fd = model_fd(lib, model)
    while not told:
        assert readable(fd, 60), "there is progress to tell"
        lib.c.cow_mlx_model_poll(model, 0)
    loaded(lib, model)
    assert {thread for thread, *_ in told} == {threading.get_ident()}
    fractions = [fraction for _, fraction, _ in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert all(stage for *_, stage in told)
    lib.free_model(model)


def test_false_cancels_and_nothing_stays(lib, folder):
    lib.trim_memory()
    before = lib.info()
    callbacks = Callbacks()
    with held(lib):  # so that the first poll finds the load not yet done
        model = load(lib, folder(BIG), callbacks, progress=lambda fraction, stage: False)
    status = lib.c.cow_mlx_model_poll(model, FOREVER)
    if status == OK:  # only its end was reported
        lib.free_model(model)
        return
    assert status == ECANCELED
    assert failure(lib, model).reason == "callback_refused"
    lib.free_model(model)
    lib.trim_memory()
    after = lib.info()
    assert after["handles"] == before["handles"]
    assert after["memory"]["active"] <= before["memory"]["active"] + 4096


def test_a_free_cancels(lib, folder):
    lib.trim_memory()
    before = lib.info()
    statuses = []
    with held(lib):
        model = load(lib, folder(BIG))
        waits = threading.Thread(
            target=lambda: statuses.append(lib.c.cow_mlx_model_poll(model, FOREVER))
        )
        frees = threading.Thread(target=lambda: lib.free_model(model))
        frees.start()
        waits.start()
    frees.join()
    waits.join()
    assert statuses[0] in (ECANCELED, EHANDLE, OK)
    assert lib.c.cow_mlx_model_poll(model, 0) == EHANDLE
    lib.trim_memory()
    assert lib.info()["handles"] == before["handles"]


def test_a_free_while_the_load_fails(lib, folder):
    handles, statuses = lib.info()["handles"], []

    def free(model):
        statuses.append(lib.c.cow_mlx_model_free(model))

    for _ in range(20):
        with held(lib):
            model = load(lib, folder(KV), activations=7)
            frees = threading.Thread(target=free, args=(model,))
            frees.start()
        frees.join()
    assert set(statuses) == {OK}
    assert lib.info()["handles"] == handles


def test_several_at_once_while_a_context_generates(lib, tiny, folder, open_context, oracle):
    context = open_context(tiny(KV))
    begin(lib, context, prompt(9), max_tokens=40)
    models = [load(lib, folder(kind)) for kind in (KV, BIG, "mamba2", KV)]
    given = []
    while poll(lib, context) == OK and (piece := lib.next(context)).status == OK:
        given.append(piece.token)
    assert given == oracle(KV).after(prompt(9), 40)
    for model in models:
        loaded(lib, model)
        lib.free_model(model)


def test_a_model_that_was_waited_for(lib, tiny):
    assert lib.c.cow_mlx_model_poll(tiny(KV), 0) == OK
    assert readable(model_fd(lib, tiny(KV)))
    context = lib.context(tiny(KV))
    assert lib.c.cow_mlx_model_poll(context, 0) == EHANDLE
    lib.free(context)

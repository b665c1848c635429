"""What goes wrong while ranks meet and load: strangers, ports in use, files that break off."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from time import monotonic

import pytest
from driver import greedy, prompt
from support.lag import SLACK, Lag
from support.library import StatusError
from support.meddlers import Meddler
from support.signatures import EFORMAT, EIO, ELOST
from support.workers import local_ranks, on

from cowmlx.machines import wire

SILENCE_MS = 1000
RING_SECONDS = 4  # that mlx has to find its neighbours, whatever the silence is


@pytest.fixture
def meddle():
    """Meddlers with a worker, which are closed afterwards."""
    made = []

    def meddle(worker, **hooks):
        made.append(Meddler(worker.address, **hooks))
        return made[-1]

    yield meddle
    for each in made:
        each.close()


@pytest.fixture
def strange():
    """Connects with an address, as nobody; closed afterwards."""
    socks = []

    def strange(place, says=b""):
        host, _, port = place.rpartition(":")
        while True:
            sock = socket.socket()
            socks.append(sock)
            with contextlib.suppress(ConnectionRefusedError):  # nobody listens there yet
                sock.connect((host, int(port)))
                sock.sendall(says)
                return

    yield strange
    for sock in socks:
        sock.close()


@pytest.fixture
def fails(lib, place, secret):
    """Loads by way of a meddler; what it fails with, in time. Nothing is left of it."""

    def fails(meddler, seconds):
        began = monotonic()
        params = on([meddler], secret, silence_timeout_ms=SILENCE_MS)
        with pytest.raises(StatusError) as caught, Lag() as lag:
            lib.load(place / "models/pipeline", **params)
        assert monotonic() - began < seconds + SLACK + lag.seconds
        assert local_ranks() == []
        return caught.value

    return fails


def test_a_worker_that_does_not_know_yet_that_a_host_is_gone(
    lib, meddle, start_worker, place, secret
):
    """As after a link was down: the host's end is closed, and the worker has not heard of it."""
    worker = start_worker()
    meddler = meddle(worker, keeps=True)
    lib.free_model(lib.load(place / "models/pipeline", **on([meddler], secret)))
    lib.free_model(lib.load(place / "models/pipeline", **on([worker], secret)))
    worker.says("its host has let it go")


def test_a_stranger_that_joins_the_ring_first(lib, meddle, worker, strange, fails, place, secret):
    def join(head):
        if head.get("op") == "ring":
            strange(head["addresses"][0])

    failure = fails(meddle(worker, of_host=join), RING_SECONDS)
    assert (failure.status, failure.reason) == (ELOST, "machine_lost")
    assert "has not joined the ring in time" in failure.message
    lib.free_model(lib.load(place / "models/pipeline", **on([worker], secret)))


def test_strangers_at_the_neighbours_door_change_nothing(
    lib, meddle, worker, strange, place, secret, open_context
):
    def knock(head):
        if "watch" in head:
            odd = wire.encoded({"proof": "\ud800"})
            for says in (b"", b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n", odd):
                strange(head["watch"], says)

    meddler = meddle(worker, of_worker=knock)
    model = lib.load(place / "models/pipeline", **on([meddler], secret))
    assert len(greedy(lib, open_context(model), prompt(20), 4)) == 4
    lib.free_model(model)


def test_nobody_takes_a_port_of_the_ring_before_it_is_used(lib, meddle, worker, place, secret):
    taken = []

    def take(head):
        if "ring" in head:
            host, _, port = head["ring"].rpartition(":")
            with socket.socket() as sock, pytest.raises(OSError, match="in use"):
                sock.bind((host, int(port)))
            taken.append(port)

    model = lib.load(place / "models/pipeline", **on([meddle(worker, of_worker=take)], secret))
    lib.free_model(model)
    assert taken


@pytest.mark.long
def test_a_port_of_the_ring_that_is_in_use(meddle, worker, fails):
    with socket.create_server(("127.0.0.1", 0)) as used:
        place = f"127.0.0.1:{used.getsockname()[1]}"

        def change(head):
            if head.get("op") == "ring":
                head["addresses"][1] = place

        failure = fails(meddle(worker, of_host=change), RING_SECONDS)
    assert (failure.status, failure.reason) == (ELOST, "machine_lost")


def test_a_copy_of_the_weights_that_has_broken_off(meddle, start_worker, place, tmp_path, fails):
    models = shutil.copytree(place / "models", tmp_path / "models")
    (file,) = (models / "pipeline").glob("*.safetensors")
    with file.open("r+b") as opened:  # as long as it was to be, and the end was never written
        opened.seek(-64, 2)
        opened.write(bytes(64))
    failure = fails(meddle(start_worker(models=models)), 1)
    assert (failure.status, failure.reason) == (EFORMAT, "weights_mismatch")


def test_a_pipe_in_the_place_of_the_weights(meddle, start_worker, place, tmp_path, fails):
    models = shutil.copytree(place / "models", tmp_path / "models")
    (file,) = (models / "pipeline").glob("*.safetensors")
    file.unlink()
    os.mkfifo(file)
    failure = fails(meddle(start_worker(models=models)), 1)
    assert failure.status == EFORMAT
    assert "is neither a file nor a directory" in failure.message


def test_weights_that_break_off_while_a_rank_loads_them(
    meddle, start_worker, place, tmp_path, fails
):
    models = shutil.copytree(place / "models", tmp_path / "models")
    (file,) = (models / "pipeline").glob("*.safetensors")

    def break_off(head):
        if "fraction" in head:
            with file.open("r+b") as opened:
                opened.truncate(20000)

    failure = fails(meddle(start_worker(models=models), of_worker=break_off), 1)
    assert failure.status in (EFORMAT, EIO)
    assert "rank 1" in failure.message

"""``python -m cowmlx worker`` and ``machines check``: what they say, and what they refuse."""

from __future__ import annotations

import errno
import io
import json
import os
import plistlib
import shlex
import socket
import subprocess
import sys
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import ClassVar

import pytest
from support import tiny_models
from support.paths import ROOT
from support.workers import SECRET, Worker

from cowmlx.__main__ import make_parser
from cowmlx.commands.worker import guest, server
from cowmlx.errors import Lost
from cowmlx.machines import measuring, wire

SERVICES = ROOT / "examples/worker"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, one of Hugging Face's cache, and the secret."""
    place = tmp_path_factory.mktemp("worker")
    (place / "secret").write_text(f"{SECRET}\n")
    tiny_models.make(place / "models/small", "qwen2", config={"num_hidden_layers": 4})
    entry = place / "models/models--org--cached/snapshots/one"
    entry.mkdir(parents=True)
    (entry / "config.json").write_text("{}")
    (place / "models/not-a-model").mkdir()
    return place


def run(*arguments, pass_fds=()):
    return subprocess.run(
        [sys.executable, "-m", "cowmlx", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        pass_fds=pass_fds,
    )


def worker(place, *options, listen="127.0.0.1:0"):
    places = ("--secret-file", place / "secret", "--models", place / "models")
    return run("worker", "--listen", listen, *places, *options)


def test_a_check_tells_where_it_would_listen_and_what_it_has(place):
    done = worker(place, "--check")
    assert done.returncode == 0, done.stderr
    assert "it can listen on 127.0.0.1:" in done.stdout
    assert "model small:" in done.stdout
    assert "model org/cached:" in done.stdout
    assert "2 models in" in done.stdout
    assert SECRET not in done.stdout


@pytest.mark.parametrize("address", ["0.0.0.0", "8.8.8.8:7707"])
def test_public_addresses_are_refused_unless_allowed(place, address):
    done = worker(place, "--check", listen=address)
    assert done.returncode == 2
    assert "--allow-public" in done.stderr
    if address == "0.0.0.0":
        allowed = worker(place, "--check", "--allow-public", listen="0.0.0.0:0")
        assert allowed.returncode == 0


def test_without_a_secret_nothing_listens(place, tmp_path):
    (tmp_path / "short").write_text("short")
    for secret in (tmp_path / "none", tmp_path / "short", tmp_path):
        models = ("--models", place / "models")
        done = run("worker", "--listen", "127.0.0.1:0", "--secret-file", secret, *models)
        assert done.returncode == 2
        assert str(secret) in done.stderr
        assert "secret_path" not in done.stderr


def test_a_secret_may_come_from_a_pipe(place):
    """As a shell's process substitution gives it."""
    end, writer = os.pipe()
    os.write(writer, SECRET.encode())
    os.close(writer)
    given = ("--secret-file", f"/dev/fd/{end}", "--models", place / "models", "--check")
    done = run("worker", "--listen", "127.0.0.1:0", *given, pass_fds=[end])
    os.close(end)
    assert f"the secret has {len(SECRET)} bytes" in done.stdout


def test_a_port_in_use_and_a_folder_that_is_not_there_are_named(place):
    one = Worker(place / "models", place / "secret")
    try:
        done = worker(place, "--check", listen=one.address)
        assert done.returncode == 2
        assert f"cannot listen on {one.address}: Address already in use" in done.stderr
    finally:
        one.end()
    gone = ("--secret-file", place / "secret", "--models", place / "gone")
    assert "no such folder" in run("worker", "--listen", "127.0.0.1:0", *gone).stderr


def test_a_name_that_cannot_be_one_is_named(place):
    done = worker(place, "--check", listen="a..b:0")
    assert done.returncode == 2
    assert "cannot find the address of a..b" in done.stderr
    done = run("machines", "check", "a..b:7", "--secret-file", place / "secret")
    assert done.returncode == 1
    assert "a..b:7: " in done.stdout


def no_options(sock):
    """Fail as macOS does for a connection that its other end has reset."""
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize("given", [None, ("127.0.0.1", 9)])
def test_a_stranger_that_has_gone_before_it_is_accepted(place, monkeypatch, given):
    with socket.create_server(("127.0.0.1", 0)) as real:
        its = socket.create_connection(real.getsockname())
        ours = real.accept()[0]
    listener = SimpleNamespace(accept=lambda: (ours, given))
    monkeypatch.setattr(wire, "tune", no_options)
    served = server.Server(listener, SECRET.encode(), place / "models", 1, [].append)
    with its:
        served._accept()
        assert its.recv(1) == b""
    assert served._guests == []


def test_a_process_without_descriptors_pauses(place, monkeypatch):
    """The connection stays, so that a wait ends at once."""

    def accept():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    pauses = []
    monkeypatch.setattr(server.time, "sleep", pauses.append)
    listener = SimpleNamespace(accept=accept)
    server.Server(listener, SECRET.encode(), place / "models", 1, [].append)._accept()
    assert pauses == [server.LOOK_SECONDS]


class Rank:
    """A process that the system does not let end."""

    returncode = None
    stdin = None

    def __init__(self, *given, **options):
        self.killed, self.ended = False, False

    def kill(self):
        self.killed = True

    def poll(self):
        return -9 if self.ended else None

    def wait(self, timeout=None):
        assert timeout is not None, "it may take forever"
        raise subprocess.TimeoutExpired("rank", timeout)


def test_a_rank_that_does_not_end_keeps_no_worker_waiting():
    rank = Rank()
    with socket.create_server(("127.0.0.1", 0)) as real:
        its = socket.create_connection(real.getsockname())
        ours = real.accept()[0]
    with its:
        one = guest.Guest(ours, "address", SECRET.encode(), dict, dict, [].append)
        one._rank = rank
        one.close()
    assert rank.killed
    guest.reap()
    assert rank in guest._killed
    rank.ended = True
    guest.reap()
    assert rank not in guest._killed


def test_a_rank_that_takes_no_config_is_killed(monkeypatch):
    class Broken(io.BytesIO):
        def write(self, data):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    rank = Rank()
    rank.stdin = Broken()
    monkeypatch.setattr(guest.subprocess, "Popen", lambda *_, **__: rank)
    ours, its = socket.socketpair()
    with ours, its, pytest.raises(BrokenPipeError):
        guest._spawn(ours, {})
    assert rank.killed
    rank.ended = True
    guest.reap()


def test_strangers_who_say_nothing_keep_nobody_out(place):
    one = Worker(place / "models", place / "secret")
    host, _, port = one.address.rpartition(":")
    strangers = [socket.create_connection((host, int(port))) for _ in range(40)]
    try:
        done = run("machines", "check", one.address, "--secret-file", place / "secret")
        assert done.returncode == 0, done.stderr
    finally:
        for sock in strangers:
            sock.close()
        one.end()


def test_machines_check_measures_all_ways(place):
    workers = [Worker(place / "models", place / "secret") for _ in range(2)]
    addresses = [each.address for each in workers]
    try:
        known = ("--secret-file", place / "secret")
        model = ("--model", place / "models/small")
        done = run("machines", "check", *addresses, *known, *model, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout)
        assert list(told["workers"]) == addresses
        for address, other in (addresses, addresses[::-1]):
            way = told["workers"][address]
            assert 0 < way["milliseconds"] < 1000
            assert way["megabytes_per_second"] > 1
            assert way["free_memory"] > 1 << 20
            assert way["reached"][other]["milliseconds"] > 0
        assert told["model"]["split"] == "pipeline"
        shown = run("machines", "check", addresses[0], "127.0.0.1:9", *known, "--timeout", "1")
        assert shown.returncode == 1
        assert f"{addresses[0]}: " in shown.stdout
        assert "MB/s from here" in shown.stdout
        assert "127.0.0.1:9: worker 127.0.0.1:9: no worker was there" in shown.stdout
    finally:
        for each in workers:
            each.end()


def test_a_worker_that_sends_no_message_is_a_problem():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\xff" * 64)
        ask = measuring._Asking("10.0.0.2:7", wire.Connection(ours), 60, inf)
        with pytest.raises(Lost, match=r"worker 10\.0\.0\.2:7: it sent a message of"):
            ask.answer({"echo": 0})


def test_a_slow_worker_is_measured_in_the_time_there_is(monkeypatch):
    """A worker that measures the link to another one serves nobody meanwhile."""
    now = [100.0]
    ours, its = socket.socketpair()

    class Slow:
        accepted: ClassVar[dict[str, object]] = {}
        waits_to_send = False
        found_at = send = flush = close = fileno = lambda *_: its.fileno()

        def __init__(self, *_):
            self.connection = self

        def receive(self, most):
            now[0] += 2.0
            return [({"echo": 0}, b"")]

    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    monkeypatch.setattr(measuring, "time", clock)
    monkeypatch.setattr(measuring, "Dialling", Slow)
    with ours, its:
        way = measuring.measure("10.0.0.2:7", "10.0.0.2", b"", measuring.REACH_SECONDS)
    assert way.milliseconds == 2000
    assert now[0] <= 100 + 2 * measuring.REACH_SECONDS


@pytest.mark.parametrize(
    ("said", "link"),
    [
        ({"milliseconds": 1, "megabytes": 2.5}, {"milliseconds": 1, "megabytes": 2.5}),
        ({"milliseconds": "x", "megabytes": 1}, {"problem": "it does not say"}),
        ({"milliseconds": True, "megabytes": 1}, {"problem": "it does not say"}),
        ({"milliseconds": float("nan"), "megabytes": 1}, {"problem": "it does not say"}),
        ({"milliseconds": 10**400, "megabytes": 1}, {"problem": "it does not say"}),
        ({"problem": "it is\ngone"}, {"problem": "it is gone"}),
        ([], {"problem": "it does not say"}),
    ],
    ids=["good", "text", "truth", "nan", "huge", "problem", "list"],
)
def test_numbers_of_workers_are_checked(said, link):
    assert measuring._link(said) == link


def test_texts_of_workers_are_harmless(place, monkeypatch, capsys):
    reached = {"127.0.0.1:2": {"problem": "\x1b[2J"}}
    way = measuring.Way({"memory": None, "processors": 1}, 1.0, 2.0, reached)
    monkeypatch.setattr(measuring, "measure", lambda *_: way)
    given = ["machines", "check", "127.0.0.1:1", "--secret-file", str(place / "secret")]
    arguments = make_parser().parse_args(given)
    assert arguments.run(arguments) == 0
    told = capsys.readouterr().out
    assert "an unknown amount of memory are free" in told
    assert told.endswith("  to 127.0.0.1:2: \\x1b[2J\n")


def test_the_services_run_the_command(place):
    plist = plistlib.loads((SERVICES / "org.cowmlx.worker.plist").read_bytes())
    unit = (SERVICES / "cowmlx-worker.service").read_text()
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    for given in (plist["ProgramArguments"], shlex.split(line.removeprefix("ExecStart="))):
        options = [
            {"--listen": "127.0.0.1:0", "--secret-file": place / "secret"}.get(
                before, place / "models" if before == "--models" else option
            )
            for before, option in pairwise(given)
        ]
        assert given[1:4] == ["-m", "cowmlx", "worker"]
        assert run(*options[2:], "--check").returncode == 0

"""Connections between machines, of which the other ends are the test's."""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from cowmlx.machines import child, dialling, wire
from cowmlx.machines.dialling import AGAIN_SECONDS, Dialling
from cowmlx.machines.group import Group
from cowmlx.machines.handshake import Place
from cowmlx.machines.wire import Connection
from cowmlx.ranks.voice import Voice
from cowmlx.ranks.watch import Watch

SECONDS = 10


def received(connection, most=0):
    """The next message of a connection."""
    until = time.monotonic() + SECONDS
    while not (messages := connection.receive(most, count=1)):
        select.select([connection.fileno()], [], [], until - time.monotonic())
        assert time.monotonic() < until
    return messages[0]


def test_a_ping_that_comes_with_the_proof_is_answered():
    """The left neighbour may have met its own sooner."""
    watch = Watch(1, 2, "key")
    place = watch.listen("127.0.0.1")
    host, _, port = place.rpartition(":")
    left = Connection(socket.create_connection((host, int(port))))
    with socket.create_server(("127.0.0.1", 0)) as right, closing(left):
        proof = {"proof": Watch(0, 2, "key")._proof(0)}
        left._out += wire.encoded(proof)
        left.send({"ping": 0})
        watch.meet([f"127.0.0.1:{right.getsockname()[1]}", place], SECONDS)
        ours, its = socket.socketpair()
        ended = threading.Event()
        voice = Voice(ours, 0)
        voice._miss = lambda rank: ended.set()  # which would end this process
        with ours, its:
            voice.watch(watch)
            assert received(left)[0] == {"pong": 0}
            left.close()
            assert ended.wait(SECONDS)
    for neighbour in watch._neighbours:
        neighbour.connection.close()


def test_the_largest_message_may_come_in_two_pieces():
    ours, its = socket.socketpair()
    head = {"x": "x" * (wire.MAX_HEAD - len('{"x":""}'))}
    data = wire.encoded(head, b"body")
    with its:
        connection = Connection(ours)
        its.settimeout(SECONDS)
        its.sendall(data[:-6])
        assert connection.receive(4) == []
        its.sendall(data[-6:])
        assert received(connection, 4) == (head, b"body")
        connection.close()


def test_a_group_that_is_closed_twice_has_ended_once():
    ours, its = socket.socketpair()
    ends = []
    group = Group(1.0, lambda: ends.append(group))
    peer = group.add("rank", Connection(ours))
    with its:
        group.fail(peer, "it is tried")
        group.close()
        group.close()
    assert ends == [group]


class Tries:
    """Stands for the sockets of tries to connect; ``code`` is what each ends with at once."""

    def __init__(self, monkeypatch, code):
        self.code, self.made = code, []
        self._readable, self._written = os.pipe()
        monkeypatch.setattr(dialling.socket, "socket", lambda *_: self)

    def setblocking(self, blocks):
        assert not blocks

    def connect_ex(self, where):
        self.made.append(where)
        return self.code

    def fileno(self):
        """A descriptor that nothing can be written to."""
        return self._readable

    def close(self):
        """Be tried again."""

    def end(self):
        for descriptor in (self._readable, self._written):
            os.close(descriptor)


@pytest.fixture
def tries(monkeypatch):
    made = []

    def tries(code):
        made.append(Tries(monkeypatch, code))
        return made[-1]

    yield tries
    for each in made:
        each.end()


def dialled():
    dialled = Dialling("name:7", b"secret", Place(1, 2), {})
    dialled.found_at("10.0.0.2", 7)
    return dialled


def test_a_connect_that_fails_at_once_is_tried_again_after_a_pause(tries):
    made, one = tries(errno.ENETUNREACH).made, dialled()
    for _ in range(5):
        one.step(100.0)
    assert len(made) == 1
    one.step(100.0 + AGAIN_SECONDS)
    assert len(made) == 2


def test_a_connect_that_nothing_answers_is_tried_again(tries):
    made, one = tries(errno.EINPROGRESS).made, dialled()
    for now in (100.0, 100.0 + 0.9 * dialling.TRY_SECONDS):
        one.step(now)
        assert len(made) == 1
    for seconds in (dialling.TRY_SECONDS, dialling.TRY_SECONDS + AGAIN_SECONDS):
        one.step(100.0 + seconds)
    assert len(made) == 2


def test_the_paths_of_a_rank_fit_its_config(tmp_path, monkeypatch):
    """A host in Python may have others than texts, and letters that JSON writes as many bytes."""
    many = [tmp_path / f"{number}{'é' * 100}" for number in range(200)]
    for path in many:
        path.mkdir()
    monkeypatch.setattr(sys, "path", [Path("/"), str(tmp_path), *map(str, many)])
    paths = child._paths()
    assert paths[:2] == [str(tmp_path), str(many[0])]
    assert len(json.dumps(paths)) <= child._MAX_PATHS

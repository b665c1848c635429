"""What stands between a host and a worker, passes on what they say, and does harm at a message."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from cowmlx.machines import wire

MOST = 1 << 26
Hook = Callable[[dict[str, Any]], None]


class Meddler:
    """Serves one connection after the other, until it is closed.

    Args:
        worker: whom to pass messages on to.
        of_host: is given each message of the host's before it is passed on, and may change it.
        of_worker: the same of the worker's, or of its rank's.
        keeps: connections with the worker, whatever the host does.
    """

    def __init__(
        self,
        worker: str,
        of_host: Hook | None = None,
        of_worker: Hook | None = None,
        keeps: bool = False,
    ):
        host, _, port = worker.rpartition(":")
        self._worker = host, int(port)
        self._hooks = of_host, of_worker
        self._keeps = keeps
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.trouble: list[BaseException] = []
        self._socks: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                host, _ = self._listener.accept()
            except OSError:
                return
            worker = socket.create_connection(self._worker)
            self._socks += [host, worker]
            for ends in ((host, worker, self._hooks[0]), (worker, host, self._hooks[1])):
                self._threads.append(threading.Thread(target=self._pass_on, args=ends))
                self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, hook: Hook | None) -> None:
        try:
            while True:
                head, body = wire.read(source, MOST)
                if hook is not None:
                    hook(head)
                wire.write(sink, head, body)
        except (wire.Gone, wire.Garbage, OSError):
            pass
        except BaseException as error:
            self.trouble.append(error)
        for sock in () if self._keeps else (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Pass nothing on any more; raise what a hook has raised."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for sock in self._socks:
            sock.close()
        if self.trouble:
            raise self.trouble[0]

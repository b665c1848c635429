"""A registry of npm on this machine: packages of a folder, and redirections to npm's own.

With it ``npm install cowmlx`` can be tried before anything is published.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote


def described(package: Path) -> dict[str, Any]:
    """Return a package's own metadata, and the checksum by which npm verifies it."""
    with tarfile.open(package) as archive:
        info = next(info for info in archive if info.name == "package/package.json")
        about = json.load(archive.extractfile(info))
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    return {**about, "dist": {"tarball": package.name, "integrity": f"sha512-{digest}"}}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers npm.

    Args:
        packages: their metadata, by their files.
        upstream: the address of the registry that has all others.
        arguments: those of the base class.
    """

    def __init__(
        self, packages: dict[Path, dict[str, Any]], upstream: str, *arguments: Any
    ) -> None:
        self._packages, self._upstream = packages, upstream
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer with a package, with its metadata, or with an address."""
        asked = unquote(self.path).split("?")[0].lstrip("/")
        for path, about in self._packages.items():
            if asked == about["name"]:
                return self._send(json.dumps(self._told(about)).encode(), "application/json")
            if asked == path.name:
                return self._send(path.read_bytes(), "application/gzip")
        if asked.startswith("cowmlx"):  # of another platform: not published
            return self.send_error(404)
        self.send_response(302)
        self.send_header("Location", f"{self._upstream.rstrip('/')}{self.path}")
        self.end_headers()

    def _told(self, about: dict[str, Any]) -> dict[str, Any]:
        place = f"http://{self.headers['Host']}/{about['dist']['tarball']}"
        about = {**about, "dist": {**about["dist"], "tarball": place}}
        version = about["version"]
        latest = {"dist-tags": {"latest": version}, "versions": {version: about}}
        return {"name": about["name"], **latest}

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the packages of a folder for as long as the context lasts; gives the address."""
    command = ["npm", "config", "get", "registry"]
    upstream = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    packages = {path: described(path) for path in folder.glob("*.tgz")}
    handler = partial(Handler, packages, upstream)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

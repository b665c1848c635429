"""The public headers in C."""

from __future__ import annotations

from tools.packaging.headers import headers

HEADERS = [path for path in headers().values() if path.suffix == ".h"]

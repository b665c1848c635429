"""The page about wirings has every type of block and its parameters."""

from __future__ import annotations

import subprocess
import sys

from support.paths import ROOT


def test_block_types_are_up_to_date():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools/docs')!r})\n"
        "import block_types\n"
        "page = block_types.PAGE.read_text()\n"
        "sys.exit(block_types.updated(page) != page)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT)
    assert done.returncode == 0, "run python tools/docs/block_types.py"

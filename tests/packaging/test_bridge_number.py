"""The number that a library and a bridge compare: it is another one for other structs."""

from __future__ import annotations

import re
import shutil

from additions import edit
from support.paths import ROOT

from tools.bindings import generate


def number() -> str:
    """That of the headers that the generator reads."""
    arguments = generate.for_build(generate.Exported.read())[generate.C / "call_arguments.h"]
    return re.findall(r"COW_BRIDGE_ABI (\d+)", arguments)[0]


def test_an_option_changes_it(tmp_path, monkeypatch):
    """A library made before reads fewer options than the bridge would."""
    before = number()
    shutil.copytree(ROOT / "include", tmp_path / "include")
    monkeypatch.setattr(generate, "PUBLIC", tmp_path / "include/cow_mlx.h")
    assert number() == before
    added = "  /** added */\n  int32_t added COW_MLX_DEFAULT(0);"
    edit(tmp_path, "include/cow_mlx/model.h", "} cow_mlx_model_params;", added)
    assert number() != before


def test_the_helper_changes_it(tmp_path, monkeypatch):
    before = number()
    shutil.copy(generate.HELPER, tmp_path)
    monkeypatch.setattr(generate, "HELPER", tmp_path / "helper.h")
    edit(tmp_path, "helper.h", "} cow_helper;", "  void (*added)(void);")
    assert number() != before

"""What is kept of large tokenizers: bound to their files, checked, never needed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from support.paths import ROOT
from tokenizers import Tokenizer, models

from cowmlx.text import (
    tokenizer_backend,
    tokenizer_cache,
    tokenizer_files,
    tokenizer_parts,
)


@pytest.fixture
def file(tmp_path):
    letters = "abcdefghijklmnopqrstuvwxyz"
    texts = [*letters, *(a + b for a in letters for b in letters)]
    texts += [a + b + c for a in letters for b in letters for c in letters]
    merges = [(text[:-1], text[-1]) for text in texts if len(text) > 1]
    made = Tokenizer(models.BPE({text: at for at, text in enumerate(texts)}, merges))
    made.save(str(tmp_path / "tokenizer.json"), pretty=True)
    assert (tmp_path / "tokenizer.json").stat().st_size > 1 << 20
    return str(tmp_path / "tokenizer.json")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    cache = tokenizer_cache.Cache()
    cache.use(str(tmp_path / "caches" / "own"))
    monkeypatch.setattr(tokenizer_cache, "CACHE", cache)
    return tmp_path / "caches" / "own"


@pytest.fixture
def splits(monkeypatch):
    """The files that were parsed."""
    seen = []
    split = tokenizer_parts.split

    def counted(data):
        seen.append(len(data))
        return split(data)

    monkeypatch.setattr(tokenizer_parts, "split", counted)
    return seen


def test_a_second_load_parses_nothing(file, kept, splits):
    first, second = (tokenizer_backend.File(file).load() for _ in range(2))
    assert len(splits) == 1
    assert first[0] == second[0]
    assert first[1].to_str() == second[1].to_str() == Tokenizer.from_file(file).to_str()
    (entry,) = kept.iterdir()
    assert entry.stat().st_mode & 0o777 == 0o600
    assert tokenizer_cache.CACHE.info() == {"path": str(kept), "problem": ""}


def test_a_damaged_entry_is_made_again(file, kept, splits):
    expected = tokenizer_backend.File(file).load()[1].to_str()
    (entry,) = kept.iterdir()
    whole = entry.read_bytes()
    for at in (0, 30, 60, len(whole) // 2):
        entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        splits.clear()
        assert tokenizer_backend.File(file).load()[1].to_str() == expected
        assert len(splits) == 1 and entry.read_bytes() == whole
    for cut in (10, len(whole) - 1):
        entry.write_bytes(whole[:cut])
        assert tokenizer_backend.File(file).load()[1].to_str() == expected


def test_an_entry_that_others_may_write_is_not_read(file, kept, splits):
    tokenizer_backend.File(file).load()
    (entry,) = kept.iterdir()
    entry.chmod(0o622)
    tokenizer_backend.File(file).load()
    assert len(splits) == 2


def test_a_link_is_not_read_but_replaced(file, kept, splits, tmp_path):
    tokenizer_backend.File(file).load()
    (entry,) = kept.iterdir()
    entry.rename(tmp_path / "victim")
    entry.symlink_to(tmp_path / "victim")
    (tmp_path / "victim").chmod(0o600)
    before = (tmp_path / "victim").stat()
    tokenizer_backend.File(file).load()
    assert len(splits) == 2 and not entry.is_symlink()
    assert (tmp_path / "victim").stat().st_mtime_ns == before.st_mtime_ns


def test_another_file_has_another_entry(file, kept, splits):
    tokenizer_backend.File(file).load()
    state = json.loads(Path(file).read_text(encoding="utf-8"))
    state["model"]["vocab"]["new"] = 30000
    Path(file).write_text(json.dumps(state, indent=2), encoding="utf-8")
    assert tokenizer_backend.File(file).load()[1].token_to_id("new") == 30000
    assert len(splits) == 2 and len(list(kept.iterdir())) == 2


def test_entries_are_few(file, kept):
    kept.mkdir(parents=True)
    for number in range(20):
        (kept / f"{number:064x}.tokenizer").write_bytes(b"")
    for name in ("other", "mine.tokenizer"):
        (kept / name).write_bytes(b"")
        os.utime(kept / name, (0, 0))
    tokenizer_backend.File(file).load()
    assert len(list(kept.glob("*.tokenizer"))) == 16 + 1
    assert (kept / "other").exists() and (kept / "mine.tokenizer").exists()


def test_a_folder_that_cannot_be_made_is_reported(file, kept):
    kept.parent.write_bytes(b"a file")
    expected = Tokenizer.from_file(file).to_str()
    assert tokenizer_backend.File(file).load()[1].to_str() == expected
    assert "cannot write" in tokenizer_cache.CACHE.info()["problem"]


def test_models_with_equal_files_share_a_tokenizer(file, tmp_path):
    load = tokenizer_files.load
    one, other = (load(str(tmp_path), {}, {"model_type": "llama"}) for _ in range(2))
    assert one.backend is other.backend
    other.limit = 1 << 20
    assert one.limit == one.vocabulary_size < other.limit
    (tmp_path / "tokenizer_config.json").write_text('{"unk_token": "a"}')
    changed = load(str(tmp_path), {"unk_token": "a"}, {"model_type": "llama"})
    assert changed.backend is not one.backend
    seen = weakref.ref(one.shared)
    del one, other
    assert seen() is None


KILLED = """
import os, signal, sys
from cowmlx.text import tokenizer_backend, tokenizer_cache

os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
tokenizer_cache.CACHE.use(sys.argv[2])
tokenizer_backend.File(sys.argv[1]).load()
"""


def test_the_partial_entry_of_a_killed_process_is_removed(file, kept):
    command = [sys.executable, "-c", KILLED, file, str(kept)]
    assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
    assert len(list(kept.iterdir())) == 1
    tokenizer_backend.File(file).load()
    (entry,) = kept.iterdir()
    assert entry.suffix == ".tokenizer"


HOST = """
import json, sys
sys.path.insert(0, sys.argv[1])
from support.library import Library

lib = Library()
lib.start(**json.loads(sys.argv[3]))
model = lib.load(sys.argv[2])
print(json.dumps([lib.tokenize(model, "quick brown foxes"), lib.info()["cache_dir"]]))
lib.stop()
"""


def test_a_host_names_the_folder(file, llama, kept):
    """In a separate process: here the runtime runs already."""
    shutil.copy(file, llama / "tokenizer.json")
    params = json.dumps({"cache_dir": str(kept)})
    command = [sys.executable, "-c", HOST, str(ROOT / "tests"), str(llama), params]
    answers = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
    assert answers[0][1] == {"path": str(kept), "problem": ""}
    assert len(list(kept.glob("*.tokenizer"))) == 1

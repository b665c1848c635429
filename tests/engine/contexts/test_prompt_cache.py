"""Processed prompts on disk: found after a restart, shared by processes, never trusted."""

from __future__ import annotations

import errno
import json
import os

import mlx.core as mx
import pytest
from driver import DROPS_THINKING, HYBRID, KV, RECURRENT, SLIDING, opened, prompt
from support import in_process, tiny_adapters, tiny_models
from support.library import StatusError
from support.paths import CALF
from support.prompt_hosts import Process
from support.signatures import ACTIVATIONS_EXACT, ACTIVATIONS_INT8, EINVAL, EIO

from cowmlx.accelerate import kernels
from cowmlx.cache import disk
from cowmlx.cache.prompt_files import PromptFiles
from cowmlx.cache.sequence import Sequence
from cowmlx.folders import own_files
from cowmlx.generated.defaults import CONTEXT, GENERATION
from cowmlx.steps import finished

LONG = prompt(400)
MUCH = 1 << 30


@pytest.fixture(scope="module")
def hosts():
    """Two processes, whose runtimes do not run."""
    made = [Process(), Process()]
    yield made
    for process in made:
        process.end()


@pytest.fixture
def restart(hosts, tmp_path):
    """Starts the first process's runtime again, with a folder that is the test's."""
    host, running = hosts[0], []

    def restart(prompt_cache_bytes=MUCH, **params):
        if running:
            host.stop()
        running.append(True)
        folder = str(tmp_path / "prompts")
        given = {"prompt_cache_dir": folder, "prompt_cache_bytes": prompt_cache_bytes, **params}
        assert host.start(**given) == {}
        return host

    yield restart
    if running:
        host.stop()


def files(tmp_path):
    return sorted((tmp_path / "prompts").glob("*.prompt"))


def longest(known, key, tokens):
    return finished(known.longest(key, tokens, cuts=True))


def fresh(lib, tiny, kind, tokens, **params):
    """What a context that shares nothing generates."""
    with opened(lib, tiny(kind), **params) as context:
        lib.begin(context, tokens, max_tokens=4)
        return [piece.token for piece in lib.drain(context) if not piece.status]


@pytest.mark.parametrize("kind", [KV, SLIDING, RECURRENT, HYBRID])
def test_a_prompt_is_found_after_a_restart(lib, tiny, folder, restart, tmp_path, kind):
    longer = LONG + prompt(20, seed=1)
    first = restart().generate(folder(kind), LONG)
    assert (first["reused"], first["shared"]) == (0, 0)
    host = restart()
    (path,) = files(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    found = host.generate(folder(kind), longer)
    assert found["reused"] == found["shared"] == len(LONG) - 1
    assert found["told"] == fresh(lib, tiny, kind, longer)
    assert host.info() | {"written": 0} == {
        "folder": str(tmp_path / "prompts"),
        "limit": MUCH,
        "files": 1,
        "bytes": path.stat().st_size,
        "written": 0,
        "found": 1,
        "problem": None,
    }


@pytest.mark.parametrize(("length", "copies"), [(200, 0), (400, 1)])
def test_a_prompt_is_copied_only_to_be_written(folder, tmp_path, monkeypatch, length, copies):
    own, copied = Sequence.snapshot, []

    def snapshot(sequence, *rest):
        copied.append(sequence)
        return own(sequence, *rest)

    with in_process.started(prompt_cache_dir=str(tmp_path / "prompts")) as engine:
        model = in_process.loaded(engine, folder(KV), prefix_cache_bytes=0)
        context, call = engine.context_create(model, CONTEXT), in_process.Call()
        monkeypatch.setattr(Sequence, "snapshot", snapshot)
        engine.context_begin(call, context, prompt(length), GENERATION)
        in_process.finish(engine)
        assert (call.error, len(copied)) == (None, copies)


def test_prompts_that_part_share_the_beginning(lib, tiny, folder, restart):
    restart().generate(folder(KV), LONG)
    other = LONG[:300] + prompt(50, seed=2)
    found = restart().generate(folder(KV), other)
    assert found["reused"] == 300
    assert found["told"] == fresh(lib, tiny, KV, other)


def test_other_weights_or_caches_find_nothing(folder, restart, tmp_path):
    name = "llama-wide"
    adapter = tmp_path / "adapter"
    tiny_adapters.make(adapter, folder(name), ["q_proj"])
    host = restart()
    for params in ({}, {"kv_bits": 8}, {"adapter": str(adapter)}):
        host.generate(folder(name), LONG, **params)
    host = restart()
    assert len(files(tmp_path)) == 3
    assert host.generate(folder("llama"), LONG)["reused"] == 0
    assert host.generate(folder(name), LONG, kv_bits=4)["reused"] == 0
    assert host.generate(folder(name), LONG, share_prefix=False)["reused"] == 0
    for params in ({}, {"kv_bits": 8}, {"adapter": str(adapter)}):
        assert host.generate(folder(name), LONG, **params)["reused"] == len(LONG) - 1


@pytest.mark.skipif(not kernels.available(), reason=kernels.reason() or "there are kernels")
def test_exact_activations_find_nothing_that_was_rounded(restart, tmp_path):
    path = tiny_models.make(tmp_path / "packed", "llama", quantize={"group_size": 64, "bits": 4})
    rounded, exact = ({"activations": how} for how in (ACTIVATIONS_INT8, ACTIVATIONS_EXACT))
    for load in (rounded, exact):
        assert restart().generate(path, LONG, load=load)["reused"] == 0
    for load in (rounded, exact):
        assert restart().generate(path, LONG, load=load)["reused"] == len(LONG) - 1
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["header", "layers", "cut", "empty", "name"])
def test_a_damaged_file_is_removed(lib, tiny, folder, restart, tmp_path, damage):
    restart().generate(folder(KV), LONG)
    host = restart()
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "header":
        data[20] ^= 1
    elif damage == "layers":
        data[-100] ^= 1
    elif damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "empty":
        data.clear()
    else:  # it says that it is of other weights
        key = path.name.partition("-")[0]
        host.generate(folder("llama-other"), LONG)
        host = restart()
        (other,) = set(files(tmp_path)) - {path}
        data = other.read_bytes()
        other.unlink()
        path = path.with_name(other.name.replace(other.name.partition("-")[0], key))
    path.write_bytes(data)
    found = host.generate(folder(KV), LONG)
    assert found["reused"] == 0
    assert found["told"] == fresh(lib, tiny, KV, LONG)
    host = restart()
    assert host.generate(folder(KV), LONG)["reused"] == len(LONG) - 1, "it was written again"


def test_the_least_used_are_dropped(folder, restart, tmp_path):
    prompts = [prompt(300, seed=seed) for seed in range(4)]
    restart().generate(folder(KV), prompts[0])
    restart()
    (path,) = files(tmp_path)
    room = int(3.5 * path.stat().st_size)
    host = restart(room)
    for tokens in prompts[1:3]:
        host.generate(folder(KV), tokens)
        host = restart(room)
    assert host.generate(folder(KV), prompts[0])["reused"] == 299, "used, so not the oldest"
    host.generate(folder(KV), prompts[3])
    host = restart(room)
    assert len(files(tmp_path)) == 3
    reused = {n: host.generate(folder(KV), prompts[n])["reused"] for n in (0, 2, 3, 1)}
    assert reused == {0: 299, 2: 299, 3: 299, 1: 0}


def test_a_host_s_own_files_stay(folder, restart, tmp_path):
    restart().generate(folder(KV), LONG)
    restart()
    (path,) = files(tmp_path)
    size = path.stat().st_size
    shop = [path.with_name("notes.prompt"), path.with_name(f"{path.stem}-2.prompt")]
    for mine in shop:
        mine.write_bytes(b"x" * 3 * size)
        os.utime(mine, (0, 0))
    link = path.with_name(path.name.replace("-399-", "-398-"))
    link.symlink_to(shop[0])
    host = restart(2 * size)
    assert host.info()["files"] == 1
    host.generate(folder(KV), prompt(300, seed=1))
    restart()
    assert all(mine.stat().st_size == 3 * size for mine in shop)
    assert link.is_symlink() and path.exists()
    assert len(files(tmp_path)) == 5


@pytest.mark.parametrize("whose", ["a link", "writable for others", "another user's"])
def test_a_file_that_others_may_have_written_is_replaced(folder, restart, tmp_path, whose):
    restart().generate(folder(KV), LONG)
    host = restart()
    (path,) = files(tmp_path)
    victim, data = tmp_path / "victim", path.read_bytes()
    victim.write_bytes(data)
    victim.chmod(0o600)
    if whose == "a link":
        path.unlink()
        path.symlink_to(victim)
    elif whose == "writable for others":
        path.chmod(0o622)
    elif os.geteuid():
        pytest.skip("only root can give a file away")
    else:
        os.chown(path, 12345, -1)
    inode = victim.stat().st_ino
    assert host.generate(folder(KV), LONG)["reused"] == 0
    host = restart()
    assert (victim.stat().st_ino, victim.read_bytes()) == (inode, data)
    assert files(tmp_path) == [path]
    assert not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    assert host.generate(folder(KV), LONG)["reused"] == len(LONG) - 1


@pytest.mark.parametrize(("count", "dtype"), [(1 << 20, mx.int32), (5, mx.int64)])
def test_a_file_with_other_tokens_than_its_name_says_is_removed(tmp_path, count, dtype):
    key = "0123456789abcdef" * 2
    path = tmp_path / f"{key}-5-{key[:16]}.prompt"
    for _ in disk.write(str(path), {}, {"tokens": mx.zeros((count,), dtype)}):
        pass
    assert longest(PromptFiles(str(tmp_path), MUCH), key, [0] * 10) is None
    assert not path.exists()


def generated(engine, model, tokens):
    """Process a prompt; what the context says."""
    context, call = engine.context_create(model, CONTEXT), in_process.Call()
    engine.context_begin(call, context, tokens, {**GENERATION, "max_tokens": 0})
    in_process.finish(engine)
    assert call.error is None, call.error
    info = engine.context_info(context)
    engine.context_free(context)
    return info


def test_a_damaged_file_that_cannot_be_removed_is_left_out(folder, tmp_path, monkeypatch):
    """As on a file system that was mounted again to be read alone."""
    with in_process.started(prompt_cache_dir=str(tmp_path / "prompts")) as engine:
        generated(engine, in_process.loaded(engine, folder(KV)), LONG)
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    tried = []

    def unlink(*_):
        tried.append(path)
        assert len(tried) < 10
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with in_process.started(prompt_cache_dir=str(tmp_path / "prompts")) as engine:
        model = in_process.loaded(engine, folder(KV))
        with monkeypatch.context() as patched:
            patched.setattr(os, "unlink", unlink)
            assert generated(engine, model, LONG)["reused"] == 0
    assert tried
    with in_process.started(prompt_cache_dir=str(tmp_path / "prompts")) as engine:
        model = in_process.loaded(engine, folder(KV))
        assert generated(engine, model, LONG)["reused"] == len(LONG) - 1, "it was written again"


@pytest.mark.parametrize("count", [1, 2])
def test_a_full_disk_takes_the_place_of_the_least_used(folder, tmp_path, monkeypatch, count):
    """As long as they have as many bytes."""
    create, full = own_files.create_partial, []

    def create_partial(*given):
        if not full:
            full.append(given)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return create(*given)

    prompts = [prompt(300, seed=seed) for seed in range(count)]
    with in_process.started(prompt_cache_dir=str(tmp_path / "prompts")) as engine:
        model = in_process.loaded(engine, folder(KV))
        for tokens in prompts:
            generated(engine, model, tokens)
            in_process.finish(engine)
        old = files(tmp_path)
        assert len(old) == count
        for place, path in enumerate(old):
            os.utime(path, (place, place))
        monkeypatch.setattr(own_files, "create_partial", create_partial)
        generated(engine, model, prompt(500, seed=9))
    assert full
    kept = set(old) & set(files(tmp_path))
    assert len(kept) == (1 if count == 1 else 0)
    assert len(files(tmp_path)) == 1


def test_a_longer_prompt_takes_the_place_of_its_beginning(folder, restart, tmp_path):
    host = restart()
    host.generate(folder(KV), LONG)
    host.generate(folder(KV), LONG[:-1] + prompt(20, seed=3))  # too few more to be written
    host.generate(folder(KV), LONG + prompt(80, seed=3))
    host = restart()
    assert [path.name.split("-")[1] for path in files(tmp_path)] == ["399"]
    host.generate(folder("llama-long"), prompt(700, seed=4))
    host.generate(folder("llama-long"), prompt(700, seed=4) + prompt(300, seed=5))
    restart()
    assert sorted(path.name.split("-")[1] for path in files(tmp_path)) == ["399", "999"]


def test_two_processes_share_a_folder(folder, hosts, restart, tmp_path):
    first, second = restart(), hosts[1]
    place = {"prompt_cache_dir": str(tmp_path / "prompts"), "prompt_cache_bytes": MUCH}
    assert second.start(**place) == {}
    first.generate(folder(KV), LONG)
    second.generate(folder(KV), prompt(400, seed=6))
    second.stop()
    assert second.start(**place) == {}
    first = restart()
    assert second.generate(folder(KV), LONG)["reused"] == len(LONG) - 1
    assert first.generate(folder(KV), prompt(400, seed=6))["reused"] == len(LONG) - 1
    for path in files(tmp_path):
        path.unlink()
    second.stop()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.EIO])
def test_a_file_that_cannot_be_read_now_stays(folder, restart, tmp_path, monkeypatch, code):
    """It may be another user's, or there may be no descriptor left."""
    restart().generate(folder(KV), LONG)
    restart()
    (path,) = files(tmp_path)
    known = PromptFiles(str(tmp_path / "prompts"), MUCH)
    key = path.name.partition("-")[0]

    def fail(*given, **options):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        assert longest(known, key, LONG) is None
    assert files(tmp_path) == [path]
    assert longest(known, key, LONG).path == str(path)


def test_a_chat_is_found_before_its_generation_prompt(lib, folder, restart, tmp_path):
    """Of a hybrid model, whose next prompt differs from there on."""
    path = tmp_path / "thinker"
    path.mkdir()
    for source in folder("falcon_h1-long").iterdir():
        (path / source.name).write_bytes(source.read_bytes())
    settings = json.loads((path / "tokenizer_config.json").read_text())
    settings["chat_template"] = DROPS_THINKING
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    messages = [{"role": "user", "content": "The quick brown fox jumps. " * 30}]
    host = restart()
    first = host.chat(folder=str(path), messages=messages)
    messages += [{"role": "assistant", "content": "It does."}, {"role": "user", "content": "Why?"}]
    again = restart().chat(folder=str(path), messages=messages)
    assert first["prompt"] - 30 < again["reused"] < first["prompt"]


@pytest.mark.parametrize(
    ("params", "status", "words"),
    [
        ({"prompt_cache_dir": ""}, EINVAL, "prompt_cache_dir is empty"),
        ({"prompt_cache_bytes": 0}, EINVAL, "prompt_cache_bytes is 0"),
        ({"prompt_cache_dir": "FILE/prompts"}, EIO, "which cannot be used"),
    ],
)
def test_a_folder_that_cannot_be_used(hosts, tmp_path, params, status, words):
    (tmp_path / "FILE").write_text("")
    given = {"prompt_cache_dir": str(tmp_path / "prompts"), **params}
    given["prompt_cache_dir"] = given["prompt_cache_dir"].replace("FILE", str(tmp_path / "FILE"))
    refused = hosts[0].start(**given)
    assert refused["status"] == status
    assert words in refused["message"]


def test_a_runtime_that_runs_keeps_its_folder(lib, tmp_path):
    with pytest.raises(StatusError, match="other parameters"):
        lib.start(prompt_cache_dir=tmp_path, prompt_cache_bytes=MUCH)
    assert lib.info()["prompt_cache"] is None


def test_a_model_that_falls_asleep_is_not_woken_to_write_its_prompts(restart):
    prompts = [prompt(400, seed=seed) for seed in range(4)]
    for _ in range(2):  # the second time they are known, and looked up sooner
        assert set(restart().process_and_sleep(CALF, prompts)["asleep"]) == {True}

"""Where a model's folder is and its name; folders that are written whole or not at all.

A folder as it is; a snapshot in Hugging Face's cache, the cache's entry for a model, which has
snapshots, or the model's name there. Nothing is ever downloaded.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress

from cowmlx.errors import BadFormat, InputOutput, NotFound, Unsupported
from cowmlx.folders import own_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ENTRY = re.compile(r"models--([\w.-]+)")
_REPOSITORY = r"[\w-][\w.-]*/[\w-][\w.-]*"
_NAME = rf"(?:{_REPOSITORY}|[\w-][\w.-]*)"
_LFS = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER = 1024  # bytes
_MAX_NAME = 256
_OF_FINDER = ".DS_Store"  # of macOS, in folders that a person has looked at


def find(path: str) -> tuple[str, str]:
    """Return the folder that a path or a name means, and the model's name.

    The name is "org/name" in Hugging Face's cache, else the folder's. A folder wins over a name.

    Raises:
        NotFound: there is none; the message says what lies there instead, and what to do.
        Unsupported: it is a file that mlx does not read.
    """
    if not os.path.isdir(path):
        if not _is_cached(path):
            raise _nothing_at(path)
        path = _entry(path)
    full = os.path.abspath(path)
    if entry := _ENTRY.fullmatch(os.path.basename(full)):
        return _snapshot(path), entry[1].replace("--", "/", 1)
    folder, last = os.path.split(os.path.dirname(full))
    if last == "snapshots" and (entry := _ENTRY.fullmatch(os.path.basename(folder))):
        return path, entry[1].replace("--", "/", 1)
    return path, os.path.basename(full) or full


def resolved(path: str) -> str:
    """Return the folder of a name in Hugging Face's cache; a path that is none as it is."""
    return find(path)[0] if os.path.isdir(path) or _is_cached(path) else path


def refuse_other_formats(path: str) -> None:
    """Say what to do with weights that mlx does not read, or that are not there yet.

    Raises:
        Unsupported: the folder has no weights that are read, but some in another format.
        BadFormat: its weights are pointers of Git LFS.
    """
    names = sorted(os.listdir(path))
    weights = [name for name in names if name.endswith(_READ)]
    for name in weights:
        if _is_pointer(os.path.join(path, name)):
            raise BadFormat(
                f"{path}/{name} is a pointer of Git LFS, and the weights are not there: run "
                "`git lfs pull` in the folder, or download it with `hf download`",
                file=name,
            )
    if any(name.endswith(".safetensors") or name.startswith("pytorch_model") for name in weights):
        return
    for ending, advice in _OTHERS.items():
        others = [name for name in names if name.endswith(ending)]
        if others:
            raise Unsupported(f"{path} has {others[0]}: {advice}", file=others[0])


_READ = (".safetensors", ".bin")
_CONVERT = "`mlx_lm.convert --hf-path FOLDER --mlx-path OTHER` makes it of the original weights"
_OTHERS = {
    ".gguf": "GGUF is llama.cpp's format; a model here is a folder with config.json, "
    "model*.safetensors and tokenizer.json. `python -m cowmlx convert FILE.gguf FOLDER` makes one "
    "of it",
    ".bin": f"weights of PyTorch are read from pytorch_model*.bin alone. {_CONVERT}",
    ".pth": f"weights of PyTorch are read from pytorch_model*.bin alone. {_CONVERT}",
}


def _entry(name: str) -> str:
    """Return where Hugging Face's cache has a model of that name, if it does."""
    return os.path.join(cache(), f"models--{name.replace('/', '--')}")


def _is_cached(name: str) -> bool:
    return (
        not os.path.exists(name)
        and re.fullmatch(_NAME, name) is not None
        and os.path.isdir(_entry(name))
    )


def _nothing_at(path: str) -> NotFound | Unsupported:
    if os.path.exists(path):
        if path.endswith(".gguf"):
            return Unsupported(f"{path}: {_OTHERS['.gguf']}", file=path)
        return NotFound(f"{path} is not a directory; pass the folder of the model", file=path)
    if path.startswith("~"):
        return NotFound(
            f"no such directory: {path}; ~ means the home folder to a shell alone: pass "
            f"{os.path.expanduser(path)}",
            file=path,
        )
    if re.fullmatch(_REPOSITORY, path) and not os.path.isdir(os.path.dirname(path)):
        return NotFound(
            f"no such directory: {path}; if that is a model of Hugging Face, download it first "
            f"(`hf download {path}`): {_entry(path)} is not there",
            file=path,
        )
    return NotFound(f"no such directory: {path}", file=path)


def cache() -> str:
    """Return the folder of Hugging Face's cache, as its own tools find it."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    return os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")


def _snapshot(entry: str) -> str:
    """Return the snapshot of a cache's entry that its branch main is at, or else the only one.

    Raises:
        NotFound: there is none, or several.
    """
    snapshots = os.path.join(entry, "snapshots")
    names = sorted(os.listdir(snapshots)) if os.path.isdir(snapshots) else []
    main = os.path.join(entry, "refs", "main")
    if os.path.isfile(main):
        try:
            with open(main, encoding="utf-8") as file:
                named = file.read(_MAX_NAME).strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise InputOutput(f"cannot read {main}: {exc}", file=main) from exc
        if named in names:
            return os.path.join(snapshots, named)
    if len(names) == 1:
        return os.path.join(snapshots, names[0])
    if not names:
        raise NotFound(
            f"{entry} has no snapshots: its download has not ended; run it again", file=entry
        )
    raise NotFound(
        f"{entry} has {len(names)} snapshots, and refs/main names none of them; pass one: "
        f"{os.path.join(snapshots, names[-1])}",
        file=entry,
    )


def _is_pointer(path: str) -> bool:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MAX_POINTER:
            return False
        with open(path, "rb") as file:
            return file.read(len(_LFS)) == _LFS
    except OSError:
        return False  # reading the weights will say why


@contextmanager
def whole(path: str, what: str, is_written: Callable[[str], bool]) -> Iterator[str]:
    """Give a fresh folder beside ``path``, which takes that place at the end of the block.

    An earlier folder stays until then, and for good if the block raises. Files are synchronized
    before the folder takes its place. Fresh folders of writers that were killed are removed.

    Args:
        path: the folder. It may be absent, empty, or hold the file ``what``; a ``.DS_Store`` goes
            with it.
        what: the name of a file; a folder with other files and without it is refused.
        is_written: whether an earlier folder may hold a file or folder, by its path in it; a folder
            with others, or with links, is refused.

    Yields:
        the fresh folder.

    Raises:
        NotFound: the folder above does not exist.
        InputOutput: it cannot be written, or something else is there.
    """
    target = os.path.realpath(path)
    _sweep(target)
    check(path, what, is_written)
    try:
        fresh, descriptor = _make_fresh(target)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"cannot write {path}: there is no folder {os.path.dirname(target)}", file=path
        ) from None
    except OSError as exc:
        raise unwritable(path, exc) from exc
    try:
        yield fresh
        _sync_all(fresh)
        check(path, what, is_written)
        _take_place(fresh, target)
    except OSError as exc:
        raise unwritable(path, exc) from exc
    finally:
        _remove(fresh)
        os.close(descriptor)


def _remove(folder: str) -> None:
    import shutil  # late: a start needs none of it

    shutil.rmtree(folder, ignore_errors=True)


_PARTIAL, _EARLIER = "partial", "earlier"


def _beside(target: str, kind: str) -> str:
    """Return the name of a folder that does not exist."""
    return os.path.join(
        os.path.dirname(target), f".{os.path.basename(target)}.{kind}-{os.urandom(8).hex()}"
    )


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _make_fresh(target: str) -> tuple[str, int]:
    """Make a folder beside another and lock it; returns its path and its descriptor."""
    while True:
        fresh = _beside(target, _PARTIAL)
        os.mkdir(fresh)
        try:
            descriptor = _open_folder(fresh)
        except FileNotFoundError:
            continue  # a sweep came between
        except OSError:
            _remove(fresh)
            raise
        if own_files.lock(descriptor) is not False and own_files.is_at(descriptor, fresh):
            return fresh, descriptor
        os.close(descriptor)  # a sweep came between: it removes the folder


def _sweep(target: str) -> None:
    """Remove what killed writers of a folder left beside it.

    One that was killed between two renames has moved the earlier folder away: it comes back.
    """
    name = re.escape(os.path.basename(target))
    left = re.compile(rf"\.{name}\.({_PARTIAL}|{_EARLIER})-[0-9a-f]{{16}}")
    with suppress(OSError), os.scandir(os.path.dirname(target)) as entries:
        for entry in entries:
            if parts := left.fullmatch(entry.name):
                with suppress(OSError):
                    _clear(entry.path, target if parts[1] == _EARLIER else None)


def _clear(left: str, target: str | None) -> None:
    """Remove a folder without a lock, or rename it to the target if that is missing."""
    descriptor = _open_folder(left)
    try:
        if not own_files.lock(descriptor):
            return
        if target is not None and not os.path.lexists(target):
            os.rename(left, target)
        else:
            _remove(left)
    finally:
        os.close(descriptor)


def check(path: str, what: str, is_written: Callable[[str], bool]) -> None:
    """Refuse a folder that :func:`whole` must not replace.

    Raises:
        InputOutput: it cannot be read, or something else is there.
    """
    try:
        other = _other_in(os.path.realpath(path), what, is_written)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise unwritable(path, exc) from exc
    if other:
        raise InputOutput(
            f"cannot write {path}: the folder has other files ({other}); name a new folder",
            reason="write_failed",
            file=path,
        )


def _other_in(folder: str, what: str, is_written: Callable[[str], bool]) -> str:
    """Return the path in a folder of something that was not written with it; "" for nothing."""
    inside = set(os.listdir(folder)) - {_OF_FINDER}
    if inside and what not in inside:
        return min(inside)
    for place, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            full = os.path.join(place, name)
            own = os.path.relpath(full, folder)
            is_own = is_written(own) or (name == _OF_FINDER and name in files)
            if os.path.islink(full) or not is_own:
                return own
    return ""


def _take_place(fresh: str, target: str) -> None:
    """Rename a folder; an earlier one is removed once the new one is in its place."""
    try:
        os.rename(fresh, target)  # nothing is there, or an empty folder
    except OSError:
        if not os.path.isdir(target):
            raise
        _replace(fresh, target)
    with suppress(OSError):
        sync(os.path.dirname(target))


def _replace(fresh: str, target: str) -> None:
    earlier = _beside(target, _EARLIER)
    descriptor = _open_folder(target)
    try:
        own_files.lock(descriptor)  # against sweeps
        os.rename(target, earlier)
        try:
            os.rename(fresh, target)
        except OSError:
            os.rename(earlier, target)
            raise
        _remove(earlier)
    finally:
        os.close(descriptor)


def _sync_all(folder: str) -> None:
    for place, _, files in os.walk(folder):
        for name in files:
            sync(os.path.join(place, name))
        sync(place)


def sync(path: str) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: str, exc: OSError) -> InputOutput:
    """Return the error of a path that cannot be written."""
    return InputOutput(
        f"cannot write {path}: {exc.strerror or exc}", reason="write_failed", file=path
    )

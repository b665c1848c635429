"""The Python of a bundle: where its files lie here, and which of its standard library goes in.

The engine needs a small part of it. A name stands for a module, a package with all its modules, or
one module of a package (``__init__`` for the package's own). Older Pythons lack some of them.
Modules that these import only where a rare function is called are left out: asyncio, ctypes,
multiprocessing, ssl, other programs.
"""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from cowmlx.commands.bundle import BundleError
from cowmlx.commands.origin import MAC

NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Interpreter:
    """A Python installation."""

    library: Path  # its shared libpython
    library_name: str  # its name in a bundle, where ``csrc/boot/locate.c`` looks for it
    modules: Path  # the folder of the standard library
    extensions: Path  # the folder of its extension modules, which may be missing
    licences: tuple[Path, ...]  # files with its licence, perhaps none


def find() -> Interpreter:
    """Return the Python that runs this; in a virtual environment, the one under it.

    Raises:
        BundleError: it has no shared libpython.
    """
    base = Path(sys.base_prefix)
    modules = Path(sysconfig.get_path("stdlib"))
    extensions = Path(sysconfig.get_config_var("DESTSHARED") or modules / "lib-dynload")
    if not extensions.is_dir():  # this Python was moved after its build
        extensions = modules / "lib-dynload"
    candidates = [
        modules / "LICENSE.txt",
        base / "LICENSE.txt",
        base / "share/doc" / NAME / "copyright",  # Debian
        base / "share/doc" / f"lib{NAME}" / "copyright",
        base / "share/licenses" / NAME / "LICENSE",
    ]
    return Interpreter(
        library=_library(base),
        library_name=f"lib{NAME}.dylib" if MAC else f"lib{NAME}.so.1.0",
        modules=modules,
        extensions=extensions,
        licences=tuple(path for path in candidates if path.is_file())[:1],
    )


def _library(base: Path) -> Path:
    folders = [base / "lib", base / "lib64", base]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        folders.append(base / "lib" / multiarch)
    if configured := sysconfig.get_config_var("LIBDIR"):
        folders.append(Path(configured))
    names = [f"lib{NAME}.dylib", "Python"] if MAC else [f"lib{NAME}.so.1.0", f"lib{NAME}.so"]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return (folder / name).resolve()
    places = ", ".join(str(folder) for folder in dict.fromkeys(folders))
    raise BundleError(f"{base} has no shared lib{NAME} (looked in {places})")


KEPT: dict[str, str] = {
    "Python starts with these": """
        __future__ _collections_abc _py_warnings _sitebuiltins _weakrefset abc codecs genericpath
        io ntpath os posixpath site stat zipimport
        encodings.__init__ encodings.aliases encodings.ascii encodings.latin_1 encodings.utf_8
        """,
    "text in files and archives: UTF-8 with and without its mark, other Unicode, zip's own": """
        encodings.cp437 encodings.idna encodings.raw_unicode_escape encodings.unicode_escape
        encodings.utf_16 encodings.utf_16_be encodings.utf_16_le encodings.utf_32
        encodings.utf_8_sig encodings.iso8859_1 stringprep
        """,
    "the language's own helpers": """
        _colorize _compat_pickle _py_abc _threading_local _weakrefset annotationlib bisect codeop
        collections contextlib contextvars copy copyreg dataclasses enum fnmatch functools graphlib
        heapq keyword linecache operator pickle queue re reprlib string struct textwrap threading
        token tokenize traceback types typing warnings weakref
        """,
    "importing and inspecting modules": """
        _ast_unparse _opcode_metadata ast dis importlib.__init__ importlib._abc importlib.abc
        importlib.machinery importlib.metadata importlib.readers importlib.resources importlib.util
        inspect opcode
        """,
    "numbers and dates: filters of jinja2, strftime in chat templates": """
        _strptime calendar datetime numbers random
        """,
    "files and paths, with which packages find their own files": """
        glob pathlib shutil tempfile zipfile
        """,
    "text and data: messages, chat templates, grammars, tool calls": """
        base64 csv difflib hashlib hmac html ipaddress json locale pprint quopri shlex
        urllib.__init__ urllib.parse
        """,
    "importlib.metadata, with which packages ask for their own version": """
        email.__init__ email._encoded_words email._parseaddr email._policybase email.base64mime
        email.charset email.encoders email.errors email.feedparser email.header email.iterators
        email.message email.parser email.quoprimime email.utils selectors socket
        """,
    "models on several machines: what a host has of them; a bundle runs no rank": """
        secrets signal
        """,
    "logging, which jinja2 imports": """
        logging.__init__
        """,
}

# Extension modules of the same; each links libc and libm alone, but for binascii and zlib: libz.
EXTENSIONS = frozenset(
    """
    _bisect _blake2 _contextvars _csv _datetime _heapq _json _md5 _opcode _pickle _posixsubprocess
    _queue _random _sha1 _sha2 _sha256 _sha3 _sha512 _socket _struct _typing array binascii fcntl
    math mmap resource select unicodedata zlib
    """.split()  # noqa: SIM905
)

# Left out of every bundle: tests, what builds and edits Python programs, windows, terminals, and
# what needs libraries of old Unix services.
NEVER = frozenset(
    """
    __pycache__ config-* ensurepip idlelib lib2to3 site-packages dist-packages test tests
    idle_test tkinter turtle.py turtledemo venv _tkinter* _test* _ctypes_test* _xxtestfuzz*
    xxlimited* xxsubtype* readline* _curses* _dbm* _gdbm* nis _crypt ossaudiodev spwd
    sitecustomize.py EXTERNALLY-MANAGED LICENSE.txt lib-dynload
    """.split()  # noqa: SIM905
)


def kept() -> frozenset[str]:
    """Return the names of all groups."""
    return frozenset(name for names in KEPT.values() for name in names.split())


def is_kept(module: str, names: frozenset[str]) -> bool:
    """Whether a module, such as ``email.message`` or ``json.__init__``, is one of ``names``.

    So is every module of a package that is.
    """
    parts = module.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))

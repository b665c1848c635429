"""What is compiled for macOS: without a word of the compiler, and as dyld expects it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cross import MACOS_MINIMUM, Cross
from support.macho import MachO
from support.paths import CSRC, INCLUDE, ROOT
from support.signatures import FUNCTIONS

from tools.packaging.targets import bridge_arguments

pytestmark = [pytest.mark.xdist_group("macos"), pytest.mark.long]

SYSTEM = "/usr/lib/libSystem.B.dylib"
ZIG_EXPORTS = {"__dso_handle", "_mh_dylib_header"}  # of every library that its linker makes
CPP_RUNTIME = ("_Z", "__cxa_", "__gxx_personality_v0", "_Unwind_")
C_HOSTS = sorted(
    path
    for pattern in ("examples/c/*.c", "tests/*/hosts/*.c", "benchmarks/hosts/*.c")
    for path in ROOT.glob(pattern)
    if "desktop" not in path.parts  # those need GTK, whose headers for Macs are not here
)
CPP_HOSTS = sorted([*ROOT.glob("examples/cpp/*.cpp"), *ROOT.glob("tests/*/hosts/*.cpp")])


def test_library_says_what_dyld_asks(mac):
    library = MachO(mac.library)
    assert library.kind == "library"
    assert library.architecture == mac.triple.split("-")[0]
    assert library.name == "@rpath/libcowmlx.1.dylib"
    assert library.needed == [SYSTEM]
    assert library.rpaths == []
    assert library.minimum == MACOS_MINIMUM


def test_library_exports_what_the_headers_declare(mac):
    assert MachO(mac.library).exported - ZIG_EXPORTS == set(FUNCTIONS)


def test_library_links_no_python(mac):
    imported = MachO(mac.library).imported
    assert imported.keys() >= {"dlsym", "pthread_create", "_dyld_image_count"}
    assert set(imported.values()) == {SYSTEM}
    assert [name for name in imported if name.startswith(("Py", "_Py"))] == []


def test_library_gives_its_thread_a_class(mac):
    assert MachO(mac.library).imported["pthread_set_qos_class_self_np"] == SYSTEM


def test_library_asks_for_the_memory_that_there_is(mac):
    imported = MachO(mac.library).imported
    assert {imported["host_statistics64"], imported["sysctlbyname"]} == {SYSTEM}


def test_probe_of_the_doctor(mac):
    output = mac.folder / "cowmlx-probe"
    program = MachO(mac.compile(output, mac.target.probe_command(ROOT, output)))
    assert (program.kind, program.needed, program.minimum) == ("program", [SYSTEM], MACOS_MINIMUM)


def test_program_that_measures_the_processor(mac):
    source, output = ROOT / "benchmarks/hosts/peers/roofline.c", mac.folder / "roofline"
    program = MachO(
        mac.compile(output, mac.target.host_command(ROOT, [source], output, "-pthread"))
    )
    assert (program.kind, program.needed, program.minimum) == ("program", [SYSTEM], MACOS_MINIMUM)


def test_python_headers_know_the_sizes(mac):
    """The headers are this machine's, and must not bring its sizes along."""
    types = {"VOID_P": "void*", "SIZE_T": "size_t", "LONG": "long", "WCHAR_T": "wchar_t"}
    types |= {"PTHREAD_T": "pthread_t", "UINTPTR_T": "uintptr_t", "TIME_T": "time_t"}
    checks = [f'_Static_assert(SIZEOF_{n} == sizeof({t}), "{n}");' for n, t in types.items()]
    source = mac.folder / "sizes.c"
    source.write_text("\n".join(["#include <Python.h>", "#include <pthread.h>", *checks, ""]))
    output = source.with_suffix(".o")
    mac.compile(output, ["-c", f"-I{mac.headers}", str(source), "-o", str(output)])


@pytest.mark.parametrize("source", C_HOSTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_c_host_links(apple_silicon, source):
    check_host(apple_silicon, source)


@pytest.mark.parametrize("example", ["c/generate.c", "cpp/stream.cpp"])
def test_example_links_for_either_mac(mac, example):
    check_host(mac, ROOT / "examples" / example)


@pytest.mark.parametrize("source", CPP_HOSTS, ids=lambda path: path.stem)
def test_cpp_host_links(apple_silicon, source):
    """All but C++'s own library, which every Mac has, is found when it is linked."""
    program = check_host(apple_silicon, source)
    open_ends = [name for name, library in program.imported.items() if not library]
    assert open_ends
    assert [name for name in open_ends if not name.startswith(CPP_RUNTIME)] == []


def check_host(cross: Cross, source: Path) -> MachO:
    """Link a host, and read back that it looks for the library beside itself."""
    program = MachO(cross.host(source, f"-I{CSRC}", f"-I{source.parent}"))
    assert program.kind == "program"
    assert program.minimum == MACOS_MINIMUM
    assert program.rpaths == ["@loader_path"]
    used = {name for name in program.imported if name.startswith("cow_mlx_")}
    assert used <= set(FUNCTIONS)
    assert {program.imported[name] for name in used} <= {"@rpath/libcowmlx.1.dylib"}
    assert used or "dlopen" in program.imported  # it looks the functions up
    return program


def test_bridge_takes_python_from_the_process(apple_silicon):
    """An extension module, linked as CPython links them there."""
    source = ROOT / "build/cowmlx/bridge/bridge.c"
    if not source.is_file():
        pytest.skip(f"{source} is missing: run make")
    output = apple_silicon.folder / f"_bridge.cpython-3{sys.version_info.minor}-darwin.so"
    includes = [INCLUDE, CSRC, apple_silicon.headers]
    apple_silicon.compile(output, bridge_arguments(source, output, includes))
    bridge = MachO(output)
    assert "PyInit__bridge" in bridge.exported
    assert bridge.needed == [SYSTEM]
    open_ends = {name for name, library in bridge.imported.items() if not library}
    assert "PyCapsule_New" in open_ends
    assert [name for name in open_ends if not name.startswith(("Py", "_Py"))] == []

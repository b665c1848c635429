"""A bundle runs by itself, wherever it lies, and says what it lacks."""

from __future__ import annotations

import importlib
import json
import lzma
import os
import platform
import re
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.compiler import compile_c, require, run
from support.hosts import linked
from support.paths import LIBRARY as BUILT
from support.paths import ROOT

from cowmlx.commands.bundle import manifest
from cowmlx.commands.bundle.elf import Elf

pytestmark = pytest.mark.xdist_group("bundle")
HOSTS = Path(__file__).parent / "hosts"
DEMO = ROOT / "examples/c/generate.c"
PROMPT = "What is 3 + 4?"
LINUX = sys.platform.startswith("linux")


def answer(output: str) -> str:
    """The demo's text before its speed."""
    text, speed, _ = output.partition("\n\nprompt:")
    assert speed
    return text


@pytest.fixture(scope="module")
def expected(tmp_path_factory, model) -> str:
    """What the demo says with the library where it was built."""
    program = compile_c([DEMO], tmp_path_factory.mktemp("demo") / "demo", *linked(BUILT))
    done = run([program, model, PROMPT])
    assert done.returncode == 0, done.stderr
    return answer(done.stdout)


@pytest.fixture(scope="module")
def demo(linked_with, bundle) -> Path:
    """The demo, linked with the bundle."""
    return linked_with(DEMO, bundle)


def test_runs_where_nothing_of_the_building_machine_is(demo, in_emptied_system, model, expected):
    assert answer(in_emptied_system(demo, model, PROMPT)) == expected


@pytest.mark.skipif(not LINUX, reason="strace is Linux's")
def test_opens_no_file_but_its_own_and_the_systems(demo, bundle, model, tmp_path):
    trace = tmp_path / "trace"
    command = [require("strace"), "-f", "-qq", "-e", "trace=open,openat,execve", "-o", trace]
    done = run([*command, demo, model, PROMPT], env={}, cwd="/")
    if "Operation not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    succeeded = re.compile(r'"((?:[^"\\]|\\.)*)".*\) = \d+$')
    opened = [
        found[1] for line in trace.read_text().splitlines() if (found := succeeded.search(line))
    ]
    texts = {path.encode().decode("unicode_escape").encode("latin-1").decode() for path in opened}
    system = ("/lib/", "/lib64/", "/usr/lib", "/usr/share/locale", "/usr/share/zoneinfo", "/etc/")
    allowed = (*system, "/proc/", "/sys/", "/dev/", str(bundle), str(bundle.resolve()), str(model))
    strange = {path for path in texts if not path.startswith(allowed) and path != str(demo)}
    python = {path for path in texts if path.startswith("/usr/lib") and "python" in path}
    assert any(path.startswith(str(bundle)) for path in texts)
    assert not strange | python


def test_working_folder_brings_no_virtual_environment(demo, model, tmp_path, expected):
    """Python looks for one above the working folder if it does not know where it is itself."""
    (tmp_path / "pyvenv.cfg").write_text("home = /nowhere\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (packages / "poison.pth").write_text("import os; os._exit(66)\n")
    (tmp_path / "work").mkdir()
    done = run([demo, model, PROMPT], env={}, cwd=tmp_path / "work")
    assert done.returncode == 0, done.stderr
    assert answer(done.stdout) == expected


def test_is_not_written_into_by_a_host(demo, bundle, model):
    before = {path: path.stat().st_mtime_ns for path in bundle.rglob("*")}
    assert run([demo, model, PROMPT], env={}, cwd="/").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in bundle.rglob("*")} == before
    assert manifest.verify(bundle) == []


def packed_size(path: Path) -> int:
    return len(lzma.compress(path.read_bytes(), preset=0))


@pytest.mark.skipif(
    not LINUX or platform.machine() != "x86_64", reason="sizes are those of Linux x86_64"
)
def test_is_small(bundle):
    told = manifest.read(bundle)
    if not told["options"]["stripped"]:
        pytest.skip("strip is not installed")
    assert told["bytes"] <= 78 * 2**20
    # Each file by itself: a little more than an archive of all, and less work.
    with ThreadPoolExecutor() as pool:
        packed = sum(pool.map(packed_size, (path for path in bundle.rglob("*") if path.is_file())))
    assert packed <= 25_000_000


@pytest.mark.skipif(not LINUX, reason="other systems have other files")
def test_blas_without_tables_for_unwinding_stays_protected(bundle):
    """A backtrace out of a product ends there, and does not read what is gone."""
    if not manifest.read(bundle)["options"]["stripped"]:
        pytest.skip("strip is not installed")
    (library,) = bundle.rglob("libscipy_openblas.so")
    installed = Path(next(iter(importlib.import_module("scipy_openblas32").__path__)))
    smaller, whole = Elf.read(library), Elf.read(installed / "lib" / library.name)
    assert smaller.loadable
    assert (whole.unwinds, smaller.unwinds) == (True, False)
    assert smaller.protects == whole.protects
    assert smaller.symbols(defined=True) == whole.symbols(defined=True)


@pytest.mark.skipif(not LINUX, reason="other systems have other files")
def test_backtrace_out_of_the_bundles_blas_ends_there(bundle, tmp_path):
    program = compile_c([HOSTS / "backtrace.c"], tmp_path / "backtrace", "-ldl")
    done = run([program, next(bundle.rglob("libscipy_openblas.so"))], env={})
    assert done.returncode == 0, done.stderr
    taken, depth = map(int, done.stdout.split())
    assert taken > 0
    assert depth > 0


def test_manifest_tells_parts_versions_and_licences(bundle):
    told = manifest.read(bundle)
    components = [c for part in told["parts"].values() for c in part["components"]]
    assert {"cowmlx", "Python", "mlx", "mlx-lm", "tokenizers"} <= {c["name"] for c in components}
    for component in components:
        assert component["version"], component
        assert component["licence"] not in ("", "unknown"), component
        assert component["licence_files"], component
        for text in component["licence_files"]:
            assert (bundle / text).stat().st_size > 100, text
    assert sum(part["bytes"] for part in told["parts"].values()) == told["bytes"]
    if LINUX:
        assert re.fullmatch(r"2\.\d+", told["requires"]["versions"]["GLIBC"])


def test_names_no_path_of_the_building_machine(bundle):
    if not manifest.read(bundle)["options"]["stripped"]:
        pytest.skip("strip is not installed")
    needles = [str(ROOT).encode(), os.fsencode(sys.prefix)]
    for path in bundle.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(needle in data for needle in needles), path


def test_every_module_has_its_bytecode(bundle):
    """Hosts write none, so a module without it would be compiled at every start."""
    tag = sys.implementation.cache_tag
    bare = [
        source.relative_to(bundle)
        for source in bundle.rglob("*.py")
        if not (source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc").exists()
    ]
    assert {path.parent.name for path in bare} == {"mlx_lm"}, bare
    assert {path.stem for path in bare} == {"__init__", "_version", "utils"}


def in_bundle(bundle: Path, code: str) -> str:
    """Run code with the modules of a bundle, and nothing but them."""
    search = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    home = bundle / "python"
    env = {"PYTHONHOME": str(home), search: str(home / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
    packages = home / "lib" / Path(sysconfig.get_path("stdlib")).name / "site-packages"
    code = f"import sys; sys.path.append({str(packages)!r})\n{code}"
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    done = run([base, "-s", "-c", code], env=env, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_light_architecture_and_tool_parser_is_importable(bundle):
    """But for those that need packages of ``--full``."""
    failures = json.loads(
        in_bundle(
            bundle,
            "import json, os\n"
            "from cowmlx.networks import light_route as light\n"
            "names = ['models.' + n for n in light._files() if light.is_light(n)]\n"
            "folder = os.path.join(light.package_folder(), 'tool_parsers')\n"
            "names += ['tool_parsers.' + n.split('.')[0] for n in os.listdir(folder)]\n"
            "assert len(names) > 100\n"
            "failed = {}\n"
            "for name in names:\n"
            "    if name.endswith('__'): continue\n"
            "    try: light.import_module(name)\n"
            "    except Exception as error: failed[name] = f'{error} {error.__cause__}'\n"
            "print(json.dumps(failed))\n",
        ).splitlines()[-1]  # one of them prints
    )
    elsewhere = re.compile("numpy|transformers|SystemExit")  # olmo asks for a package and exits
    unexpected = {name: why for name, why in failures.items() if not elsewhere.search(why)}
    assert not unexpected


def test_every_module_of_the_engine_is_importable(bundle):
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "cowmlx").rglob("*.py"))
    ]
    # A rank is a separate process, and a bundle has no executable. ONNX networks need a package
    # that brings numpy, which authors of programs in Python have.
    tools = (
        "cowmlx.__main__",
        "cowmlx.commands",
        "cowmlx.host",
        "cowmlx.models.converting",
        "cowmlx.program.",
        "cowmlx.programs.importing.",
        "cowmlx.ranks",
    )
    engine = [name for name in names if not f"{name}.".startswith(tools)]
    others = ["llguidance.gbnf_to_lark", "jinja2.sandbox", "jinja2.ext", "tokenizers", "resource"]
    in_bundle(bundle, "\n".join(f"import {name}" for name in engine + others))


LINEAR_ALGEBRA = """
import mlx.core as mx
mx.set_default_device(mx.cpu)
mx.random.seed(7)
a = mx.random.normal((12, 12))
s = a @ a.T + 12 * mx.eye(12)
c = a + 1j * mx.random.normal((12, 12))
linalg, cpu = mx.linalg, mx.cpu
results = {
    "inverse": linalg.inv(a, stream=cpu) @ a,
    "triangle": linalg.tri_inv(mx.tril(s), stream=cpu) @ mx.tril(s),
    "cholesky": linalg.cholesky(s, stream=cpu),
    "lu": linalg.solve(s, a, stream=cpu),
    "singular values": linalg.svd(a, compute_uv=False, stream=cpu),
    "symmetric": linalg.eigvalsh(s, stream=cpu),
    "hermitian": linalg.eigvalsh(c @ mx.conjugate(c).T, stream=cpu),
    "general": mx.sort(mx.abs(linalg.eigvals(a, stream=cpu))),
    "complex": mx.sort(mx.abs(linalg.eigvals(c, stream=cpu))),
    "orthogonal": mx.abs(linalg.qr(a, stream=cpu)[1]),
}
import json
print(json.dumps({name: value.flatten().tolist() for name, value in results.items()}))
"""


@pytest.mark.skipif(not LINUX, reason="libcowmlx_lapack is Linux's")
def test_linear_algebra_is_that_of_mlx_itself(bundle):
    """LAPACK comes from OpenBLAS here, and from mlx's reference in the environment."""
    assert not list(bundle.rglob("libgfortran*")), "the reference is still there"
    done = run([sys.executable, "-c", LINEAR_ALGEBRA])
    assert done.returncode == 0, done.stderr
    plain, bundled = json.loads(done.stdout), json.loads(in_bundle(bundle, LINEAR_ALGEBRA))
    assert bundled.keys() == plain.keys()
    for name, values in plain.items():
        assert bundled[name] == pytest.approx(values, rel=1e-3, abs=1e-3), name


PRODUCTS = """
import itertools
import mlx.core as mx
cpu = mx.cpu
def part(shape, seed): return mx.random.normal(shape, key=mx.random.key(seed), stream=cpu)
results = {}
for complex in (False, True):
    a, b = part((7, 5), 0), part((5, 6), 1)
    if complex:
        a, b = a + 1j * part((7, 5), 2), b + 1j * part((5, 6), 3)
    flipped = lambda x: mx.contiguous(x.T, stream=cpu).T
    for left, right in itertools.product((a, flipped(a)), (b, flipped(b))):
        y = mx.matmul(left, right, stream=cpu)
        added = mx.addmm(y, left, right, alpha=0.5, beta=2.0, stream=cpu)
        results[str(len(results))] = mx.abs(mx.concatenate([y, added], stream=cpu), stream=cpu)
import json
print(json.dumps({name: value.flatten().tolist() for name, value in results.items()}))
"""


@pytest.mark.skipif(not LINUX, reason="libcowmlx_plain is Linux's")
def test_products_without_openblas_are_those_of_mlx_itself(bundle):
    """Of a small library of ours here, and of mlx's reference in the environment."""
    reference = next(bundle.rglob("mlx_cpu.libs/libblas*"))
    assert reference.stat().st_size < 100_000, "the reference is still there"
    done = run([sys.executable, "-c", PRODUCTS])
    assert done.returncode == 0, done.stderr
    plain, bundled = json.loads(done.stdout), json.loads(in_bundle(bundle, PRODUCTS))
    assert len(plain) == len(bundled) == 8
    for name, values in plain.items():
        assert bundled[name] == pytest.approx(values, rel=1e-5, abs=1e-5), name


def test_a_bundle_has_the_kernels(bundle):
    done = run([BUILT.parent / "cowmlx-probe", bundle / "lib" / BUILT.name], env={})
    info = json.loads(done.stdout.splitlines()[-1].split("\t")[2])
    assert info["kernels"]["instruction_set"]
    components = manifest.read(bundle)["parts"]["library"]["components"]
    assert "nanobind" in {component["name"] for component in components}


def test_what_was_left_out_is_refused_by_its_name(linked_with, small, model):
    done = run([linked_with(HOSTS / "refusals.c", small), model], env={}, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    generate, grammar, prompt, chat = (line.split("\t") for line in done.stdout.splitlines())
    assert generate == ["OK", ""]
    assert grammar[0] == "EUNSUPPORTED"
    assert "llguidance" in grammar[1]
    for refused in (prompt, chat):
        assert refused[0] == "EUNSUPPORTED"
        assert "jinja2" in refused[1]


def test_blas_that_was_left_out_is_told(small):
    done = run([BUILT.parent / "cowmlx-probe", small / "lib" / BUILT.name], env={})
    info = json.loads(done.stdout.splitlines()[-1].split("\t")[2])
    assert info["blas"] in ("reference", "accelerate")
    assert info["python_home"] == str(small.resolve() / "python")


@pytest.mark.skipif(not LINUX, reason="macOS has Accelerate")
def test_doctor_advises_a_bundle_with_the_blas_that_was_left_out(small):
    arguments = [sys.executable, "-m", "cowmlx", "doctor", "--json", "--library", small]
    found = json.loads(run(arguments, cwd=ROOT).stdout)["findings"]
    blas = next(finding for finding in found if finding["check"] == "BLAS")
    assert "--without openblas" in blas["advice"]

"""cow_mlx.hpp: complete, clean in C++17 and C++20, and it behaves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import tiny_adapters
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import CPP, INCLUDE, LIBRARY, ROOT
from support.sanitizers import SANITIZERS
from support.signatures import FUNCTIONS, STRUCTS

HOST = ROOT / "tests/packaging/hosts/wrapper.cpp"
THROWING = ROOT / "tests/packaging/hosts/throwing.cpp"
PARTS = sorted((CPP / "cow_mlx").glob("*.hpp"))
WRAPPER = "".join(path.read_text() for path in PARTS)
COMPAT = (INCLUDE / "cow_mlx_compat.h").read_text()
STRICT = ["-Wpedantic", "-Wshadow", "-Wconversion", "-I", str(INCLUDE)]


def scenarios(host: Path) -> list[str]:
    return re.findall(r"^    SCENARIO\((\w+)\)", host.read_text(), flags=re.M)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The scenarios, compiled."""
    program = tmp_path_factory.mktemp("wrapper") / "host"
    return compile_c([HOST], program, *linked(LIBRARY), compiler="c++", std="c++17")


@pytest.mark.parametrize("compiler", ["c++", "clang++"])
@pytest.mark.parametrize("std", ["c++17", "c++20"])
def test_compiles_without_a_warning(tmp_path, compiler, std):
    options = ["-fsyntax-only", *STRICT]
    compile_c([HOST], tmp_path / "host.o", *options, compiler=compiler, std=std)


def test_two_sources_of_one_program_may_include_it(tmp_path):
    sources = [tmp_path / "a.cpp", tmp_path / "b.cpp"]
    include = "#include <cow_mlx.hpp>\n"
    sources[0].write_text(f"{include}int main() {{ return cowmlx::abi_version() != 1; }}\n")
    sources[1].write_text(f"{include}{include}void b() {{}}\n")
    options = linked(LIBRARY)
    program = compile_c(sources, tmp_path / "host", *options, compiler="c++", std="c++17")
    assert run([program]).returncode == 0


@pytest.mark.long
def test_each_header_compiles_alone_and_the_one_include_has_them_all(tmp_path):
    for part in PARTS:
        source = tmp_path / f"{part.stem}.cpp"
        source.write_text(f"#include <cow_mlx/{part.name}>\n")
    options = ["-std=c++17", f"-I{INCLUDE}", f"-I{CPP}"]
    sources = sorted(tmp_path.glob("*.cpp"))
    done = run(["c++", *options, "-fsyntax-only", *sources])
    assert (len(sources) > 10, done.returncode, done.stderr) == (True, 0, "")
    (tmp_path / "all.cpp").write_text("#include <cow_mlx.hpp>\n")
    done = run(["c++", *options, "-M", tmp_path / "all.cpp"])
    assert [part.name for part in PARTS if f"cow_mlx/{part.name}" not in done.stdout] == []


def test_every_function_has_its_form():
    functions = {name for name in FUNCTIONS if not re.search(rf"\b{name}\(", COMPAT)}
    used = set(re.findall(r"\b(cow_mlx_\w+)", re.sub(r"/\*.*?\*/", "", WRAPPER, flags=re.S)))
    assert sorted(functions - used) == []


@pytest.mark.parametrize(
    "noun", ["runtime", "model", "context", "embed", "generation", "training", "fit"]
)
def test_every_parameter_can_be_set(noun):
    """As a member of the struct's own, or as one that is named anew."""
    name = f"cow_mlx_{noun}_params"
    parts = re.findall(
        rf"struct {noun.capitalize()}(?:Params|Fields) : (.*?)\n}};", WRAPPER, flags=re.S
    )
    if parts[0].startswith(name):
        return  # all of it is public
    hidden = {"struct_size", "log_user_data", "user_data", "bias_tokens", "bias_values"}
    hidden |= {"bias_count", "stop_count", "train_count", "inputs_count", "validation_count"}
    hidden |= {"worker_count", "dry_sequence_breaker_count", "grammar_trigger_count"}
    hidden |= {"initial_names", "initial_arrays", "initial_count"}  # pairs
    public = "".join(re.split("(?:private|protected):\n", part)[0] for part in parts)
    for field, _ in STRUCTS[name]._fields_:
        assert field in hidden or re.search(rf"\b{field}[;{{]", public), field


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory):
    """An adapter that changes what the model says."""
    return tiny_adapters.make(tmp_path_factory.mktemp("adapter"), model, ["q_proj", "down_proj"])


@pytest.mark.parametrize("scenario", scenarios(HOST))
def test_scenario(host, scenario, model, adapter, environment, tmp_path):
    places = {"MODEL": str(model), "ADAPTER": str(adapter)}
    done = run([host, model, tmp_path, scenario], env={**environment, **places})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def throwing(tmp_path_factory):
    """Callbacks that throw, with a sanitizer that sees what they leave behind."""
    program = tmp_path_factory.mktemp("throwing") / "host"
    options = [*SANITIZERS["address"], "-g", "-O1", *linked(LIBRARY)]
    return compile_c([THROWING], program, *options, compiler="c++", std="c++17")


@pytest.mark.parametrize("scenario", scenarios(THROWING))
def test_a_callback_that_throws(throwing, scenario, model, environment):
    unleaked = {"ASAN_OPTIONS": "detect_leaks=0"}  # Python never frees all that it has
    done = run([throwing, model, scenario], env={**environment, **unleaked})
    assert (done.returncode, done.stderr) == (0, "")

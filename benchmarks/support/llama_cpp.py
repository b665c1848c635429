"""llama.cpp, built from llama-cpp-python's source package for this machine, and models for it.

All of it lies in a folder outside of the tree, and is built once, in some minutes. That takes pip
and its package index, cmake and a C++ compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.support.hosts import Peer, compile_program
from benchmarks.support.models import SHAPES, Shape, is_made, make, vocabulary

NAME, VERSION = "llama-cpp-python", "0.3.36"

# Programs, tests, a server, and downloads at run time.
LEFT_OUT = ("CURL", "BUILD_COMMON", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_TOOLS", "BUILD_SERVER")
TARGETS = ("llama", "mtmd")
# GGML_NATIVE written out: its own flags for the processor would come later, and override these.
NATIVE_WITHOUT_AMX = "-march=native -mno-amx-tile -mno-amx-int8 -mno-amx-bf16"


def cache_folder() -> Path:
    """The default folder of llama.cpp and its models, in the user's caches."""
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "cowmlx" / "peers"


@dataclass(frozen=True)
class LlamaCpp:
    """A built llama.cpp.

    Attributes:
        source: its folder.
        build: the folder that it was built in.
        threads: that it computes with.
    """

    source: Path
    build: Path
    threads: int

    @property
    def gguf_package(self) -> Path:
        """The folder of its package that writes models."""
        return self.source / "gguf-py"

    def compile_host(self, name: str) -> Path:
        """Compile ``hosts/peers/<name>.c``, linked with it, and return the program."""
        libraries = self.build / "bin"
        links = ["-lllama", "-lggml", "-lggml-base", "-lm", f"-Wl,-rpath,{libraries}"]
        parts = ("include", "ggml/include", "tools/mtmd")
        includes = [f"-I{self.source / part}" for part in parts]
        given = [*includes, f"-L{libraries}", "-lmtmd", *links]
        return compile_program(f"peers/{name}", self.build, given)

    def start(self, model: Path, sequences: int, length: int) -> Peer:
        """Start a host with a model; each sequence may have so many tokens."""
        program = self.compile_host("llama_cpp")
        return Peer([program, model, self.threads, sequences, length])


def llama_cpp(folder: Path, threads: int, amx: bool = True) -> LlamaCpp:
    """Return llama.cpp, built in a folder if it is not there.

    Args:
        folder: where it is built.
        threads: that it computes with.
        amx: whether to use AMX where the processor has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"llama_cpp_python-{VERSION}"
    source = package / "vendor" / "llama.cpp"
    if not (source / "CMakeLists.txt").exists():
        _unpack(folder)
    build = folder / ("build" if amx else "build-without-amx")
    finished = build / "finished"
    built = " ".join((VERSION, *TARGETS))
    if not finished.exists() or finished.read_text() != built:
        _build(source, build, amx)
        finished.write_text(built)
    return LlamaCpp(source, build, threads)


def _unpack(folder: Path) -> None:
    package = f"{NAME}=={VERSION}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", NAME]
    command = [*pip, "--disable-pip-version-check", "--dest", str(folder), package]
    subprocess.run(command, check=True)
    (archive,) = folder.glob(f"llama_cpp_python-{VERSION}.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        packed.extractall(folder)


def _build(source: Path, build: Path, amx: bool) -> None:
    if not shutil.which("cmake"):
        raise RuntimeError("llama.cpp is built with cmake, which is not on the PATH")
    options = {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON"}
    options |= {f"LLAMA_{part}": "OFF" for part in LEFT_OUT}
    options |= {"LLAMA_BUILD_MTMD": "ON", "MTMD_VIDEO": "OFF"}
    if amx:
        options["GGML_NATIVE"] = "ON"
    else:
        options["GGML_NATIVE"] = "OFF"
        options |= {f"CMAKE_{language}_FLAGS": NATIVE_WITHOUT_AMX for language in ("C", "CXX")}
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    given = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(
        ["cmake", "-S", str(source), "-B", str(build), *generator, *given],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    command = ["cmake", "--build", str(build), "--target", *TARGETS, "--parallel"]
    subprocess.run([*command, str(os.cpu_count() or 1)], check=True)


@dataclass(frozen=True)
class Format:
    """The storage of the same weights on both sides.

    Attributes:
        bits: of a weight on mlx's side; see `Shape`.
        ggml: the type of the matrices in the GGUF file, as its package calls it.
    """

    bits: int
    ggml: str


# A quantized weight takes 4.5 or 8.5 bits on both sides: mlx has a scale and a bias of 16 bits for
# 64 weights, GGUF a scale of 16 bits for 32.
FORMATS = {
    "fp32": Format(32, "F32"),
    "bf16": Format(16, "BF16"),
    "8bit": Format(8, "Q8_0"),
    "4bit": Format(4, "Q4_0"),
}

# GGUF's names of a layer's weights.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}


@dataclass(frozen=True)
class Twins:
    """Both forms of a model.

    Attributes:
        shape: the model's.
        mlx: a folder.
        gguf: a file.
    """

    shape: Shape
    mlx: Path
    gguf: Path


def twins(model: str, stored: str, folder: Path, gguf_package: Path) -> Twins:
    """Return both forms of one of `SHAPES` in one of `FORMATS`, made on first use.

    Args:
        model: the key of the shape.
        stored: the key of the format.
        folder: of both forms.
        gguf_package: the folder that holds llama.cpp's own `gguf` package.
    """
    shape = SHAPES[model]
    assert isinstance(shape, Shape)
    shape = replace(shape, bits=FORMATS[stored].bits)
    made = Twins(shape, folder / f"{model}-{stored}", folder / f"{model}-{stored}.gguf")
    if not (made.gguf.exists() and is_made(shape, made.mlx)):
        made.gguf.unlink(missing_ok=True)  # it may be of an earlier shape
        # mlx stays out of this process, which starts others.
        command = [sys.executable, "-m", __spec__.name, model, stored, folder, gguf_package]
        subprocess.run([str(part) for part in command], check=True)
    return made


def _make_twins(model: str, stored: str, folder: Path, gguf_package: Path) -> None:
    shape = SHAPES[model]
    assert isinstance(shape, Shape)
    shape = replace(shape, bits=FORMATS[stored].bits)
    place = folder / f"{model}-{stored}"
    place.mkdir(parents=True, exist_ok=True)
    weights = make(shape, place)
    sys.path.insert(0, str(gguf_package))
    unfinished = folder / f"{model}-{stored}.unfinished"
    _write_gguf(unfinished, shape, weights, FORMATS[stored].ggml)
    unfinished.rename(folder / f"{model}-{stored}.gguf")


def _write_gguf(path: Path, shape: Shape, weights: dict[str, Any], ggml: str) -> None:
    """Write the float32 weights as llama.cpp's own converter would."""
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType[ggml]
    config = shape.config()
    writer = gguf.GGUFWriter(path, shape.family)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = list(vocabulary(shape.vocabulary))
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])  # one that no vocabulary knows, not none
    for key, value in weights.items():
        array = np.array(value)
        if shape.family == "llama" and key.endswith(("q_proj.weight", "k_proj.weight")):
            heads = shape.heads if "q_proj" in key else shape.key_heads
            array = _interleaved(array, heads)
        name = _gguf_name(key.removesuffix(".weight")) + ".weight"
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(key: str) -> str:
    if key in OTHERS:
        return OTHERS[key]
    _, _, layer, part = key.split(".", 3)
    return f"blk.{layer}.{LAYER[part]}"


def _interleaved(weight: Any, heads: int) -> Any:
    """Rows of a head in the order of llama.cpp's rotation, whose pairs are neighbours.

    Args:
        weight: (heads * size, hidden), each head's pairs half a head apart.
        heads: how many there are.
    """
    rows, hidden = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, hidden)
    return halves.swapaxes(1, 2).reshape(rows, hidden)


if __name__ == "__main__":
    _make_twins(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))

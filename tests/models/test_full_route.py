"""What only mlx-lm itself can load, and what its import must not leave behind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from loading import auto_tokenizers, reference
from support import tiny_models
from support import tokenizers as kinds
from support.loaded import load

from cowmlx.errors import Unsupported

ROOT = pathlib.Path(__file__).parents[2]

PROGRAM = """
import json, os, resource, socket, sys
import cowmlx.models.registry as registry

def refuse(*args, **kwargs):
    raise AssertionError("the network was touched")

socket.socket.connect = refuse
socket.getaddrinfo = refuse
resource.setrlimit(resource.RLIMIT_NOFILE, (1500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
limits, names = resource.getrlimit(resource.RLIMIT_NOFILE), dict(os.environ)
setter = resource.setrlimit
messages = [{"role": "user", "content": "x"}]
for path, trust in json.loads(sys.argv[1]):
    loading = registry.load(path, adapter_path=None, lazy=False, trust_remote_code=trust)
    while True:
        try:
            next(loading)
        except StopIteration as stop:
            model = stop.value
            break
    import mlx.core as mx
    tokenizer = model.tokenizer
    texts = ["Hello world", " It's  a 🙂 test.\\n"]
    ids = [tokenizer.encode(t, add_special=False, parse_special=False) for t in texts]
    logits = model.network(mx.array([ids[0]]), cache=model.make_cache())
    try:
        rendered = model.chat_template and model.chat_template.render(messages, {})
    except Exception as error:
        rendered = f"{type(error).__name__}: {error}"
    print(json.dumps({
        "route": model.route,
        "rendered": rendered,
        "ids": ids,
        "with_special": tokenizer.encode(texts[0], add_special=True, parse_special=False),
        "texts": [tokenizer.decode(i, skip_special=False) for i in ids],
        "best": mx.argmax(logits[0, -1]).item(),
        "info": model.info(),
        "package": model.package,
    }))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits, "the limit was lowered"
    assert resource.setrlimit is setter
    assert dict(os.environ) == names, set(os.environ) ^ set(names)
if "huggingface_hub.constants" in sys.modules:
    assert not sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE
"""


def hostile(path: pathlib.Path) -> pathlib.Path:
    """Give a folder a chat template that would fill the memory."""
    change(path, "tokenizer_config.json", chat_template="{{ 'a' * 10 ** 9 }}")
    return path


def full(*requests: tuple[pathlib.Path, bool]) -> list[dict[str, object]]:
    """Load folders in a separate process and return what it found."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            json.dumps([[str(path), trust] for path, trust in requests]),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def change(path: pathlib.Path, file: str, **keys: object) -> None:
    settings = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps({**settings, **keys}))


def vocabulary_only(path: pathlib.Path) -> pathlib.Path:
    """Leave only vocab.json and merges.txt of a byte-level tokenizer."""
    state = json.loads((path / "tokenizer.json").read_text())
    (path / "tokenizer.json").unlink()
    (path / "vocab.json").write_text(json.dumps(state["model"]["vocab"]))
    merges = [" ".join(merge) for merge in state["model"]["merges"]]
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges), encoding="utf-8")
    change(path, "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    return path


def awq(path: pathlib.Path) -> pathlib.Path:
    """Store one layer's weight as AWQ packs it: 4 bits, zero points, transposed."""
    import mlx.core as mx

    arrays = dict(mx.load(str(path / "model.safetensors")))
    mx.eval(arrays)
    name = "model.layers.0.self_attn.q_proj"
    del arrays[f"{name}.weight"]
    arrays[f"{name}.qweight"] = mx.random.randint(0, 2**31 - 1, (64, 8)).astype(mx.uint32)
    arrays[f"{name}.qzeros"] = mx.random.randint(0, 2**31 - 1, (2, 8)).astype(mx.uint32)
    arrays[f"{name}.scales"] = mx.random.uniform(0.01, 0.02, (2, 64))
    mx.save_safetensors(str(path / "model.safetensors"), arrays)
    change(
        path,
        "config.json",
        quantization_config={"quant_method": "awq", "bits": 4, "group_size": 32},
    )
    return path


def sentencepiece_only(path: pathlib.Path) -> pathlib.Path:
    """Leave only a SentencePiece model."""
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(kinds.TEXTS[:5]),
        model_writer=model,
        vocab_size=380,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(model.getvalue())
    settings = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def python_only(path: pathlib.Path) -> pathlib.Path:
    """Name a tokenizer that transformers has in Python only."""
    (path / "tokenizer.json").unlink()
    (path / "vocab.txt").write_text("")
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    change(path, "config.json", vocab_size=400)
    return path


def plamo2(path: pathlib.Path) -> pathlib.Path:
    """An architecture that imports mlx-lm by its own name."""
    config = {
        "model_type": "plamo2",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size_per_head": 16,
        "attention_window_size": 8,
        "mamba_d_state": 16,
        "mamba_num_heads": 4,
        "intermediate_size": 96,
        "max_position_embeddings": 512,
        "vocab_size": 380,
    }
    program = """
import json, sys
import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import plamo2
model = plamo2.Model(plamo2.ModelArgs.from_dict(json.loads(sys.argv[2])))
mx.save_safetensors(sys.argv[1] + "/model.safetensors", dict(tree_flatten(model.parameters())))
"""
    subprocess.run([sys.executable, "-c", program, str(path), json.dumps(config)], check=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def own_code(path: pathlib.Path) -> pathlib.Path:
    """Make the architecture a file in the folder."""
    (path / "my_llama.py").write_text("from mlx_lm.models.llama import Model, ModelArgs\n")
    change(path, "config.json", model_file="my_llama.py", model_type="my_llama")
    return path


@pytest.fixture(scope="module")
def found(folder: pathlib.Path) -> dict[str, dict[str, object]]:
    """What the full route makes of several folders, in one process."""
    paths = {
        "vocabulary": hostile(
            vocabulary_only(tiny_models.make(folder / "full-vocabulary", "llama"))
        ),
        "awq": awq(tiny_models.make(folder / "full-awq", "llama")),
        "code": own_code(tiny_models.make(folder / "full-code", "llama")),
        "plain": tiny_models.make(folder / "full-plain", "llama"),
        "sentencepiece": sentencepiece_only(tiny_models.make(folder / "full-spm", "llama")),
        "python": python_only(
            tiny_models.make(folder / "full-python", "llama", config={"vocab_size": 400})
        ),
        "plamo2": plamo2(tiny_models.make(folder / "full-plamo2", "llama")),
    }
    answers = full(*((path, name == "code") for name, path in paths.items()))
    return dict(zip(paths, answers, strict=True))


def test_templates_that_transformers_reads_are_bounded_too(found: dict[str, Any]) -> None:
    assert found["vocabulary"]["route"] == "mlx-lm"
    message = "the chat template makes more than 67108864 bytes (line 1)"
    assert found["vocabulary"]["rendered"] == f"OverBudget: {message}"


def test_each_takes_its_route_and_leaves_the_process_as_it_was(
    found: dict[str, dict[str, object]],
) -> None:
    light = {name for name, answer in found.items() if answer["route"] == "light"}
    assert light == {"plain"}
    assert len(found) == 7


def test_tokenizers_of_transformers_equal_auto_tokenizer(
    folder: pathlib.Path, found: dict[str, dict[str, object]]
) -> None:
    texts = ["Hello world", " It's  a 🙂 test.\n"]
    names = {"sentencepiece": "full-spm", "python": "full-python", "vocabulary": "full-vocabulary"}
    requests = [{"path": str(folder / place), "texts": texts} for place in names.values()]
    for name, expected in zip(names, auto_tokenizers(requests), strict=True):
        assert found[name]["ids"] == expected["without_special"]
        assert found[name]["with_special"] == expected["with_special"][0]
    assert found["python"]["texts"] == texts
    assert found["sentencepiece"]["texts"] == [texts[0], texts[1].lstrip()]


def test_an_architecture_of_the_full_route_equals_plain_mlx_lm(
    folder: pathlib.Path, found: dict[str, dict[str, object]]
) -> None:
    path, ids = folder / "full-plamo2", found["plamo2"]["ids"]
    assert isinstance(ids, list)
    (plain,) = reference([{"path": str(path), "prompt": ids[0], "count": 1}], folder)
    assert found["plamo2"]["best"] == plain["tokens"][0]
    assert found["plamo2"]["package"] == "mlx_lm"


def test_the_tokenizer_without_tokenizer_json_is_the_same(
    found: dict[str, dict[str, object]],
) -> None:
    for key in ("ids", "texts", "best"):
        assert found["vocabulary"][key] == found["plain"][key]


def test_own_code_gives_the_same_network(found: dict[str, dict[str, object]]) -> None:
    assert found["code"]["best"] == found["plain"]["best"]
    assert found["code"]["package"] == "mlx_lm"


def test_awq_is_transformed(found: dict[str, dict[str, object]]) -> None:
    info = found["awq"]["info"]
    assert isinstance(info, dict)
    assert info["quantization"] == {"bits": 4, "group_size": 32}
    plain = found["plain"]["info"]
    assert isinstance(plain, dict)
    assert info["parameters"] == plain["parameters"]


def test_code_is_refused_unless_trusted(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    ran = tmp_path / "ran"
    path = tiny_models.make(tmp_path / "model", "llama")
    (path / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    change(path, "config.json", model_file="evil.py")
    with pytest.raises(Unsupported, match="trust_remote_code"):
        load(path)
    change(path, "config.json", model_file=None, auto_map={"AutoConfig": "evil.C"})
    change(path, "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", "evil.T"]})
    # Its tokenizer.json needs no code.
    assert load(path).route == "light"
    (path / "tokenizer.json").unlink()
    with pytest.raises(Unsupported, match="trust_remote_code"):
        load(path)
    assert not ran.exists()


def test_kinds_of_tokenizers_on_the_full_route(tmp_path: pathlib.Path) -> None:
    """A tokenizer that transformers makes gives the same tokens through the same class."""
    path = tiny_models.make(tmp_path / "model", "llama", tokenizer="spm")
    answers = full((path, False))
    change(path, "tokenizer_config.json", fix_mistral_regex=True)
    slow = full((path, False))
    assert slow[0]["route"] == "mlx-lm"
    for key in ("ids", "with_special", "texts"):
        assert slow[0][key] == answers[0][key]
    assert set(kinds.KINDS) >= {"spm"}

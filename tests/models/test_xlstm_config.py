"""config.json of xLSTM: what each key does, and what it cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from support.paths import ROOT
from support.xlstm_fixtures import FIXTURES, MODELS

from cowmlx.errors import BadFormat
from cowmlx.networks.architectures.xlstm import Model, ModelArgs, create_xlstm_wiring

TINY = {
    "model_type": "xlstm",
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_heads": 2,
}


def shapes(**config):
    """The shapes of a network's parameters, by name."""
    network = Model(ModelArgs.from_dict({**TINY, **config}))
    return {name: array.shape for name, array in tree_flatten(network.parameters())}


def refused(*words, **config):
    with pytest.raises(BadFormat) as error:
        Model(ModelArgs.from_dict({**TINY, **config}))
    for word in words:
        assert str(word) in str(error.value), str(error.value)


# ------------------------------------------------------------------------ The wiring


def test_the_wiring_is_a_chain_of_the_blocks_of_the_paper():
    wiring = create_xlstm_wiring({**TINY, "num_hidden_layers": 3})
    names = ["embedding", "xlstm_0", "xlstm_1", "xlstm_2", "out_norm", "lm_head"]
    assert [spec.name for spec in wiring.blocks] == names
    assert wiring.edges == dict.fromkeys(pairwise(names), 1)
    assert wiring.stages() == [[name] for name in names]
    wiring.validate()


def test_every_number_reaches_its_blocks():
    numbers = {
        "chunk_size": 7,
        "gate_soft_cap": 3.0,
        "output_logit_soft_cap": 4.0,
        "norm_eps": 0.01,
        "eps": 0.02,
        "norm_reduction_force_float32": False,
        "use_bias": True,
        "weight_mode": "fused",
    }
    factors = {"qk_dim_factor": 1.5, "v_dim_factor": 2.0, "ffn_proj_factor": 3.0}
    wiring = create_xlstm_wiring({**TINY, **numbers, **factors, "ffn_round_up_to_multiple_of": 10})
    assert wiring["embedding"].parameters == {"num_embeddings": 50, "dims": 32}
    for index in range(2):
        assert wiring[f"xlstm_{index}"].parameters == {
            "dims": 32,
            "num_heads": 2,
            "qk_dims": 48,
            "v_dims": 64,
            "hidden_dims": 100,
            "chunk_size": 7,
            "gate_soft_cap": 3.0,
            "norm_eps": 0.01,
            "eps": 0.02,
            "norm_float32": False,
            "bias": True,
            "fused": True,
        }
    assert wiring["out_norm"].parameters == {"dims": 32, "eps": 0.01, "float32": False}
    assert wiring["lm_head"].parameters == {
        "dims": 32,
        "num_embeddings": 50,
        "soft_cap": 4.0,
        "embedding": None,
    }


def test_the_wiring_is_json():
    wiring = create_xlstm_wiring(TINY)
    assert type(wiring).from_json(json.loads(json.dumps(wiring.to_json()))) == wiring


def test_the_defaults_are_those_of_hugging_face():
    defaults = ModelArgs()
    assert (defaults.vocab_size, defaults.hidden_size, defaults.num_hidden_layers) == (
        50304,
        4096,
        32,
    )
    assert (defaults.num_heads, defaults.chunk_size) == (8, 64)
    assert (defaults.qk_dim_factor, defaults.v_dim_factor) == (0.5, 1.0)
    assert (defaults.ffn_proj_factor, defaults.ffn_round_up_to_multiple_of) == (2.667, 64)
    assert (defaults.norm_eps, defaults.eps) == (1e-6, 1e-6)
    assert (defaults.gate_soft_cap, defaults.output_logit_soft_cap) == (15, 30)
    assert defaults.norm_reduction_force_float32 and defaults.add_out_norm
    assert not (defaults.use_bias or defaults.tie_word_embeddings)
    assert defaults.weight_mode == "single"


@pytest.mark.parametrize(
    ("dims", "factor", "multiple", "hidden"),
    [(96, 2.667, 64, 256), (4096, 2.667, 64, 10944), (128, 2.667, 64, 384), (64, 2, 64, 128)],
)
def test_the_ffn_is_rounded_up_in_floats(dims, factor, multiple, hidden):
    config = {"ffn_proj_factor": factor, "ffn_round_up_to_multiple_of": multiple}
    args = ModelArgs.from_dict({**TINY, "hidden_size": dims, **config})
    assert args.hidden_dims == hidden


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers"])
def test_older_names_of_keys(key):
    alias = {"hidden_size": "embedding_dim", "num_hidden_layers": "num_blocks"}[key]
    older = {name: value for name, value in TINY.items() if name != key} | {alias: TINY[key]}
    assert ModelArgs.from_dict(older) == ModelArgs.from_dict(TINY)
    assert ModelArgs.from_dict({**TINY, alias: TINY[key]}) == ModelArgs.from_dict(TINY)
    refused(key, alias, TINY[key], TINY[key] * 2, **{alias: TINY[key] * 2})


def test_without_an_out_norm():
    wiring = create_xlstm_wiring({**TINY, "add_out_norm": False})
    assert "out_norm" not in wiring and ("xlstm_1", "lm_head") in wiring.edges
    assert not any("out_norm" in name for name in shapes(add_out_norm=False))


def test_tied_embeddings_have_no_second_matrix():
    assert shapes().keys() - shapes(tie_word_embeddings=True).keys() == {
        "blocks.lm_head.linear.weight"
    }


def test_biases_of_projections():
    more = shapes(use_bias=True).keys() - shapes().keys()
    ends = {name.partition("xlstm_0.")[2] for name in more if "xlstm_0" in name}
    layer = ("q", "k", "v", "ogate_preact", "out_proj")
    ffn = ("proj_up_gate", "proj_up", "proj_down")
    assert ends == {f"mlstm_layer.{name}.bias" for name in layer} | {
        f"ffn.{name}.bias" for name in ffn
    }


def test_fused_matrices_stack_rows():
    fused, single = shapes(weight_mode="fused"), shapes()
    prefix = "blocks.xlstm_0."
    assert fused[f"{prefix}mlstm_layer.qkv_opreact.weight"] == (16 + 16 + 32 + 32, 32)
    assert fused[f"{prefix}mlstm_layer.ifgate_preact.weight"] == (4, 32)
    assert fused[f"{prefix}mlstm_layer.ifgate_preact.bias"] == (4,)
    up = single[f"{prefix}ffn.proj_up.weight"][0]
    assert fused[f"{prefix}ffn.proj_up_gate_z.weight"] == (2 * up, 32)


@pytest.mark.parametrize("key", ["gate_soft_cap", "output_logit_soft_cap"])
def test_a_cap_that_is_null_is_none(key):
    """The other values are those of the fixtures, in which both caps matter."""
    network = Model(ModelArgs.from_dict({**TINY, key: None}))
    loud = [(name, array * 100) for name, array in tree_flatten(network.parameters())]
    network.load_weights(loud)
    capped = Model(ModelArgs.from_dict({**TINY, key: 0.5}))
    capped.load_weights(loud)
    ids = mx.array([[3, 4, 5]])
    assert not mx.allclose(network(ids), capped(ids))
    if key == "output_logit_soft_cap":
        assert mx.abs(capped(ids)).max().item() <= 0.5 < mx.abs(network(ids)).max().item()


# ---------------------------------------------------------------------- Bad values


@pytest.mark.parametrize("value", [0, -1, 2.5, "4", None, True, [4], float("nan")])
@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_heads",
        "chunk_size",
        "ffn_round_up_to_multiple_of",
    ],
)
def test_sizes_that_cannot_be(key, value):
    refused(repr(value)[:20], **{key: value})


@pytest.mark.parametrize(
    "value", [0, -1, "x", None, float("nan"), float("inf"), [1], pytest.param(10**400, id="huge")]
)
@pytest.mark.parametrize(
    "key", ["qk_dim_factor", "v_dim_factor", "ffn_proj_factor", "norm_eps", "eps"]
)
def test_numbers_that_cannot_be(key, value):
    refused(key, **{key: value})


@pytest.mark.parametrize(
    "value", [0, -15.0, "x", float("nan"), float("inf"), True, pytest.param(10**400, id="huge")]
)
@pytest.mark.parametrize("key", ["gate_soft_cap", "output_logit_soft_cap"])
def test_caps_that_cannot_be(key, value):
    refused("soft_cap", **{key: value})


@pytest.mark.parametrize("value", ["yes", 1, 0, None, [], "false"])
@pytest.mark.parametrize(
    "key", ["add_out_norm", "tie_word_embeddings", "use_bias", "norm_reduction_force_float32"]
)
def test_switches_that_cannot_be(key, value):
    refused(repr(value), **{key: value})


@pytest.mark.parametrize("value", ["x", "", None, 1, ["single"]])
def test_weight_modes_that_cannot_be(value):
    refused("weight_mode", repr(value), "single", "fused", weight_mode=value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_heads": 3}, ["num_heads 3"]),
        ({"num_heads": 32}, ["qk_dims 16", "num_heads 32"]),
        ({"qk_dim_factor": 1e-5}, ["qk_dims"]),
        ({"v_dim_factor": 0.3}, ["v_dims 9", "num_heads 2"]),
    ],
)
def test_heads_that_do_not_divide(config, words):
    refused("xlstm_0", *words, **config)


# -------------------------------------------------------------------------- Weights


@pytest.mark.parametrize("model", MODELS)
def test_weights_of_hugging_face_have_a_place_each(model):
    config = json.loads((FIXTURES / model / "config.json").read_text())
    stored = mx.load(str(FIXTURES / model / "model.safetensors"))
    network = Model(ModelArgs.from_dict(config))
    placed = network.sanitize(stored)
    expected = {name: array.shape for name, array in tree_flatten(network.parameters())}
    assert {name: array.shape for name, array in placed.items()} == expected


def test_the_embedding_under_both_of_its_names_is_refused():
    network = Model(ModelArgs.from_dict(TINY))
    table = mx.zeros((50, 32))
    with pytest.raises(BadFormat, match="both of its names"):
        network.sanitize({"backbone.embeddings.weight": table, "embedding.weight": table})


# The names and shapes of a 7B checkpoint, of which nothing is allocated.
SEVEN_B = """
import json, resource, sys
import mlx.core as mx
from mlx.utils import tree_flatten
from cowmlx.networks.architectures.xlstm import Model, ModelArgs
from cowmlx.folders import weights

def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not ru_maxrss: a child starts with its parent's.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024

before = peak()
network = Model(ModelArgs.from_dict({"model_type": "xlstm"}))
stored = {name: mx.zeros(shape, mx.bfloat16) for name, shape in json.load(sys.stdin).items()}
weights.assign(network, network.sanitize(stored), "here")
print(json.dumps({
    "parameters": weights.count(network),
    "flat": sum(array.size for _, array in tree_flatten(network.parameters())),
    "grown": peak() - before,
    "allocated": mx.get_peak_memory(),
}))
"""


def seven_b():
    """What a 7B checkpoint holds: shapes by name, as Hugging Face has them."""
    d, qk, v, heads, ffn = 4096, 2048, 4096, 8, 10944
    block = {
        "norm_mlstm.weight": (d,),
        "norm_ffn.weight": (d,),
        "mlstm_layer.q.weight": (qk, d),
        "mlstm_layer.k.weight": (qk, d),
        "mlstm_layer.v.weight": (v, d),
        "mlstm_layer.ogate_preact.weight": (v, d),
        "mlstm_layer.out_proj.weight": (d, v),
        "mlstm_layer.igate_preact.weight": (heads, d),
        "mlstm_layer.igate_preact.bias": (heads,),
        "mlstm_layer.fgate_preact.weight": (heads, d),
        "mlstm_layer.fgate_preact.bias": (heads,),
        "mlstm_layer.multihead_norm.weight": (heads, v // heads),
        "ffn.proj_up_gate.weight": (ffn, d),
        "ffn.proj_up.weight": (ffn, d),
        "ffn.proj_down.weight": (d, ffn),
    }
    return {
        "backbone.embeddings.weight": (50304, d),
        **{
            f"backbone.blocks.{index}.{name}": shape
            for index in range(32)
            for name, shape in block.items()
        },
        "backbone.out_norm.weight": (d,),
        "lm_head.weight": (50304, d),
    }


def test_xlstm_7b_has_its_parameters_and_takes_no_memory_before_they_are_read():
    done = subprocess.run(
        [sys.executable, "-c", SEVEN_B],
        input=json.dumps(seven_b()),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["parameters"] == found["flat"] == 6_865_424_896
    assert found["grown"] < 300e6
    assert found["allocated"] < 1e6

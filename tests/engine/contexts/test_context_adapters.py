"""Contexts of one model use different adapters, and share its weights."""

from __future__ import annotations

import json
import math
from ctypes import c_float
from pathlib import Path

import mlx.core as mx
import pytest
from driver import ENDLESS, delivered, greedy, opened, prompt
from support import reference, tiny_adapters, tiny_models
from support.library import StatusError
from support.rounding import assert_as_exact
from support.signatures import (
    ECANCELED,
    EFORMAT,
    EHANDLE,
    EINVAL,
    ENOENT,
    ESTATE,
    EUNSUPPORTED,
)
from support.threads import together

from cowmlx.accelerate import kernels

COUNT = 16
PROMPT = prompt(9)
SLACK = 16384  # bytes of constants and scalars; the smallest model here has six times as many
ATTENTION = ["self_attn.q_proj", "self_attn.v_proj"]
FOUR_BITS = {"group_size": 32, "bits": 4}

# By name: the family, its quantization, the kind of adapter, the layers.
CASES = {
    "lora": ("llama", None, "lora", ATTENTION),
    "other": ("llama", None, "lora", ["mlp.down_proj", "lm_head"]),
    "dora": ("llama", None, "dora", ATTENTION),
    "lora on 4 bits": ("llama", FOUR_BITS, "lora", ATTENTION),
    "dora on 4 bits": ("llama", FOUR_BITS, "dora", ATTENTION),
    "experts": ("qwen3_moe", None, "lora", ["switch_mlp.down_proj", "o_proj"]),
    "tied embedding": ("qwen3", None, "lora", ["embed_tokens"]),
    "recurrence": ("mamba2", None, "lora", ["mixer.in_proj"]),
}


class Places:
    """The folders of models and adapters; made once."""

    def __init__(self, folder: Path):
        self.folder = folder

    def model(self, case: str) -> Path:
        family, quantize, _, _ = CASES[case]
        place = self.folder / f"{family}{'-4' if quantize else ''}"
        return place if place.exists() else tiny_models.make(place, family, quantize=quantize)

    def adapter(self, case: str, seed: int = 0) -> Path:
        _, _, kind, keys = CASES[case]
        place = self.folder / f"{case}-{seed}"
        if place.exists():
            return place
        return tiny_adapters.make(place, self.model(case), keys, kind=kind, seed=seed)


@pytest.fixture(scope="module")
def places(once) -> Places:
    def fill(path: Path) -> None:
        places = Places(path)
        tasks = [
            {
                "folder": str(places.model(case)),
                "adapter": str(places.adapter(case)),
                "prompt": PROMPT,
                "max_tokens": COUNT,
            }
            for case in CASES
        ]
        tasks += [{**task, "adapter": None} for task in tasks]
        tasks += [{**task, "logits": True} for task in tasks[len(CASES) :]]
        (path / "answers.json").write_text(json.dumps(reference.run(tasks, path)))

    return Places(once("adapters", fill))


def answers_of(places):
    answers = json.loads((places.folder / "answers.json").read_text())
    assert [answer["error"] for answer in answers if "error" in answer] == []
    return answers


@pytest.fixture(scope="module")
def expected(places):
    """mlx-lm's tokens with a case's adapter, and without."""
    tokens = [answer["tokens"] for answer in answers_of(places)[: 2 * len(CASES)]]
    pairs = zip(tokens[: len(CASES)], tokens[len(CASES) :], strict=True)
    return dict(zip(CASES, pairs, strict=True))


@pytest.fixture(scope="module")
def plain_logits(places):
    """mlx-lm's logits without an adapter, and how much they are more than those of float64."""
    answers = answers_of(places)[2 * len(CASES) :]
    pairs = [(answer["logits"], answer["errors"]) for answer in answers]
    return dict(zip(CASES, pairs, strict=True))


@pytest.fixture
def loaded(lib, places):
    """Loads the model of a case, and adapters; what is left open is closed afterwards."""
    models, adapters = {}, []

    class Loaded:
        def model(self, case="lora"):
            path = places.model(case)
            if path not in models:
                models[path] = lib.load(path)
            return models[path]

        def adapter(self, case="lora", seed=0, scale=1.0):
            adapters.append(lib.load_adapter(self.model(case), places.adapter(case, seed), scale))
            return adapters[-1]

    yield Loaded()
    for adapter in adapters:
        lib.c.cow_mlx_adapter_free(adapter)
    for model in models.values():
        lib.c.cow_mlx_model_free(model)


def logits(lib, context):
    return lib._fill(c_float, lib.c.cow_mlx_context_logits, context)


def logits_after(lib, context, tokens=PROMPT):
    lib.begin(context, tokens, max_tokens=0)
    lib.drain(context)
    return logits(lib, context)


def active(lib):
    lib.trim_memory()
    return lib.info()["memory"]["active"]


def size(path: Path) -> int:
    return sum(array.nbytes for array in mx.load(str(path)).values())


# ------------------------------------------------------------------ What it gives


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_mlx_lm(lib, loaded, expected, open_context, case):
    adapted, plain = expected[case]
    context = open_context(loaded.model(case))
    lib.set_adapter(context, loaded.adapter(case))
    assert greedy(lib, context, PROMPT) == adapted != plain
    lib.set_adapter(context, 0)
    assert greedy(lib, context, PROMPT) == plain


@pytest.mark.parametrize("case", ["lora", "dora", "lora on 4 bits"])
def test_logits_are_those_of_a_model_loaded_with_it(lib, loaded, places, open_context, case):
    fixed = lib.load(places.model(case), adapter_path=places.adapter(case))
    with opened(lib, fixed) as other:
        same = logits_after(lib, other)
    lib.free_model(fixed)
    context = open_context(loaded.model(case))
    lib.set_adapter(context, loaded.adapter(case))
    assert logits_after(lib, context) == same


@pytest.mark.parametrize("scale", [0.5, 2.0, -1.0])
def test_scale_multiplies_the_change_of_the_weights(
    lib, loaded, places, open_context, tmp_path, scale
):
    adapter = places.adapter("lora")
    path = tiny_adapters.merged(tmp_path, places.model("lora"), adapter, scale)
    merged = lib.load(path)
    with opened(lib, merged) as other:
        wanted = logits_after(lib, other)
    lib.free_model(merged)
    context = open_context(loaded.model())
    lib.set_adapter(context, loaded.adapter(scale=scale))
    assert logits_after(lib, context) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.plain
@pytest.mark.parametrize("case", ["lora", "lora on 4 bits", "experts", "tied embedding"])
def test_scale_0_gives_the_logits_of_the_base(lib, loaded, plain_logits, open_context, case):
    context = open_context(loaded.model(case))
    own = logits_after(lib, context)
    lib.set_adapter(context, loaded.adapter(case, scale=0.0))
    without_change = logits_after(lib, context)
    if kernels.available():  # a layer with an adapter is not fused: the sums have another order
        assert_as_exact(without_change, *plain_logits[case])
        assert_as_exact(own, *plain_logits[case])
    else:
        assert without_change == own


def test_two_adapters_and_none_at_once(lib, loaded, expected, open_context):
    adapters = [loaded.adapter("lora"), loaded.adapter("other"), 0]
    wanted = [expected["lora"][0], expected["other"][0], expected["lora"][1]]
    contexts = [open_context(loaded.model()) for _ in adapters]
    got = [[] for _ in adapters]
    for context, adapter in zip(contexts, adapters, strict=True):
        lib.set_adapter(context, adapter)

    def work(number):
        for _ in range(3):
            got[number].append(greedy(lib, contexts[number], PROMPT))

    together(*(lambda number=number: work(number) for number in range(3)))
    assert got == [[tokens] * 3 for tokens in wanted]


def test_a_full_adapter_replaces_weights_of_its_context_alone(
    lib, loaded, places, expected, open_context, tmp_path
):
    (tmp_path / "adapter_config.json").write_text('{"fine_tune_type": "full"}')
    weights = mx.load(str(places.model("lora") / "model.safetensors"))
    zeros = {"lm_head.weight": mx.zeros_like(weights["lm_head.weight"])}
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), zeros)
    context, other = open_context(loaded.model()), open_context(loaded.model())
    adapter = lib.load_adapter(loaded.model(), tmp_path)
    lib.set_adapter(context, adapter)
    lib.free_adapter(adapter)
    assert not any(logits_after(lib, context))
    assert greedy(lib, other, PROMPT) == expected["lora"][1]


# ------------------------------------------------------------------------ Memory


@pytest.mark.parametrize("case", ["lora", "dora", "lora on 4 bits"])
@pytest.mark.parametrize("lazy", [False, True])
def test_the_weights_of_the_base_are_not_copied(lib, places, case, lazy):
    model = lib.load(places.model(case), lazy=lazy)
    with opened(lib, model) as context:
        if not lazy:
            greedy(lib, context, PROMPT, 1)
        before = active(lib)
        adapter = lib.load_adapter(model, places.adapter(case))
        # Held as it is, and in blocks of 16 rows, as kernels compute with it.
        added = 4 * size(places.adapter(case) / "adapters.safetensors")
        assert active(lib) - before <= added + SLACK
        lib.set_adapter(context, adapter)
        greedy(lib, context, PROMPT, 1)
        lib.set_adapter(context, 0)
        greedy(lib, context, PROMPT, 1)
        lib.reset(context)
        weights = size(places.model(case) / "model.safetensors") if lazy else 0
        assert active(lib) - before <= weights + added + SLACK
    lib.free_adapter(adapter)
    lib.free_model(model)


def test_a_freed_adapter_gives_its_memory_back(lib, loaded, places):
    def come_and_go():
        lib.free_adapter(lib.load_adapter(loaded.model(), places.adapter("lora")))
        return active(lib)

    assert come_and_go() == come_and_go()


# ---------------------------------------------------------------- Setting it


def test_a_change_forgets_the_tokens_and_the_same_again_does_not(lib, loaded, open_context):
    context = open_context(loaded.model())
    first, second = loaded.adapter("lora"), loaded.adapter("other")
    lib.set_adapter(context, 0)
    greedy(lib, context, PROMPT)
    held = lib.tokens(context)
    lib.set_adapter(context, 0)
    assert lib.tokens(context) == held
    lib.set_adapter(context, first)
    assert lib.tokens(context) == []
    greedy(lib, context, PROMPT)
    held = lib.tokens(context)
    lib.set_adapter(context, first)
    assert lib.tokens(context) == held
    lib.set_adapter(context, second)
    assert lib.tokens(context) == []


def test_a_change_ends_the_generation(lib, loaded, open_context):
    context = open_context(loaded.model())
    lib.begin(context, PROMPT, max_tokens=50)
    lib.next(context)
    lib.set_adapter(context, loaded.adapter())
    with pytest.raises(StatusError) as ended:
        lib.next(context)
    assert ended.value.status == ESTATE


def test_info_tells_the_adapter(lib, loaded, open_context):
    context = open_context(loaded.model())
    assert lib.info(context)["adapter"] is None
    adapter = loaded.adapter()
    lib.set_adapter(context, adapter)
    assert lib.info(context)["adapter"] == adapter
    lib.reset(context)
    assert lib.info(context)["adapter"] == adapter
    lib.free_adapter(adapter)
    assert lib.info(context)["adapter"] == adapter, "it is in use still"
    lib.set_adapter(context, 0)
    assert lib.info(context)["adapter"] is None


def test_no_adapter_is_set_while_a_call_runs(lib, loaded, open_context):
    context, adapter = open_context(loaded.model()), loaded.adapter()
    statuses = []

    def on_text(text):
        with pytest.raises(StatusError) as busy:
            lib.set_adapter(context, adapter)
        statuses.append(busy.value.status)
        return False

    with pytest.raises(StatusError) as refused:
        lib.generate(context, PROMPT, on_text, max_tokens=ENDLESS)
    assert refused.value.status == ECANCELED
    assert statuses == [ESTATE]
    assert lib.info(context)["adapter"] is None


def test_another_models_adapter_is_refused(lib, loaded, expected, open_context):
    context = open_context(loaded.model("tied embedding"))
    greedy(lib, context, PROMPT)
    held = lib.tokens(context)
    with pytest.raises(StatusError, match="another model") as refused:
        lib.set_adapter(context, loaded.adapter("lora"))
    assert refused.value.status == EINVAL
    assert lib.tokens(context) == held
    assert lib.info(context)["adapter"] is None


def test_the_same_folder_loaded_twice_is_two_models(lib, loaded, places, open_context):
    again = lib.load(places.model("lora"))
    with opened(lib, again) as context:
        with pytest.raises(StatusError) as refused:
            lib.set_adapter(context, loaded.adapter("lora"))
        assert refused.value.status == EINVAL
    lib.free_model(again)


# ----------------------------------------------------------------- Living on


def test_a_freed_adapter_lives_on_in_its_contexts(lib, loaded, expected, open_context):
    context, other = open_context(loaded.model()), open_context(loaded.model())
    adapter = loaded.adapter()
    lib.set_adapter(context, adapter)
    lib.free_adapter(adapter)
    assert greedy(lib, context, PROMPT) == expected["lora"][0]
    with pytest.raises(StatusError) as unknown:
        lib.set_adapter(other, adapter)
    assert unknown.value.status == EHANDLE
    lib.set_adapter(context, 0)
    assert greedy(lib, context, PROMPT) == expected["lora"][1]


def test_an_adapter_outlives_its_models_handle(lib, loaded, expected, open_context):
    context, adapter = open_context(loaded.model()), loaded.adapter()
    lib.free_model(loaded.model())
    lib.set_adapter(context, adapter)
    assert greedy(lib, context, PROMPT) == expected["lora"][0]
    lib.set_adapter(context, 0)
    assert greedy(lib, context, PROMPT) == expected["lora"][1]


@pytest.mark.parametrize("order", ["mac", "mca", "amc", "acm", "cma", "cam"])
def test_everything_is_given_back_in_any_order(lib, places, order):
    def come_and_go():
        model = lib.load(places.model("lora"))
        adapter = lib.load_adapter(model, places.adapter("lora"))
        context = lib.context(model)
        lib.set_adapter(context, adapter)
        greedy(lib, context, PROMPT, 2)
        free = {
            "m": lambda: lib.free_model(model),
            "a": lambda: lib.free_adapter(adapter),
            "c": lambda: lib.free(context),
        }
        for what in order:
            free[what]()
        return active(lib)

    come_and_go()  # modules of mlx-lm make constants when they are first used
    assert come_and_go() == come_and_go()


# ------------------------------------------------------- Forks and what is shared


def test_a_fork_keeps_the_adapter(lib, loaded, expected, open_context):
    context, adapter = open_context(loaded.model()), loaded.adapter()
    lib.set_adapter(context, adapter)
    lib.begin(context, PROMPT, max_tokens=0)
    lib.drain(context)
    fork = lib.fork(context)
    try:
        assert lib.info(fork)["adapter"] == adapter
        assert lib.tokens(fork) == lib.tokens(context) == PROMPT
        assert greedy(lib, fork, PROMPT) == expected["lora"][0]
        lib.set_adapter(fork, 0)
        assert greedy(lib, fork, PROMPT) == expected["lora"][1]
        assert greedy(lib, context, PROMPT) == expected["lora"][0]
    finally:
        lib.free(fork)


def test_a_checkpoint_is_of_the_adapter_that_it_was_made_with(lib, loaded, open_context):
    context, adapter = open_context(loaded.model()), loaded.adapter()
    lib.set_adapter(context, adapter)
    greedy(lib, context, PROMPT)
    held, checkpoint = lib.tokens(context), lib.checkpoint(context)
    lib.set_adapter(context, 0)
    with pytest.raises(StatusError, match="adapter") as changed:
        lib.rewind(context, checkpoint)
    assert changed.value.status == ESTATE
    lib.set_adapter(context, adapter)
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == held


def test_processed_prompts_are_shared_with_equal_weights_only(lib, loaded, open_context):
    long, wanted = prompt(80), {}
    adapters = [loaded.adapter("lora"), 0, loaded.adapter("other")]
    with opened(lib, loaded.model()) as alone:
        for adapter in adapters:
            lib.set_adapter(alone, adapter)
            wanted[adapter] = greedy(lib, alone, long)

    def shared(adapter):
        context = open_context(loaded.model(), share_prefix=True)
        lib.set_adapter(context, adapter)
        assert greedy(lib, context, long) == wanted[adapter]
        return lib.info(context)["shared"]

    assert [shared(adapter) for adapter in adapters] == [0, 0, 0]
    assert [shared(adapter) for adapter in adapters] == [len(long) - 1] * 3


# ------------------------------------------------------------------ What is refused


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
def test_a_scale_is_finite(lib, loaded, places, scale):
    with pytest.raises(StatusError, match="scale") as refused:
        lib.load_adapter(loaded.model(), places.adapter("lora"), scale)
    assert refused.value.status == EINVAL


@pytest.mark.parametrize("scale", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["dora", "full"])
def test_what_cannot_be_scaled_says_so(lib, loaded, places, tmp_path, kind, scale):
    path = places.adapter("dora")
    if kind == "full":
        path = tmp_path
        (path / "adapter_config.json").write_text('{"fine_tune_type": "full"}')
        mx.save_safetensors(str(path / "adapters.safetensors"), {"model.norm.weight": mx.ones(64)})
    with pytest.raises(StatusError, match=kind) as refused:
        lib.load_adapter(loaded.model(), path, scale)
    assert refused.value.status == EUNSUPPORTED


def test_a_model_loaded_with_an_adapter_takes_no_other(lib, places):
    model = lib.load(places.model("lora"), adapter_path=places.adapter("lora"))
    with pytest.raises(StatusError, match="adapter_path") as refused:
        lib.load_adapter(model, places.adapter("other"))
    assert refused.value.status == EUNSUPPORTED
    lib.free_model(model)


def test_a_refused_adapter_leaves_nothing_behind(lib, loaded, places, open_context, expected):
    wrong = places.adapter("recurrence")
    context = open_context(loaded.model())
    greedy(lib, context, PROMPT)
    handles, before = lib.info()["handles"], active(lib)
    with pytest.raises(StatusError) as refused:
        lib.load_adapter(loaded.model(), wrong)
    assert refused.value.status == EFORMAT
    assert lib.info()["handles"] == handles
    assert active(lib) <= before
    assert greedy(lib, context, PROMPT) == expected["lora"][1]


def test_an_adapter_of_another_shape_is_named(lib, loaded, places, tmp_path):
    wide = tiny_models.make(tmp_path / "wide", "llama", config={"hidden_size": 96})
    adapter = tiny_adapters.make(tmp_path / "adapter", wide, ATTENTION)
    with pytest.raises(StatusError, match="lora_a") as refused:
        lib.load_adapter(loaded.model(), adapter)
    assert refused.value.status == EFORMAT


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"scale": "much"}, "scale"),
        ({"keys": "q_proj"}, "keys"),
        ({"dropout": None}, "dropout"),
        ({"dropout": 1}, "lora_parameters.dropout is 1, not within 0 to 1"),
        ({"rank": -1}, "lora_parameters.rank is -1, not within 1 to 65536"),
        ({"rank": 2**40}, "lora_parameters.rank is 1099511627776, not within"),
    ],
)
def test_a_malformed_config_is_named(lib, loaded, places, tmp_path, change, word):
    adapter = tiny_adapters.make(tmp_path, places.model("lora"), ATTENTION)
    file = adapter / "adapter_config.json"
    settings = json.loads(file.read_text())
    settings["lora_parameters"] |= change
    file.write_text(json.dumps(settings))
    with pytest.raises(StatusError, match=word) as refused:
        lib.load_adapter(loaded.model(), adapter)
    assert refused.value.status == EFORMAT


def test_a_missing_folder(lib, loaded, tmp_path):
    with pytest.raises(StatusError) as refused:
        lib.load_adapter(loaded.model(), tmp_path / "nowhere")
    assert refused.value.status == ENOENT


def test_handles_of_other_kinds_are_no_adapters(lib, loaded, places, open_context):
    context, adapter = open_context(loaded.model()), loaded.adapter()
    for call in (
        lambda: lib.load_adapter(context, places.adapter("lora")),
        lambda: lib.set_adapter(context, loaded.model()),
        lambda: lib.set_adapter(context, -1),
        lambda: lib.set_adapter(adapter, adapter),
        lambda: lib.free_adapter(loaded.model()),
    ):
        with pytest.raises(StatusError) as unknown:
            call()
        assert unknown.value.status == EHANDLE


def test_an_adapter_is_loaded_while_others_generate(lib, loaded, places, expected, open_context):
    model = loaded.model()
    contexts = [open_context(model) for _ in range(2)]
    got = []

    def load():
        for seed in range(3):
            lib.free_adapter(lib.load_adapter(model, places.adapter("lora", seed)))

    def generate(context):
        lib.begin(context, PROMPT, max_tokens=COUNT)
        got.append(delivered(lib.drain(context)))

    together(load, *(lambda context=context: generate(context) for context in contexts))
    assert got == [expected["lora"][1]] * 2

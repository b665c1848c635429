"""The library on Linux for ARM: compiled by Debian's compiler for it, run in an emulator."""

from __future__ import annotations

import json
import re

import pytest
from arm_root import ArmRoot, built, extracted
from support.paths import CALF, ROOT

pytestmark = [pytest.mark.xdist_group("on-arm"), pytest.mark.long]

TESTS = {
    "kernels": ["kernels/test_product.py", "kernels/test_rope.py", "kernels/test_select.py"],
    "abi": ["abi/test_handles.py", "abi/test_buffers.py", "abi/test_null.py"],
    "programs": ["c_programs/test_run.py"],
    "training": ["training/test_optimizers.py"],
    "sampling": ["engine/sampling/test_sampling.py", "engine/sampling/test_repeats.py"],
}
# These compare with plain mlx-lm, whose requirements are not in the root.
NOT_THERE = "not mlx_lm and not drawn_from_these_probabilities"
PROMPT = "Tell me a story about a fox."


@pytest.fixture(scope="module")
def arm(tmp_path_factory) -> ArmRoot:
    """The root, with the library."""
    folder = extracted()
    if not (ROOT / "build/cowmlx/bridge/bridge.c").is_file():
        pytest.skip("build/cowmlx/bridge/bridge.c is missing: run make")
    return built(folder, tmp_path_factory.mktemp("tree"))


def test_the_demo_tells_the_story_that_it_tells_here(arm, lib, calf):
    done = arm.run("/tree/generate", "/tree/models/calf", PROMPT, timeout=120)
    assert done.returncode == 0, done.stderr
    context = lib.context(calf)
    tokens = lib.chat_prompt(calf, [{"role": "user", "content": PROMPT}])
    here = lib.generate(context, tokens).text
    lib.free(context)
    assert here.strip()
    assert here.strip() in done.stdout


def test_the_doctor_is_content(arm):
    doctor = ["python3", "-m", "cowmlx", "doctor", "--json", f"/tree/models/{CALF.name}"]
    done = arm.run(*doctor, timeout=240)
    findings = {found["check"]: found for found in json.loads(done.stdout)["findings"]}
    assert "problem" not in {found["state"] for found in findings.values()}, done.stdout
    assert "neon" in findings["kernels"]["text"]
    assert findings["BLAS"]["text"] == "openblas"


@pytest.mark.parametrize("subject", TESTS)
def test_tests_pass(arm, subject):
    paths = [f"tests/{path}" for path in TESTS[subject]]
    pytest_here = "python3 -m pytest -q -p no:cacheprovider -m 'not long' -o addopts="
    command = f"cd /tree && {pytest_here} -k '{NOT_THERE}' {' '.join(paths)}"
    done = arm.run("sh", "-c", command, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 10, done.stdout[-1000:]

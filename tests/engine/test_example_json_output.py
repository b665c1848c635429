"""The example of constrained output prints what its schema accepts."""

from __future__ import annotations

import json
import re

import jsonschema
from support.compiler import compile_c, run
from support.paths import CALF, LIBRARY, ROOT

SOURCE = ROOT / "examples/c/json_output.c"


def form() -> dict:
    """The schema that stands in the source."""
    literal = SOURCE.read_text().split("FORM =", 1)[1].split(";", 1)[0]
    return json.loads(
        "".join(json.loads(part) for part in re.findall(r'"(?:\\.|[^"\\])*"', literal))
    )


def test_its_output_is_json_of_its_form(calf, tmp_path):
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    program = compile_c([SOURCE], tmp_path / "json_output", str(LIBRARY), rpath)
    done = run([program, CALF])
    assert (done.returncode, done.stderr) == (0, "")
    decoder, text, found = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    assert len(found) == 2
    for value in found:
        jsonschema.validate(value, form())
    assert [value["sound"] for value in found] == ["moo", "hoot"]

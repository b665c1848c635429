"""The example of ranking prints documents in the order of their scores."""

from __future__ import annotations

from support.compiler import compile_c, run
from support.paths import CALF, LIBRARY, ROOT

DOCUMENTS = ["a red fox", "an owl", "a cow"]


def test_documents_come_in_the_order_of_their_scores(lib, calf, tmp_path, monkeypatch):
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    program = compile_c([ROOT / "examples/c/rerank.c"], tmp_path / "rerank", str(LIBRARY), rpath)
    asked = {"prompt": "{query}\n{document}", "yes": "a", "no": "b"}
    for name, value in asked.items():
        monkeypatch.setenv(f"RERANK_{name.upper()}", value)
    done = run([program, CALF, "Which one is red?", *DOCUMENTS])
    assert (done.returncode, done.stderr) == (0, "")
    rows = lib.rank(calf, "Which one is red?", DOCUMENTS, **asked)
    ordered = sorted(zip(rows, DOCUMENTS, strict=True), reverse=True)
    assert done.stdout == "".join(f"{score:.4f}  {text}\n" for (score,), text in ordered)
    assert run([program, CALF]).returncode == 2

"""Draws and carries out cases for a time: ``python -m tests.support.fuzz --minutes 10``."""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import traceback
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.fuzz import cases
from support.fuzz.watch import LARGEST, Watched


def known(patterns: dict[str, list[str]], case: dict[str, Any], finding: str) -> str:
    """The word of a finding that is known; empty for a new one."""
    levels = [level for check in case.get("checks", []) for level in check.get("levels", [])]
    empty = " 0 rows" if any(level["rows"] == 0 for level in levels) else ""
    text = f"{case.get('operation', case['kind'])}: {finding}{empty}"
    for word, choices in patterns.items():
        if any(re.search(choice, text, re.DOTALL) for choice in choices):
            return word
    return ""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1, help="how long to run (default 1)")
    parser.add_argument("--seed", default="0", help="of the cases (default 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, help="how many cases at most")
    parser.add_argument("--only", action="append", help="an operation; may be repeated")
    parser.add_argument("--without", action="append", help="an operation; may be repeated")
    parser.add_argument("--kind", choices=("operation", "graph", "runs"), help="of cases")
    parser.add_argument("--alone", action="store_true", help="without a generation beside")
    parser.add_argument("--finds", type=Path, help="a folder for cases with findings")
    parser.add_argument(
        "--known", type=Path, help="JSON: patterns of findings to count, not to show, by a word"
    )
    parser.add_argument(
        "--case", type=Path, help="carry out the case of a file, or those of a .jsonl"
    )
    return parser.parse_args()


def main() -> None:
    """Print findings as they come, each with the command that repeats it, and counts at the end."""
    given = arguments()
    # What rules of shapes would take without a bound is a finding here, not the machine's end.
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, resource.getrlimit(resource.RLIMIT_AS)[1]))
    patterns = json.loads(given.known.read_text()) if given.known else {}
    end = monotonic() + 60 * given.minutes
    done: Counter[str] = Counter()
    findings = 0
    number = given.first
    with Watched(beside=not given.alone) as child:
        if given.case:
            text = given.case.read_text()
            lines = text.splitlines() if given.case.suffix == ".jsonl" else [text]
            for line in lines:
                print(json.dumps(child.carry_out(json.loads(line)), indent=1), flush=True)
            return
        while monotonic() < end and (given.count is None or number < given.first + given.count):
            try:
                case = cases.draw(f"{given.seed}/{number}", given.kind, given.only)
            except MemoryError:
                findings += 1
                print(f"{given.seed}/{number}\n  draw:", traceback.format_exc(), flush=True)
                number += 1
                continue
            if case.get("operation") in (given.without or []):
                number += 1
                continue
            answer = child.carry_out(case)
            done["cases"] += 1
            done.update(answer["done"])
            words = [known(patterns, case, each) for each in answer["findings"]]
            done.update(f"known {word}" for word in words if word)
            if not all(words):
                findings += 1
                name = case.get("operation", case["kind"])
                print(f"{given.seed}/{number} {name}", *answer["findings"], sep="\n  ", flush=True)
                if given.finds:
                    given.finds.mkdir(parents=True, exist_ok=True)
                    path = given.finds / f"{name}-{given.seed}-{number}.json"
                    path.write_text(json.dumps({**case, "found": answer["findings"]}) + "\n")
                    if answer["findings"][0].startswith("crash"):
                        before = [json.dumps(each) for each in child.history]
                        path.with_suffix(".jsonl").write_text("\n".join(before) + "\n")
            number += 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{done['cases']} cases to number {number - 1}, {findings} with findings, "
        f"{(used.ru_utime + used.ru_stime) / 60:.1f} CPU minutes; {dict(done)}"
    )


main()

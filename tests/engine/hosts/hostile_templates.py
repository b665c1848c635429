"""A host with little memory that renders hostile chat templates, a model each.

Arguments: the folder of a harmless model, one to write models to. Writes a JSON line per template,
with the status that it got, and one at the end: what another context generated meanwhile, what it
generates alone, and by how many bytes the process grew at its largest.
"""

import json
import pathlib
import resource
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from support import hostile_templates
from support.callbacks import StatusError
from support.library import Library
from support.signatures import DONE

MESSAGES = [{"role": "user", "content": "Hello"}]
# Address space, of which malloc reserves far more than it uses.
ALLOWANCE = 512 << 20
TOKENS = 300


def address_space():
    """The size of this process's address space in bytes; None where that cannot be told."""
    statm = pathlib.Path("/proc/self/statm")
    return int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else None


def peak():
    """The most memory this process has had, in bytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size << 10


def prompted(lib, model):
    """The status's name and the message of a rendered prompt; a part of it if that succeeds."""
    try:
        return "OK", str(lib.chat_prompt(model, MESSAGES)[:20])
    except StatusError as error:
        return error.name, error.message


def main(harmless, folder):
    lib = Library()
    lib.start()
    model = lib.load(harmless)
    prompt = lib.chat_prompt(model, MESSAGES)
    alone, other = lib.context(model), lib.context(model)
    lib.begin(alone, prompt, max_tokens=TOKENS, temperature=0.0)
    solo = [piece.token for piece in lib.drain(alone) if piece.status != DONE]
    lib.begin(other, prompt, max_tokens=TOKENS, temperature=0.0)
    space = address_space()
    if space is not None:
        resource.setrlimit(resource.RLIMIT_AS, (space + ALLOWANCE, space + ALLOWANCE))
    before = peak()
    tokens = []
    settings = json.loads((harmless / "tokenizer_config.json").read_text())
    for kind, table in (
        ("render", hostile_templates.RENDERS),
        ("compile", hostile_templates.COMPILES),
    ):
        for name, (template, _) in table.items():
            shutil.copytree(harmless, folder, dirs_exist_ok=True)
            changed = json.dumps({**settings, "chat_template": template})
            (folder / "tokenizer_config.json").write_text(changed)
            hostile = lib.load(folder)
            status, message = prompted(lib, hostile)
            print(json.dumps([kind, name, status, message]), flush=True)
            lib.free_model(hostile)
            tokens.append(lib.next(other).token)
    tokens += [piece.token for piece in lib.drain(other) if piece.status != DONE]
    print(json.dumps([solo, tokens, peak() - before]), flush=True)
    lib.stop()


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))

"""A host that restarts its runtime: one JSON object a line in, one out.

Each object has "do", the name of a method of Host, and its arguments.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from support.library import Library, StatusError
from support.signatures import OK


class Host:
    """The runtime, and models by their folders."""

    def __init__(self):
        self.lib = Library()
        self.models = {}
        self.adapters = {}

    def start(self, **params):
        """Start with these parameters; the message of a failure."""
        try:
            self.lib.start(**params)
        except StatusError as error:
            return {"status": error.status, "message": error.message}
        return {}

    def stop(self):
        """Stop, which writes all prompts that wait for it."""
        self.models = {}
        self.adapters = {}
        self.lib.stop()
        return {}

    def info(self):
        """The facts of the prompt cache."""
        return self.lib.info()["prompt_cache"]

    def generate(self, folder, tokens, adapter=None, count=4, load=None, **params):
        """Generate on a new context: its info, and the tokens."""
        if folder not in self.models:
            self.models[folder] = self.lib.load(folder, **(load or {}))
        model = self.models[folder]
        context = self.lib.context(model, **{"share_prefix": True, **params})
        if adapter:
            if adapter not in self.adapters:
                self.adapters[adapter] = self.lib.load_adapter(model, adapter)
            self.lib.set_adapter(context, self.adapters[adapter])
        self.lib.begin(context, tokens, max_tokens=count)
        info = self.lib.info(context)
        pieces = self.lib.drain(context)
        self.lib.free(context)
        told = [piece.token for piece in pieces if piece.status == OK]
        return {**info, "told": told}

    def process_and_sleep(self, folder, tokens):
        """Process prompts one after the other, and put the model to sleep; whether it stays so."""
        model = self.lib.load(folder)
        contexts = [self.lib.context(model, share_prefix=True) for _ in tokens]
        for context, prompt in zip(contexts, tokens, strict=True):
            self.lib.begin(context, prompt, max_tokens=0)
        self.lib.check(self.lib.c.cow_mlx_model_sleep(model))
        return {"asleep": [self.lib.info(model)["asleep"] for _ in range(20)]}

    def asleep(self):
        """Whether each model sleeps, by its folder."""
        return {path: self.lib.info(model)["asleep"] for path, model in self.models.items()}

    def chat(self, folder, messages):
        """Answer a conversation on a new context: its info."""
        model = self.models.setdefault(folder, self.models.get(folder) or self.lib.load(folder))
        context = self.lib.context(model, share_prefix=True)
        self.lib.chat(context, messages, max_tokens=4)
        info = self.lib.info(context)
        self.lib.free(context)
        return info


def main():
    host = Host()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(host, asked.pop("do"))(**asked)), flush=True)


main()

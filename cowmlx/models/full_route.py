"""The full route: importing mlx-lm itself, late, for what only it and transformers can do.

That is tokenizers without a ``tokenizer.json``, weights that have to be transformed (AWQ, GPTQ
and other foreign quantized formats), architectures that need mlx-lm's own package, and code that
comes with a model. The import's side effects on the process are undone, and nothing in here
may use the network.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import SimpleNamespace

from cowmlx.errors import BadFormat, CowMlxError, Unsupported
from cowmlx.folders import weights
from cowmlx.folders.config import invalid_config
from cowmlx.models import config_bounds
from cowmlx.text import tokenizer_bounds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    from mlx.nn.layers.base import Module

PACKAGE = "mlx_lm"

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def load_network(
    path: str, config: dict[str, Any], *, trust_remote_code: bool
) -> tuple[Module, dict[str, Any]]:
    """Build a network with mlx-lm's own loader; its weights stay lazy.

    Returns:
        The network and the config with what mlx-lm added to it.

    Raises:
        Unsupported: the model is code in its folder and that is not trusted, or mlx-lm cannot
            be imported.
        BadFormat, OutOfMemory: mlx-lm refuses the folder.
    """
    import pathlib

    code = config.get("model_file")
    if code is not None:
        if not trust_remote_code:
            raise Unsupported(
                f"the architecture of {path} is code in that folder "
                f"({code!r}); set trust_remote_code if you trust it",
                reason="untrusted_code",
                file=path,
            )
        if not isinstance(code, str) or os.path.basename(code) != code:
            raise invalid_config(
                f"model_file {code!r} is no file name", key="model_file", value=code
            )
    with _contained():
        utils = _import("utils")
        with weights.loading(path), config_bounds.bounded_modules():
            network, loaded = utils.load_model(
                pathlib.Path(path), lazy=True, strict=True, trust_remote_code=trust_remote_code
            )
    return network, loaded


def load_tokenizer(path: str, *, trust_remote_code: bool) -> tuple[Any, dict[str, str], Any]:
    """Load a tokenizer with transformers.

    Returns:
        A tokenizer of the ``tokenizers`` library or an adapter with its methods, the special
        tokens by attribute, and the chat template as stored.

    Raises:
        Unsupported: mlx-lm cannot be imported.
        BadFormat, OutOfMemory: transformers refuses the folder.
    """
    file = os.path.join(path, "tokenizer.json")
    if os.path.isfile(file):
        tokenizer_bounds.check(file)
    with _contained():
        utils = _import("tokenizer_utils")
        with weights.loading(f"the tokenizer of {path}"):
            loaded = utils.AutoTokenizer.from_pretrained(
                path, local_files_only=True, trust_remote_code=trust_remote_code
            )
    special = {name: str(text) for name, text in loaded.special_tokens_map.items()}
    backend: Any = getattr(loaded, "_tokenizer", None)
    plain_call = type(loaded).__name__ != "NewlineTokenizer"
    if plain_call and type(backend).__module__.startswith("tokenizers"):
        backend.no_truncation()
        backend.no_padding()
        return backend, special, loaded.chat_template
    return PythonTokenizer(loaded), special, loaded.chat_template


def import_renderer(name: str) -> Any:
    """Return the Python chat renderer of that name in mlx-lm, None if it has none.

    Raises:
        Unsupported: it cannot be imported.
    """
    if not name.isidentifier():
        raise BadFormat(
            f"chat_template_type {name!r} is no name",
            reason="invalid_config",
            key="chat_template_type",
            value=name,
        )
    with _contained():
        return getattr(_import(f"chat_templates.{name}"), "apply_chat_template", None)


class PythonTokenizer:
    """A tokenizer of transformers with the methods that :class:`Tokenizer` uses."""

    normalizer = None
    pre_tokenizer = None
    decoder = None

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.encode_special_tokens = False

    def encode(self, text: str, add_special_tokens: bool) -> Any:
        """Return an object with ``ids``."""
        ids = self._tokenizer.encode(
            text,
            add_special_tokens=add_special_tokens,
            split_special_tokens=self.encode_special_tokens,
        )
        return SimpleNamespace(ids=[int(token) for token in ids])

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """Return the text of tokens."""
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return text

    def id_to_token(self, token: int) -> str | None:
        """Return a token's text as the vocabulary has it."""
        if not 0 <= token < len(self._tokenizer):
            return None
        text = self._tokenizer.convert_ids_to_tokens(token)
        return None if text is None else str(text)

    def token_to_id(self, text: str) -> int | None:
        """Return the id of a token; None if there is none."""
        token = self._tokenizer.convert_tokens_to_ids(text)
        if token is None or (
            token == self._tokenizer.unk_token_id and text != str(self._tokenizer.unk_token)
        ):
            return None
        return int(token)

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """Return the number of tokens."""
        return len(self._tokenizer) if with_added_tokens else int(self._tokenizer.vocab_size)

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        """Return the added tokens by id."""
        return dict(self._tokenizer.added_tokens_decoder)


def _import(name: str) -> ModuleType:
    """Import a module of mlx-lm.

    Raises:
        Unsupported: whatever the import raised.
    """
    import importlib

    try:
        return importlib.import_module(f"{PACKAGE}.{name}")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        raise Unsupported(
            "this model needs mlx-lm with transformers, which cannot be imported "
            f"here ({type(exc).__name__}: {exc}); of bundles, those made with --full have them",
            reason="package_unusable",
            package="transformers",
        ) from exc


@contextmanager
def _contained() -> Iterator[None]:
    """Keep what mlx-lm and transformers do to the process from lasting.

    Importing mlx-lm lowers the limit of open files, the hard one included, and sets an
    environment variable. huggingface_hub reads its offline switch when it is imported, so one
    that the host has imported already is switched for the time of the call.
    """
    import resource
    import sys

    before = dict(os.environ)
    set_limit = resource.setrlimit
    resource.setrlimit = lambda *_: None
    os.environ.update(_OFFLINE)
    constants = sys.modules.get("huggingface_hub.constants")
    was_offline = getattr(constants, "HF_HUB_OFFLINE", None)
    if constants is not None:
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    try:
        yield
    except CowMlxError:
        raise
    finally:
        resource.setrlimit = set_limit
        for name in set(os.environ) - set(before):
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        if constants is not None:
            constants.HF_HUB_OFFLINE = was_offline  # type: ignore[attr-defined]
        elif "huggingface_hub.constants" in sys.modules and "HF_HUB_OFFLINE" not in before:
            # First imported in here: what it read was ours, not the host's.
            sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE = False  # type: ignore[attr-defined]

"""What guesses ahead in a context, and what its draft model has processed."""

from __future__ import annotations

from cowmlx.cache.sequence import Sequence
from cowmlx.cache.trimming import can_trim_all
from cowmlx.errors import InvalidArgument, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.drafting import Drafter
    from cowmlx.generation.params import GenerationParams
    from cowmlx.models.model import Model


class DraftState:
    """Keeps a draft model's sequence from one generation of a context to the next."""

    def __init__(self) -> None:
        self._sequence: Sequence | None = None
        self._version = 0  # of the weights that have processed it

    def drafter(
        self, params: GenerationParams, model: Model, draft: Model | None
    ) -> Drafter | None:
        """Return what guesses ahead in a generation; None if nothing is to.

        Args:
            params: of the generation.
            model: that generates.
            draft: the model that guesses; None: its tokens are looked up in the sequence.

        Raises:
            Unsupported: the cache of one of them cannot drop wrong guesses.
            InvalidArgument: their vocabularies differ.
        """
        if not params.draft_tokens:
            return None
        for each in (model, draft) if draft is not None else (model,):
            if not can_trim_all(each.make_cache()):
                raise Unsupported(
                    f"draft_tokens is {params.draft_tokens}, but the cache of a "
                    f"{each.architecture} model cannot drop wrong guesses",
                    argument="draft_tokens",
                    value=params.draft_tokens,
                )
        from cowmlx.generation.drafting import DraftModel, PromptLookup  # late: few hosts draft

        if draft is None:
            return PromptLookup()
        draft.require_one_machine("draft")
        if draft.vocabulary_size != model.vocabulary_size:
            raise InvalidArgument(
                f"the draft model's vocabulary has {draft.vocabulary_size} tokens, this one's "
                f"{model.vocabulary_size}; they must be the same",
                argument="draft",
            )
        if self._sequence is None or self._version != draft.weights_version:
            self._sequence = Sequence(draft.network, draft.make_cache)
            self._version = draft.weights_version
        return DraftModel(draft, self._sequence, params)

    def settle(self) -> None:
        """Leave nothing to compute."""
        if self._sequence is not None:
            self._sequence.settle()

    def reset(self) -> None:
        """Forget what was processed."""
        self._sequence = None

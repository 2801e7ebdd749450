"""Models by the names that people give them: shared by the catalogs of the families."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from kerf_dra.api.errors import PermanentError

_SUGGESTIONS: Final = 4
"""The number of similar names in an error: enough for the variants of a model, few enough to read."""

ModelT = TypeVar("ModelT")


class UnknownModelError(PermanentError):
    """No model has this name, or several do. ``close`` holds similar names."""

    def __init__(self, kind: str, name: str, close: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.close = tuple(close)
        advice = f"did you mean {', '.join(self.close)}?" if self.close else "`kerf models` lists what is known"
        super().__init__(f"there is no {kind} {name!r}: {advice}")


def find_model(kind: str, name: str, known: Mapping[str, ModelT], aliases: Mapping[str, str]) -> ModelT:
    """Return the model with the id or alias ``name``, or the only one whose id begins with it, in any letter case.

    ``known`` and ``aliases`` are in lower case. Raises UnknownModelError, which calls models ``kind``, when no model
    matches, or several do.
    """
    wanted = name.strip().lower()
    found = known.get(aliases.get(wanted, wanted))
    if found is not None:
        return found
    beginning = [id_ for id_ in known if wanted and id_.startswith(wanted)]
    if len(beginning) == 1:
        return known[beginning[0]]
    import difflib  # only after a misspelled name: daemons never need it

    close = beginning or difflib.get_close_matches(wanted, known, n=_SUGGESTIONS)
    raise UnknownModelError(kind, name, close)

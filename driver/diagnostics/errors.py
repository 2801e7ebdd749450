"""The error of diagnostics: a query about something that the cluster does not have."""

from collections.abc import Iterable
from difflib import get_close_matches

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ObjectRef


class QueryError(KerfError):
    """A query names something that the cluster does not have."""

    @classmethod
    def unknown(
        cls, kind: str, ref: ObjectRef, known: Iterable[ObjectRef], advice: str = "", *, which: str = ""
    ) -> "QueryError":
        """Return the error for an object that does not exist, with similar names of those that do, or ``advice``.

        ``which`` is what the object must do to be one, such as "that requests devices".
        """
        texts = {str(each): each for each in known}
        elsewhere = sorted(text for text, each in texts.items() if each.name == ref.name)
        near = elsewhere or get_close_matches(str(ref), texts, n=3)
        more = f"there is {', '.join(near)}" if near else advice
        return cls(" ".join(filter(None, ("there is no", kind, str(ref), which))) + (f"; {more}" if more else ""))

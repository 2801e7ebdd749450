"""What can be wrong with a question.

::

    KerfError
    └── QuestionError           the question cannot be asked of this cluster: a name that it does not have
"""

from collections.abc import Iterable
from difflib import get_close_matches

from api.errors import KerfError
from api.model.names import ObjectRef


class QuestionError(KerfError):
    """The cluster does not have what the question is about: ask another one."""

    @classmethod
    def unknown(cls, kind: str, ref: ObjectRef, known: Iterable[ObjectRef]) -> "QuestionError":
        """There is no such object; names that are spelled alike are told."""
        texts = {str(each): each for each in known}
        elsewhere = sorted(text for text, each in texts.items() if each.name == ref.name)
        near = elsewhere or get_close_matches(str(ref), texts, n=3)
        return cls(f"there is no {kind} {ref}" + (f"; there is {', '.join(near)}" if near else ""))

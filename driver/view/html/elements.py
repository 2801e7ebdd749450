"""Elements of HTML from tags, attributes and texts, each of which is escaped: the only place that writes markup.

``Html`` is markup. Every other text that becomes a child or a value, such as a pod's name, is escaped and made
printable, so that a text is taken for markup only where a module says ``Html(...)``.

>>> element("p", "a <b> of ", element("b", "x"), class_="note")
'<p class="note">a &lt;b&gt; of <b>x</b></p>'
"""

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from kerf_dra.api.model.printable_text import replace_unprintable


class Html(str):
    """Markup, which is written as it is."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child]"
"""What is in an element: markup, a text, or several of both."""
NOTHING: Final = Html("")
_VOID: Final = frozenset({"br", "input", "link", "meta"})
"""The elements that have no end tag (HTML, 13.1.2)."""


def element(tag: str, *children: Child, **attributes: str | int | bool | None) -> Html:
    """Return an element. Of names of attributes a last underscore is dropped, and others become hyphens.

    A value of None or False leaves its attribute out, True writes it without a value.
    """
    written = "".join(_write_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Return children one behind the other."""
    return Html("".join(_write_child(each) for each in children))


def escape_text(text: str) -> Html:
    """Return a text as markup, its lines kept."""
    return Html(escape(replace_unprintable(text, kept="\n")))


def _write_child(child: Child) -> str:
    if isinstance(child, Html):
        return child
    return escape_text(child) if isinstance(child, str) else join(child)


def _write_attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape_text(str(value))}"'

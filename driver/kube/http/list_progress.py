"""Whether the pages of a list come to an end: a server or proxy may answer each with a token for another one. Pure.

A list is read as fast as its pages come, so one without end would cost thousands of requests a second from each node,
for ever. The pages of an API server are full but for the last one. ``remainingItemCount`` does not say how many pages
there are: it need be neither there nor exact (``metav1.ListMeta``).
"""

from collections.abc import Iterable
from typing import Final

from kerf_dra.api.model.names import ObjectRef

MOST_PAGES: Final = 3000
"""Pages of one list. Those of 500 objects hold ten times the 150,000 pods of the largest cluster that Kubernetes
supports. Smaller ones are read where 500 objects have more than 32 MiB: of objects of that size etcd's 8 GiB hold less
than 1,400 pages of 100 and 2,700 pages of 10."""
_MOST_THIN_PAGES: Final = 10
"""Thin pages of one list: an API server may filter a page after it was read ("up to zero items", ``limit`` of
``metav1.ListOptions``), but those of today go on reading until it is full."""
_THIN: Final = 10
"""A page is thin that is followed by another one, and has less new objects than one of so many that were asked for."""


class ListProgress:
    """The progress of one list, page by page."""

    def __init__(self, limit: int, most_pages: int = MOST_PAGES) -> None:
        """``limit`` is the number of objects for which each page was asked."""
        self._limit = limit
        self._most_pages = most_pages
        self._pages = 0
        self._thin_pages = 0
        self._tokens: set[str] = set()
        self._refs: set[ObjectRef] = set()

    def note_page(self, refs: Iterable[ObjectRef], continue_token: str) -> str | None:
        """Note a page; returns why no further one is to be read although there is a token for it, or None."""
        known = len(self._refs)
        self._refs.update(refs)
        self._pages += 1
        self._thin_pages += (len(self._refs) - known) * _THIN < self._limit
        if not continue_token:
            return None
        if continue_token in self._tokens:
            return "a page has the continue token of an earlier one"
        self._tokens.add(continue_token)
        if self._thin_pages > _MOST_THIN_PAGES:
            return f"{self._thin_pages} pages have few or no new objects, and each has a continue token"
        if self._pages >= self._most_pages:
            return f"it has more than {self._most_pages} pages"
        return None

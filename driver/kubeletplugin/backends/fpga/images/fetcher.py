"""The thread that brings described image files into the cache, ahead of their use.

A file that fails is tried again after a while, longer each time; meanwhile the function is not offered, and the reason
is published. A file that comes slowly gives way to others that are due, so that one server keeps none of another's
waiting for long. The thread holds nothing that another would wait for, and ends with the process.
"""

import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.fpga.images.cache import ImageCache, NoRoomError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.download import DownloadError, TooLongError, download

_FIRST_RETRY_S: Final = 30.0
_LAST_RETRY_S: Final = 1800.0
"""Between two tries of one file: a server that is back is found soon, and one that is gone gets two requests an hour of
each node."""

_PACE_S: Final = 30.0
_LEAST_BYTES: Final = 2**20
"""What comes at least in each ``_PACE_S`` seconds of a fetch for which others wait: at this pace the largest usual
image, of 100 MB, would take an hour."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """What one fetch may take."""

    max_bytes: int
    """The most bytes of a file."""
    timeout_s: float
    """The time for one file, in seconds."""


@dataclass(slots=True, kw_only=True)
class _Failure:
    refusal: ImageRefusal
    retry_at: float
    delay_s: float


@dataclass(slots=True, kw_only=True)
class _Pace:
    """How fast a fetch is: the time and the size at the begin of the present interval."""

    since: float
    size: int = 0

    def is_slow(self, now: float, size: int) -> bool:
        """Whether an interval has just ended in which too few bytes came."""
        if now < self.since + _PACE_S:
            return False
        came, self.since, self.size = size - self.size, now, size
        return came < _LEAST_BYTES


class ImageFetcher:
    """The wanted files of one node, and the thread for them, which the first ``start`` begins."""

    def __init__(
        self,
        cache: ImageCache,
        limits: FetchLimits,
        *,
        check: Callable[[ImageReference, int], ImageRefusal | None],
        make_context: Callable[[], ssl.SSLContext],
        now: Callable[[], float],
    ) -> None:
        """``check`` says what is wrong with a file, by its descriptor; ``now`` returns monotonic seconds."""
        self._cache = cache
        self._limits = limits
        self._check = check
        self._make_context = make_context
        self._now = now
        self._lock = threading.Lock()
        self._wanted: tuple[ImageReference, ...] = ()
        self._failures: dict[ImageReference, _Failure] = {}
        self._work = threading.Event()
        self._stopped = threading.Event()
        self._has_news = False
        self._thread: threading.Thread | None = None

    def want(self, images: Iterable[ImageReference]) -> None:
        """Take these as all files that are needed; what is not there is fetched once the thread runs."""
        with self._lock:
            self._wanted = tuple(dict.fromkeys(images))
            self._failures = {image: self._failures[image] for image in self._wanted if image in self._failures}
        self._work.set()

    def find_state(self, image: ImageReference) -> ImageRefusal:
        """Return why an image that is not in the cache is not."""
        with self._lock:
            failure = self._failures.get(image)
        return failure.refusal if failure is not None else ImageRefusal("NotFetched", f"{image.name} is to be fetched")

    def take_news(self) -> bool:
        """Return whether a file has come or failed in another way since the last call."""
        with self._lock:
            has_news, self._has_news = self._has_news, False
        return has_news

    def start(self) -> None:
        """Begin to fetch, unless that has begun."""
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="fpga-images", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End soon: a download ends with its next bytes."""
        self._stopped.set()
        self._work.set()
        self._thread = None

    def fetch_due(self) -> float | None:
        """Fetch what is due; returns the seconds until the next try, None: nothing is to be tried again."""
        with self._lock:
            wanted = [image for image in self._wanted if not self._cache.has(image.sha256)]
            wanted.sort(key=lambda image: self._failures[image].delay_s if image in self._failures else 0.0)
        for image in wanted:  # those that have not failed come first
            failure = self._failures.get(image)
            if self._stopped.is_set() or (failure is not None and failure.retry_at > self._now()):
                continue
            self._note(image, self._fetch(image))
        with self._lock:
            waits = [failure.retry_at - self._now() for failure in self._failures.values()]
        return max(0.0, min(waits)) if waits else None

    def _run(self) -> None:
        stopped = self._stopped
        while not stopped.is_set():
            self._work.clear()
            try:
                delay_s = self.fetch_due()
            except Exception:  # noqa: BLE001  (the thread would end, and no image come any more)
                _log.exception("fetching images of FPGAs failed unexpectedly")
                delay_s = _LAST_RETRY_S
            self._work.wait(delay_s)

    def _fetch(self, image: ImageReference) -> ImageRefusal | None:
        needed = {one.sha256 for one in self._wanted}
        room = self._cache.max_bytes - self._cache.count_needed_bytes(needed)
        limit = max(0, min(self._limits.max_bytes, room))
        found: list[ImageRefusal] = []

        def write(file: BinaryIO) -> None:
            pace = _Pace(since=self._now())

            def is_to_end() -> bool:
                if pace.is_slow(self._now(), os.fstat(file.fileno()).st_size) and self._is_other_due(image):
                    raise DownloadError(f"less than {_LEAST_BYTES} bytes came in {_PACE_S:g} s, and other images wait")
                return self._stopped.is_set()

            download(
                image.url,
                file,
                max_bytes=limit,
                timeout_s=self._limits.timeout_s,
                context=self._make_context(),
                is_stopped=is_to_end,
            )

        def check(descriptor: int) -> None:
            os.lseek(descriptor, 0, os.SEEK_SET)
            if (refusal := self._check(image, descriptor)) is not None:
                found.append(refusal)
                raise _RefusedError

        try:
            self._cache.store(image.sha256, write, check, needed)
        except _RefusedError:
            return found[0]
        except (NoRoomError, TooLongError) as error:
            word = "CacheFull" if limit < self._limits.max_bytes or isinstance(error, NoRoomError) else "TooLarge"
            return ImageRefusal(word, f"image {image.name} cannot be fetched: {error}")
        except KerfError as error:
            return ImageRefusal("FetchFailed", f"image {image.name} cannot be fetched: {error}")
        except OSError as error:
            return ImageRefusal("FetchFailed", f"image {image.name} cannot be fetched or stored: {error}")
        _log.info("image %s was fetched", image.name)
        return None

    def _is_other_due(self, image: ImageReference) -> bool:
        """Whether another file is to be fetched now, for which a slow one gives way."""
        with self._lock:
            others = [other for other in self._wanted if other != image and not self._cache.has(other.sha256)]
            failures = [self._failures.get(other) for other in others]
        return any(failure is None or failure.retry_at <= self._now() for failure in failures)

    def _note(self, image: ImageReference, refusal: ImageRefusal | None) -> None:
        with self._lock:
            before = self._failures.pop(image, None)
            if refusal is not None:
                delay_s = min(_LAST_RETRY_S, 2 * before.delay_s) if before is not None else _FIRST_RETRY_S
                retry_at = self._now() + delay_s
                self._failures[image] = _Failure(refusal=refusal, retry_at=retry_at, delay_s=delay_s)
            self._has_news |= refusal is None or before is None or before.refusal != refusal


class _RefusedError(Exception):
    """What was fetched is not what was described."""

"""The server of the pages: HTTP on loopback, to one person.

- ``GET`` of a page: the page as a whole; its style sheet and script are files of ``static``.
- ``GET /updates?page=…&digest=…``: server-sent events (HTML, 9.2) for an open page that has this digest
  (``update_stream``).
- ``POST /what-if``: the answer to a manifest.
"""

import logging
from functools import cache
from pathlib import Path
from typing import Final

import anyio
from aiohttp import web
from aiohttp.web_response import Response, StreamResponse
from anyio.abc import TaskStatus

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.partitions.card_pictures.claim_colors import COLORS
from kerf_dra.driver.partitions.card_pictures.svg_picture import STYLE
from kerf_dra.driver.runtime.connection_limiter import ConnectionLimiter
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.page import Page, render_document
from kerf_dra.driver.view.page_builder import Target
from kerf_dra.driver.view.request_check import (
    SECURITY_HEADERS,
    TOKEN_FIELD,
    RequestFacts,
    check_request,
    cookie_name,
)
from kerf_dra.driver.view.snapshot_reader import SnapshotReader
from kerf_dra.driver.view.snapshots import Snapshots
from kerf_dra.driver.view.update_stream import UpdateStream

MOST_BODY_BYTES: Final = 2**20
"""The largest form: a manifest of a thousand objects."""
MOST_OPEN_PAGES: Final = 32
"""Pages that are kept up to date at once: the tabs of one person."""
_HOST: Final = "127.0.0.1"
_BODY_S: Final = 10.0
"""Time for a form to arrive, over loopback."""
_QUIET_S: Final = 15.0
"""Seconds after which an open page is sent a comment: by it a connection that has ended is noticed."""
_MOST_PENDING: Final = 64
"""Connections that have not sent the token yet: a browser opens six."""
_PENDING_S: Final = 10.0
_STOP_S: Final = 1.0
"""Time for requests in flight when serving ends."""
_LONGEST_ADDRESS: Final = 8190
"""Bytes of the first line of a request: names have at most 253 letters, and a page names three."""

_STATIC_FOLDER: Final = Path(__file__).parent / "static"
"""The folder with the style sheet and the script of all pages."""

_log = logging.getLogger(__name__)


class AddressInUseError(PermanentError):
    """The port is taken."""


class ViewServer:
    """Serves pages of the newest snapshot."""

    def __init__(
        self, snapshots: Snapshots, token: str, reader: SnapshotReader | None = None, *, quiet_s: float = _QUIET_S
    ) -> None:
        """``reader`` reads snapshots while pages are open; None: there is one snapshot for good."""
        self._snapshots = snapshots
        self._token = token
        self._reader = reader
        self._quiet_s = quiet_s
        self._port = 0
        self.open_pages = 0
        """Pages that are kept up to date now."""

    @property
    def address(self) -> str:
        """The address of the first page, with the token; known once ``serve`` has started."""
        return f"http://{_HOST}:{self._port}/?{TOKEN_FIELD}={self._token}"

    async def serve(self, port: int, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; ``port`` 0 is any free one, and the task's start value that in use.

        Raises AddressInUseError when the port is taken.
        """
        application = web.Application(client_max_size=MOST_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=_STOP_S,
            max_line_size=_LONGEST_ADDRESS,
        )
        await runner.setup()
        assert runner.server is not None, "it is set up"
        self._limiter = ConnectionLimiter(runner.server, most_pending=_MOST_PENDING, pending_s=_PENDING_S)
        try:
            async with self._limiter.listen(_HOST, port) as (_, self._port):
                task_status.started(self._port)
                await anyio.sleep_forever()
        except OSError as error:
            raise AddressInUseError(
                f"cannot serve at {_HOST}:{port}: {error.strerror}; choose another --port"
            ) from error
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    async def answer(self, request: web.Request) -> StreamResponse:
        """Answer a request, if it is one of the person's."""
        response: StreamResponse | None = self._refuse(request)
        if response is None:
            self._limiter.admit(request.protocol)
            response = await self._dispatch(request)
        if not response.prepared:
            response.headers.update(SECURITY_HEADERS)
        return response

    def _refuse(self, request: web.Request) -> Response | None:
        path = request.path
        facts = RequestFacts(
            method=request.method,
            host=request.headers.get("Host", ""),
            origin=request.headers.get("Origin", ""),
            fetch_site=request.headers.get("Sec-Fetch-Site", ""),
            cookie=request.cookies.get(cookie_name(self._port), ""),
            token=request.query.get(TOKEN_FIELD, ""),
            is_navigation=request.headers.get("Sec-Fetch-Mode") == "navigate" and path != addresses.UPDATES,
        )
        refusal = check_request(facts, port=self._port, token=self._token)
        if refusal is None:
            return None
        response = Response(text=f"{refusal.reason}\n", status=refusal.status)
        response.force_close()  # the rest of a body that was refused is not read
        return response

    async def _dispatch(self, request: web.Request) -> StreamResponse:
        path, is_form = request.path, request.path == addresses.WHAT_IF and request.method == "POST"
        if not is_form and request.method not in ("GET", "HEAD"):
            return Response(text="this page is only read\n", status=405, headers={"Allow": "GET, HEAD"})
        if TOKEN_FIELD in request.query:
            return self._move_token(request)
        if path == addresses.STYLE:
            return Response(body=build_style_sheet(), content_type="text/css", charset="utf-8")
        if path == addresses.SCRIPT:
            return Response(body=read_script(), content_type="text/javascript", charset="utf-8")
        if path == "/favicon.ico":
            return Response(status=204)
        if self._reader is not None:
            await self._reader.ask()
        if path == addresses.UPDATES:
            return await self._send_updates(request)
        if is_form:
            return await self._answer_form(request)
        target = Target.parse(request.path_qs)
        if target is None:
            return Response(text="there is no such page\n", status=404)
        return self._build_response(await self._snapshots.render(target))

    def _move_token(self, request: web.Request) -> Response:
        """Return a redirection to the same page without the token, which a cookie has from then on."""
        query = {name: value for name, value in request.query.items() if name != TOKEN_FIELD}
        path = request.path if Target.parse(request.path) else addresses.CLUSTER
        response = Response(status=303, headers={"Location": addresses.build_address(path, **query)})
        response.set_cookie(cookie_name(self._port), self._token, httponly=True, samesite="Strict", path="/")
        return response

    def _build_response(self, page: Page) -> Response:
        text = render_document(page, self._snapshots.state_line)
        return Response(
            body=text.encode(errors="replace"), status=page.status, content_type="text/html", charset="utf-8"
        )

    async def _answer_form(self, request: web.Request) -> Response:
        try:
            with anyio.fail_after(_BODY_S):
                form = await request.post()
        except web.HTTPRequestEntityTooLarge:
            response = Response(text=f"the manifest has more than {MOST_BODY_BYTES} bytes\n", status=413)
            response.force_close()
            return response
        except TimeoutError:
            return Response(text=f"the form did not arrive within {_BODY_S:g} s\n", status=408)
        except ValueError:
            return Response(text="the form cannot be read\n", status=400)
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        return self._build_response(await self._snapshots.answer(fields))

    async def _send_updates(self, request: web.Request) -> StreamResponse:
        target = Target.parse(request.query.get("page", ""))
        if target is None:
            return Response(text="there is no such page\n", status=404)
        if self.open_pages >= MOST_OPEN_PAGES:
            return Response(text=f"{MOST_OPEN_PAGES} pages are open already\n", status=503)
        self._count(1)
        response = StreamResponse(headers={"Content-Type": "text/event-stream", **SECURITY_HEADERS})
        try:
            await response.prepare(request)
            digest = request.headers.get("Last-Event-ID", "") or request.query.get("digest", "")
            await UpdateStream(response, self._snapshots, target, digest).run(self._quiet_s)
        except (ConnectionError, TimeoutError):
            _log.debug("an open page has ended its connection, or takes nothing")
        finally:
            self._count(-1)
        return response

    def _count(self, difference: int) -> None:
        self.open_pages += difference
        if self._reader is not None:
            self._reader.watchers = self.open_pages


@cache
def build_style_sheet() -> bytes:
    """Return the style sheet of all pages."""
    swatches = "".join(f".swatch.k{number}{{background:{color.rgb}}}" for number, color in enumerate(COLORS))
    return b"\n".join(((_STATIC_FOLDER / "view.css").read_bytes(), swatches.encode(), STYLE.encode()))


@cache
def read_script() -> bytes:
    """Return the script of all pages."""
    return (_STATIC_FOLDER / "view.js").read_bytes()

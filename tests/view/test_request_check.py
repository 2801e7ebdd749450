"""Whom the server answers."""

from dataclasses import replace
from typing import Final

import pytest

from kerf_dra.driver.view.request_check import SECURITY_HEADERS, RequestFacts, check_request

PORT: Final = 8123
TOKEN: Final = "right"
OWN: Final = RequestFacts(
    method="GET",
    host=f"127.0.0.1:{PORT}",
    origin="",
    fetch_site="same-origin",
    cookie=TOKEN,
    token="",
    is_navigation=True,
)
FORM: Final = replace(OWN, method="POST", origin=f"http://127.0.0.1:{PORT}")
UPDATES: Final = replace(OWN, is_navigation=False)


@pytest.mark.parametrize(
    "facts",
    [
        OWN,
        UPDATES,
        FORM,
        replace(OWN, host=f"localhost:{PORT}"),
        replace(OWN, cookie="", token=TOKEN, fetch_site="none"),
        replace(OWN, cookie="", token=TOKEN, fetch_site="cross-site"),
        replace(OWN, cookie="of a former run", token=TOKEN),
        replace(OWN, fetch_site=""),
        replace(FORM, host=f"localhost:{PORT}", origin=f"http://localhost:{PORT}"),
    ],
)
def test_the_persons_requests_are_answered(facts: RequestFacts) -> None:
    assert check_request(facts, port=PORT, token=TOKEN) is None


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (replace(OWN, host=f"rebound.example:{PORT}"), 421),
        (replace(OWN, host="127.0.0.1"), 421),
        (replace(OWN, host=f"127.0.0.1:{PORT + 1}"), 421),
        (replace(OWN, host=""), 421),
        (replace(OWN, cookie=""), 403),
        (replace(OWN, cookie="right "), 403),
        (replace(OWN, token="wrong"), 403),
        (replace(OWN, token="r\N{LATIN SMALL LETTER I WITH DIAERESIS}ght"), 403),
        (replace(UPDATES, origin="http://elsewhere.example"), 403),
        (replace(UPDATES, origin="null"), 403),
        (replace(UPDATES, fetch_site="cross-site"), 403),
        (replace(UPDATES, fetch_site="same-site"), 403),
        (replace(FORM, origin=""), 403),
        (replace(FORM, origin="http://elsewhere.example"), 403),
        (replace(FORM, origin=f"http://localhost:{PORT}"), 403),
        (replace(FORM, fetch_site="cross-site"), 403),
        (replace(OWN, method="DELETE"), 403),
    ],
)
def test_others_requests_are_refused(facts: RequestFacts, status: int) -> None:
    refusal = check_request(facts, port=PORT, token=TOKEN)
    assert refusal is not None
    assert refusal.status == status


def test_a_refusal_does_not_have_the_token() -> None:
    refusal = check_request(replace(OWN, cookie="x"), port=PORT, token=TOKEN)
    assert refusal is not None
    assert TOKEN not in refusal.reason


def test_pages_may_load_nothing_of_elsewhere_and_run_nothing_inline() -> None:
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert {part.split()[1] for part in policy.split("; ")} == {"'none'", "'self'"}

"""A backend that cannot be called as the protocol says is refused when it is loaded, with the name of the method."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kerf_dra.driver.kubeletplugin.backends.backend_validation import find_factory_fault, find_protocol_fault
from kerf_dra.driver.kubeletplugin.backends.eventless import EventlessBackend


class Complete(EventlessBackend):
    name = "complete"

    def discover(self) -> Sequence[Any]:
        return ()

    def survey(self, card_uuid: str) -> Any: ...

    def prepare(self, device: Any, config: Any, journal: Any, found: Any) -> Any: ...

    def unprepare(self, handle: Any) -> None: ...

    def abandon(self, device: Any, journal: Any, found: Any) -> None: ...

    def edits(self, handle: Any) -> Any: ...


class AnyArguments(Complete):
    def prepare(self, *arguments: Any, **named: Any) -> Any: ...


async def _survey(self: object, card_uuid: str) -> None: ...


async def _events(self: object, timeout_s: float) -> Any:
    yield timeout_s


def _survey_without_card(self: object) -> None: ...


@pytest.mark.parametrize("backend", [Complete(), AnyArguments()])
def test_a_backend_with_all_methods_is_accepted(backend: object) -> None:
    assert find_protocol_fault(backend) == ""


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"name": None}, "its attribute 'name' is None; it must be the name by which claims record it"),
        ({"abandon": None}, "it has no method abandon(device, journal, found)"),
        ({"survey": _survey}, "its method survey is a coroutine function; survey(card_uuid) must block instead"),
        ({"wait_for_events": _events}, "its method wait_for_events is a coroutine function"),
        ({"survey": _survey_without_card}, "its method survey takes (); it must be survey(card_uuid)"),
    ],
)
def test_a_fault_is_named_with_its_method(members: dict[str, Any], fault: str) -> None:
    assert find_protocol_fault(type("Faulty", (Complete,), members)()).startswith(fault)


def test_a_factory_that_is_a_coroutine_function_is_named() -> None:
    async def open_backend(config: Path | None) -> object: ...

    assert find_factory_fault(open_backend) == "it is a coroutine function; it must be a plain one"


def test_a_coroutine_in_place_of_a_backend_is_named() -> None:
    async def open_backend() -> None: ...

    assert "returned a coroutine" in find_protocol_fault(open_backend())


@pytest.mark.parametrize("factory", [lambda: None, lambda one, two: None])
def test_a_factory_without_the_parameter_is_named(factory: Callable[..., None]) -> None:
    assert "it must take (config), the path of its configuration or None" in find_factory_fault(factory)


@pytest.mark.parametrize("factory", [lambda config: None, lambda config=None: None])
def test_a_factory_with_the_parameter_is_accepted(factory: Callable[..., None]) -> None:
    assert find_factory_fault(factory) == ""


def test_a_factory_that_is_no_function_is_named() -> None:
    assert find_factory_fault("open_backend") == "it is not a function, but of type str"

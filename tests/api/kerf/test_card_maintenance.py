"""CardMaintenances: every problem of a document is reported with its path, and names of objects are unique."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.card_maintenance import (
    CardMaintenance,
    CardMaintenanceObject,
    is_named_card,
    maintenance_name,
)
from kerf_dra.api.kerf.decoder import decode_card_maintenance
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import is_dns_subdomain

SPEC = {"nodeName": "node-1", "card": "GPU-0A"}


def decode(spec: dict[str, Any]) -> CardMaintenance:
    return decode_card_maintenance(CardMaintenanceObject(metadata=ObjectMeta(name="fan"), spec=spec))


def test_what_is_left_out_has_its_default() -> None:
    spec = decode(SPEC).spec
    assert (spec.reason, spec.then, spec.evict_bare_pods, spec.deadline_seconds) == ("", "None", False, None)


@pytest.mark.parametrize("card", ["GPU-0A", "0000:3b:00.0", "FPGA.1", "a"])
def test_a_card_is_named_by_its_uuid_or_its_pci_address(card: str) -> None:
    assert decode({**SPEC, "card": card}).spec.card == card


def test_every_problem_is_reported_with_its_path() -> None:
    with pytest.raises(InvalidDocumentError) as raised:
        decode({"card": "a b", "then": "Reboot", "deadlineSeconds": 0, "reason": "a\nb", "evictBare": True})
    assert {problem.path for problem in raised.value.problems} == {
        "spec.nodeName",
        "spec.card",
        "spec.then",
        "spec.deadlineSeconds",
        "spec.reason",
        "spec.evictBare",
    }
    assert 'CardMaintenance "fan"' in str(raised.value)


@pytest.mark.parametrize("then", ["None", "Reset", "MigOn", "MigOff"])
def test_a_hook_is_named_with_then_hook_only(then: str) -> None:
    assert decode({**SPEC, "then": then}).spec.hook is None
    assert decode({**SPEC, "then": "Hook", "hook": "swap-fan"}).spec.hook == "swap-fan"
    for spec in ({"then": then, "hook": "swap-fan"}, {"then": "Hook"}):
        with pytest.raises(InvalidDocumentError, match=r"spec\.hook: names the program of then: Hook"):
            decode({**SPEC, **spec})


@pytest.mark.parametrize("name", ["../fan", "a/b", "..", "a.sh", "/bin/sh", "", "-x", "A", "a b", "a\nb", "a" * 64])
def test_no_path_and_no_option_is_a_hook(name: str) -> None:
    with pytest.raises(InvalidDocumentError, match=r"spec\.hook"):
        decode({**SPEC, "then": "Hook", "hook": name})


@pytest.mark.parametrize(
    ("card", "uuid", "address", "is_named"),
    [
        ("GPU-0A", "GPU-0a", "", True),
        ("0000:3B:00.0", "GPU-0a", "0000:3b:00.0", True),
        ("GPU-0", "GPU-0a", "0000:3b:00.0", False),
        ("", "", "", False),
        ("GPU-0a", "", "", False),
    ],
)
def test_a_card_is_named_in_any_case_and_only_as_a_whole(card: str, uuid: str, address: str, is_named: bool) -> None:
    assert is_named_card(card, uuid, address) is is_named


_NODES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,4}", fullmatch=True)
_CARDS = st.from_regex(r"[0-9A-Za-z]([-0-9A-Za-z]{0,126}[0-9A-Za-z])?", fullmatch=True)


@given(node=_NODES, card=_CARDS)
def test_the_name_of_a_maintenance_is_one_of_an_object(node: str, card: str) -> None:
    assert is_dns_subdomain(maintenance_name(node, card))


def test_names_of_different_cards_and_nodes_differ_also_where_they_are_shortened() -> None:
    long = "n" * 250
    names = [maintenance_name(node, card) for node in ("a", "b", long) for card in ("GPU-1", "GPU-2", "G" * 100)]
    assert len(set(names)) == len(names)
    assert maintenance_name("a", "GPU-1") == maintenance_name("a", "gpu-1"), "one card in any case"

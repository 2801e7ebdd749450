"""Names and identities."""

import pytest

from kerf_dra.api.model.device_attributes import node_attribute
from kerf_dra.api.model.names import ClaimRef, DeviceId, ObjectRef, RequestName, ShareId, is_dns_label, is_dns_subdomain


@pytest.mark.parametrize(
    ("text", "label", "subdomain"),
    [
        ("gpu-0", True, True),
        ("0", True, True),
        ("a.b", False, True),
        ("", False, False),
        ("-a", False, False),
        ("a-", False, False),
        ("A", False, False),
        ("a..b", False, False),
        ("a\n", False, False),
        ("a" * 63, True, True),
        ("a" * 64, False, True),
        ("a" * 254, False, False),
    ],
)
def test_labels_and_subdomains_follow_rfc_1123(text: str, label: bool, subdomain: bool) -> None:
    assert (is_dns_label(text), is_dns_subdomain(text)) == (label, subdomain)


@pytest.mark.parametrize("text", ["gpu", "gpu/small", "gpu/"])
def test_a_request_name_keeps_its_alternative(text: str) -> None:
    name = RequestName.parse(text)
    assert (name.request, str(name)) == ("gpu", text)


def test_identities_print_as_people_write_them() -> None:
    device = DeviceId("kerf.dev", "node-1/gpu", "gpu-0")
    assert str(device) == "kerf.dev/node-1/gpu/gpu-0"
    assert str(ShareId(device, None)) == str(device)
    assert str(ShareId(device, "abc")) == f"{device}#abc"
    assert str(ClaimRef("default", "mine", "uid")) == "default/mine"
    assert (str(ObjectRef("", "class")), str(ObjectRef("ns", "claim"))) == ("class", "ns/claim")


def test_a_long_node_name_is_cut_to_an_attribute_and_stays_distinct() -> None:
    first, second = node_attribute("n" * 100 + "1"), node_attribute("n" * 100 + "2")
    assert first != second
    assert len(first) == len(second) == 64
    assert node_attribute("node-1") == "node-1"

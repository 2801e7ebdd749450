"""What a handler says it has found is checked device by device, and bounded."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.discovery.v1alpha1 import DISCOVER, DiscoveryRequest, FoundDevice, FoundDeviceNode, FoundMount
from kerf_dra.api.kerf.discovery_objects import device_name
from kerf_dra.driver.kubeletplugin.discovery_handlers.found_devices import MAX_DEVICES, CheckedDevices, check_devices


def check(*found: FoundDevice, known: Sequence[str] = ()) -> CheckedDevices:
    return check_devices("cams", found, node="n1", known=known)


def test_a_device_becomes_what_its_object_says_of_it() -> None:
    found = FoundDevice(
        id="/devices/video0",
        properties={"B": "2", "A": "1"},
        device_nodes=(FoundDeviceNode(host_path="/dev/video0"), FoundDeviceNode(host_path="/dev/v", permissions="r")),
        mounts=(FoundMount(host_path="/etc/a", container_path="/etc/b", read_only=True),),
    )
    checked = check(found)
    [(name, spec)] = checked.specs.items()
    assert name == device_name("cams", "/devices/video0", node="n1")
    assert (spec.configuration_name, spec.device_id, spec.shared, spec.nodes) == (
        "cams",
        "/devices/video0",
        False,
        ("n1",),
    )
    assert list(spec.properties) == ["A", "B"]
    assert [(each.host_path, each.container_path, each.permissions) for each in spec.device_nodes] == [
        ("/dev/video0", "/dev/video0", "rwm"),
        ("/dev/v", "/dev/v", "r"),
    ]
    assert [(each.host_path, each.container_path, each.read_only) for each in spec.mounts] == [
        ("/etc/a", "/etc/b", True)
    ]
    assert not checked.problems


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (FoundDevice(id=""), "deviceID"),
        (FoundDevice(id="a\nb"), "deviceID"),
        (FoundDevice(id="x" * 513), "deviceID"),
        (FoundDevice(id="a", properties={"not a variable": "1"}), "properties"),
        (FoundDevice(id="a", properties={"A": "x" * 1025}), "properties"),
        (FoundDevice(id="a", properties={"A": "b\nc"}), "properties"),
        (FoundDevice(id="a", properties={f"A{number}": "" for number in range(65)}), "properties"),
        (FoundDevice(id="a", device_nodes=(FoundDeviceNode(host_path="dev/a"),)), "hostPath"),
        (FoundDevice(id="a", device_nodes=(FoundDeviceNode(host_path="/dev/../etc"),)), "hostPath"),
        (FoundDevice(id="a", device_nodes=(FoundDeviceNode(host_path=""),)), "hostPath"),
        (FoundDevice(id="a", device_nodes=(FoundDeviceNode(host_path="/dev/a", permissions="rwx"),)), "permissions"),
        (FoundDevice(id="a", device_nodes=(FoundDeviceNode(host_path="/dev/a"),) * 33), "deviceNodes"),
        (FoundDevice(id="a", mounts=(FoundMount(host_path="/", container_path="/host"),)), "hostPath"),
        (FoundDevice(id="a", shared=True, mounts=(FoundMount(host_path="/etc/shadow"),)), "shared device"),
        (FoundDevice(id="a", shared=True, device_nodes=(FoundDeviceNode(host_path="/dev/sda"),)), "shared device"),
    ],
)
def test_a_device_that_cannot_be_an_object_is_left_out_and_told(bad: FoundDevice, problem: str) -> None:
    checked = check(FoundDevice(id="good"), bad)
    assert [spec.device_id for spec in checked.specs.values()] == ["good"]
    [told] = checked.problems
    assert problem in told
    assert len(told) < 600


def test_a_device_that_is_there_twice_counts_once_and_is_told() -> None:
    checked = check(FoundDevice(id="a"), FoundDevice(id="b"), FoundDevice(id="a"))
    assert len(checked.specs) == 2
    assert checked.problems == ("device 'a' is there several times",)


def test_of_too_many_devices_those_stay_that_were_there_before() -> None:
    before = check(*(FoundDevice(id=f"z{number}") for number in range(MAX_DEVICES)))
    after = check(
        *(FoundDevice(id=f"a{number}") for number in range(100)),
        *(FoundDevice(id=f"z{number}") for number in range(MAX_DEVICES)),
        known=list(before.specs),
    )
    assert after.specs == before.specs
    assert after.problems == (
        f"it has found {MAX_DEVICES + 100} devices, of which {MAX_DEVICES} are taken: look for fewer",
    )


def test_of_very_many_problems_a_few_are_told() -> None:
    checked = check(*(FoundDevice(id=f"\n{number}") for number in range(1000)))
    assert len(checked.problems) == 9
    assert checked.problems[-1] == "and 992 problems more"


def test_two_devices_whose_names_are_alike_are_not_one() -> None:
    """Names have digests of 24 bits: among some thousand ids two are alike."""
    seen: dict[str, str] = {}
    first = second = ""
    for number in range(100_000):
        name = device_name("cams", str(number), node=None)
        if name in seen:
            first, second = seen[name], str(number)
            break
        seen[name] = str(number)
    name = device_name("cams", first, node=None)
    for known in ((), (name,)):
        checked = check(FoundDevice(id=first, shared=True), FoundDevice(id=second, shared=True), known=known)
        assert list(checked.specs) == [name]
        assert checked.specs[name].device_id == min(first, second)
        assert "has the name of" in checked.problems[0]


TEXTS = st.text(max_size=20)
ANY_DEVICE = st.builds(
    FoundDevice,
    id=TEXTS,
    properties=st.dictionaries(TEXTS, TEXTS, max_size=3),
    mounts=st.lists(
        st.builds(FoundMount, host_path=TEXTS, container_path=TEXTS, read_only=st.booleans()), max_size=2
    ).map(tuple),
    device_nodes=st.lists(
        st.builds(FoundDeviceNode, host_path=TEXTS, container_path=TEXTS, permissions=st.sampled_from(["rwm", "x"])),
        max_size=2,
    ).map(tuple),
    shared=st.booleans(),
)


@given(st.lists(ANY_DEVICE, max_size=5))
def test_whatever_is_found_is_taken_or_told(found: list[FoundDevice]) -> None:
    checked = check(*found)
    taken = {(spec.device_id, spec.shared) for spec in checked.specs.values()}
    assert taken <= {(device.id, device.shared) for device in found}
    assert len(taken) == len({(device.id, device.shared) for device in found}) or checked.problems


@given(st.lists(ANY_DEVICE, max_size=4), TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_messages_arrive_as_they_were_sent(found: list[FoundDevice], details: str, properties: dict[str, str]) -> None:
    assert DISCOVER.decode_response(DISCOVER.encode_response(found)) == tuple(found)
    request = DiscoveryRequest(details=details, properties=properties)
    assert DISCOVER.decode_request(DISCOVER.encode_request(request)) == request

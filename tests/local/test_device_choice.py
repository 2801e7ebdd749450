"""Which devices of an extended resource a container gets (kubernetes/pkg/kubelet/cm/devicemanager)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.deviceplugin.v1beta1 import ListedDevice, PreferenceRequest
from kerf_dra.driver.local.kubelet.device_choice import DeviceCandidates, DevicesUnavailableError, find_candidates

RESOURCE = "example.com/gpu"


def listed(*healthy: str, unhealthy: tuple[str, ...] = ()) -> dict[str, ListedDevice]:
    found = [ListedDevice(id=each) for each in healthy] + [
        ListedDevice(id=each, health="Unhealthy") for each in unhealthy
    ]
    return {device.id: device for device in found}


def find(size: int, devices: dict[str, ListedDevice], in_use: str = "", reusable: str = "") -> DeviceCandidates:
    return find_candidates(RESOURCE, size, devices, in_use={*in_use}, reusable={*reusable})


@pytest.mark.parametrize(
    ("size", "in_use", "reusable", "preferred", "chosen"),
    [
        (2, "", "", "", "ab"),
        (2, "a", "", "", "bc"),
        (2, "", "", "da", "da"),
        (2, "a", "", "ad", "db"),
        (2, "", "", "zz", "ab"),
        (1, "c", "c", "", "c"),
        (2, "c", "c", "d", "cd"),
        (1, "cd", "cd", "", "c"),
    ],
)
def test_devices_of_init_containers_come_first_then_those_that_the_plugin_prefers(
    size: int, in_use: str, reusable: str, preferred: str, chosen: str
) -> None:
    assert find(size, listed(*"abcd"), in_use, reusable).choose(preferred) == tuple(chosen)


@pytest.mark.parametrize(
    ("size", "devices", "in_use", "message"),
    [
        (1, listed(), "", "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"),
        (
            1,
            listed(unhealthy=("a", "b")),
            "",
            "no healthy devices present; cannot allocate unhealthy devices example.com/gpu",
        ),
        (
            2,
            listed("a", "b", unhealthy=("c",)),
            "a",
            "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1",
        ),
    ],
)
def test_too_few_devices_are_an_error_in_the_kubelets_words(
    size: int, devices: dict[str, ListedDevice], in_use: str, message: str
) -> None:
    with pytest.raises(DevicesUnavailableError) as caught:
        find(size, devices, in_use)
    assert str(caught.value) == message


def test_the_plugin_is_asked_only_where_there_is_a_choice() -> None:
    assert not find(1, listed(*"ab"), "a", "a").is_open
    candidates = find(2, listed(*"abc"), "a", "a")
    assert candidates.is_open
    assert candidates.build_request() == PreferenceRequest(available=("a", "b", "c"), must_include=("a",), size=2)


@given(
    healthy=st.sets(st.sampled_from("abcdef")),
    in_use=st.sets(st.sampled_from("abcdef")),
    reusable=st.sets(st.sampled_from("abcdef")),
    size=st.integers(1, 6),
    preferred=st.lists(st.sampled_from("abcdefz")),
)
def test_a_container_gets_so_many_different_devices_and_none_that_another_pod_has(
    healthy: set[str], in_use: set[str], reusable: set[str], size: int, preferred: list[str]
) -> None:
    devices = listed(*healthy)
    try:
        candidates = find_candidates(RESOURCE, size, devices, in_use=in_use, reusable=reusable & in_use)
    except DevicesUnavailableError:
        assert len(healthy - in_use) + len(reusable & in_use & healthy) < size
        return
    chosen = candidates.choose(preferred)
    assert len(chosen) == len({*chosen}) == size
    assert {*chosen} <= healthy
    assert {*chosen} & in_use <= reusable

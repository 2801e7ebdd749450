"""What a request gets once for all its devices, in the claim's CDI spec."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.model.prepared import CardPart, PreparedDevice
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.kubeletplugin.backends.base import Handle
from kerf_dra.driver.kubeletplugin.claims.cdi_spec import (
    ConflictingRequestsError,
    add_cdi_ids,
    build_request_edits,
    build_spec,
    number_variables,
)

CLAIM = ClaimRef("default", "tiles", "uid-1")


def device(name: str, *requests: str, backend: str = "one", value: str = "") -> PreparedDevice:
    return PreparedDevice(
        share=ShareId(DeviceId("gpu.example.com", "node-1", name), None),
        backend=backend,
        part=CardPart(kind="gpu", card_uuid="GPU-1"),
        requests=requests,
        handle={"value": value or name},
    )


def build(backend: str, handles: Sequence[Handle]) -> ContainerEdits:
    """The edits of a backend: a variable of its own with the values of all devices; none of ``plain``."""
    values = [str(handle["value"]) for handle in handles]
    return ContainerEdits() if backend == "plain" else ContainerEdits(env=(f"{backend.upper()}={','.join(values)}",))


def test_a_request_gets_what_its_backend_builds_of_all_its_devices_and_others_get_nothing() -> None:
    devices = [device("a", "train"), device("b", "train"), device("c", "infer", backend="plain")]
    assert build_request_edits(devices, build) == {"train": ContainerEdits(env=("ONE=a,b",))}


def test_devices_of_several_backends_add_to_one_request() -> None:
    devices = [device("a", "train"), device("b", "train", backend="two")]
    assert build_request_edits(devices, build) == {"train": ContainerEdits(env=("ONE=a", "TWO=b"))}


def test_the_requests_edits_are_in_the_container_once_beside_those_of_its_devices() -> None:
    devices = [device("a", "train"), device("b", "train")]
    own = [ContainerEdits(env=(f"DEVICE_{one.share.id.device.upper()}=1",)) for one in devices]
    spec = build_spec("gpu.example.com", CLAIM, devices, own, build_request_edits(devices, build))
    assert spec is not None
    edits = {member.name: member.container_edits for member in spec.devices}
    ids = [name.partition("=")[2] for one in add_cdi_ids(CLAIM, devices, spec) for name in one.cdi_ids]
    assert [variable for name in ids for variable in edits[name].env] == ["DEVICE_A=1", "ONE=a,b", "DEVICE_B=1"]


@pytest.mark.parametrize("value", ["b", "a"], ids=["another value", "the same, of its own devices"])
def test_two_requests_of_one_backend_that_needs_a_variable_are_refused_with_what_to_do(value: str) -> None:
    """Two masks of the first tile have one value, and a container with both requests sees two cards."""
    with pytest.raises(
        ConflictingRequestsError, match=r"requests train and infer have .* variable ONE alone"
    ) as caught:
        build_request_edits([device("a", "train"), device("b", "infer", value=value)], build)
    assert "a claim for each container" in str(caught.value)


def test_two_requests_of_which_one_backend_needs_a_variable_are_not() -> None:
    devices = [device("a", "train"), device("b", "infer", backend="plain")]
    assert {*build_request_edits(devices, build)} == {"train"}
    plain = [device("a", "train", backend="plain"), device("b", "infer", backend="plain")]
    assert build_request_edits(plain, build) == {}


def share_of(name: str, share: str) -> PreparedDevice:
    return replace(device(name), share=ShareId(DeviceId("gpu.example.com", "node-1", name), share))


def variables_of(devices: Sequence[PreparedDevice], *env: Sequence[str]) -> list[tuple[str, ...]]:
    return [each.env for each in number_variables(devices, [ContainerEdits(env=tuple(one)) for one in env])]


def test_a_container_with_several_shares_of_a_device_has_the_amount_of_each() -> None:
    """It had one variable for all, of which the runtime kept the last."""
    devices = [share_of("a", "1"), share_of("b", "1"), share_of("a", "2"), share_of("a", "3")]
    env = [["KERF_DEVICE_A=u", "KERF_MEMORY_LIMIT_A=5", "CUDA=5"], ["KERF_DEVICE_B=v", "KERF_MEMORY_LIMIT_B=5"]]
    env += [["KERF_DEVICE_A=u", "KERF_MEMORY_LIMIT_A=5", "CUDA=5"], ["KERF_DEVICE_A=u", "KERF_MEMORY_LIMIT_A=7"]]
    assert variables_of(devices, *env) == [
        ("KERF_DEVICE_A=u", "KERF_MEMORY_LIMIT_A=5", "CUDA=5"),
        ("KERF_DEVICE_B=v", "KERF_MEMORY_LIMIT_B=5"),
        ("KERF_DEVICE_A=u", "KERF_MEMORY_LIMIT_A_2=5", "CUDA=5"),
        ("KERF_DEVICE_A=u", "KERF_MEMORY_LIMIT_A_3=7"),
    ]


def test_other_variables_of_shares_are_numbered_where_they_differ() -> None:
    devices = [share_of("a", "1"), share_of("a", "2")]
    env = ("KERF_SHARING_A=Mps", "KERF_OWN_A=1"), ("KERF_SHARING_A=Mps", "KERF_OWN_A=2")
    assert variables_of(devices, *env) == [env[0], ("KERF_SHARING_A=Mps", "KERF_OWN_A_2=2")]

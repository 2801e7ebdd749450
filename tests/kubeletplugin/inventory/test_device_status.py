"""All entries of a driver in a claim's status are composed of what is new and of what stays (KEP-4817)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kerf_dra.api.kerf.device_status import MAX_DATA_BYTES, DeviceStatus
from kerf_dra.api.kerf.v1alpha1 import API_VERSION
from kerf_dra.api.model.allocations import AllocatedDeviceStatus, ResourceClaimStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.times import format_unix_time
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import (
    BindingConditions,
    build_device_statuses,
    device_key,
)
from kerf_dra.driver.kubeletplugin.inventory.device_status import (
    DeviceKey,
    are_same,
    compose_device_statuses,
    encode_data,
    select_reported,
)
from tests.fakes.claims import DRIVER, claim, result, share_id

CONDITIONS = BindingConditions.of_driver(DriverName(DRIVER))
DEVICES = ("fpga-0-aes-at-0", "fpga-0-aes-at-1", "gpu-1")
RESULTS = (*map(result, DEVICES), result("nic", driver="nic.example"), result("gpu-0", share="s"))
ALLOCATED = claim("x", *RESULTS).status
OTHER = AllocatedDeviceStatus(driver="nic.example", pool="node-1/nic", device="nic")
KEYS: dict[str, DeviceKey] = {each.device: device_key(each) for each in RESULTS if each.driver == DRIVER}


def compose(
    status: ResourceClaimStatus,
    prepared: dict[DeviceKey, JsonObject],
    awaited: tuple[AllocatedDeviceStatus, ...] = (),
    now: float = 0,
) -> ResourceClaimStatus:
    """Return ``status`` after a write."""
    entries = compose_device_statuses(status, CONDITIONS, driver=DRIVER, prepared=prepared, awaited=awaited, now=now)
    others = tuple(entry for entry in status.devices if entry.driver != DRIVER)
    return replace(status, devices=(*others, *entries))


def loads(*devices: str, failure: str | None = None, now: float = 0) -> tuple[AllocatedDeviceStatus, ...]:
    return build_device_statuses([result(device) for device in devices], CONDITIONS, failure=failure, now=now)


def true_types(status: ResourceClaimStatus, device: str) -> set[str]:
    entries = [entry for entry in status.devices if entry.device == device]
    return {one.type for entry in entries for one in entry.conditions if one.status == "True"}


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["prepared", "released", "loaded", "failed"]), st.sampled_from(DEVICES), st.integers(0, 9)
    ),
    max_size=12,
)


@given(WRITES)
def test_whatever_is_written_in_whatever_order_takes_nothing_else_away(writes: list[tuple[str, str, int]]) -> None:
    status = replace(ALLOCATED, devices=(OTHER,))
    prepared: dict[DeviceKey, JsonObject] = {}
    load: dict[str, str] = {}
    for what, device, now in writes:
        awaited: tuple[AllocatedDeviceStatus, ...] = ()
        match what:
            case "prepared":
                prepared[KEYS[device]] = {"uuid": f"{device} {now}"}
            case "released":
                prepared.pop(KEYS[device], None)
            case _:
                load[device] = CONDITIONS.loaded if what == "loaded" else CONDITIONS.failed
                awaited = loads(device, failure=None if what == "loaded" else "no", now=now)
        status = compose(status, prepared, awaited, now)
        again = compose(status, prepared, now=now + 1)
        assert are_same(select_reported(status, DRIVER), select_reported(again, DRIVER)), "nothing is left to write"
    assert OTHER in status.devices
    for device in DEVICES:
        expected = {load[device]} if device in load else set()
        assert true_types(status, device) == expected | ({"Ready"} if KEYS[device] in prepared else set())
    assert {device_key(each): each.data for each in select_reported(status, DRIVER) if each.data} == prepared


def test_a_condition_that_stays_keeps_the_time_of_its_last_transition() -> None:
    status = compose(ALLOCATED, {KEYS["gpu-1"]: {"uuid": "a"}}, now=10)
    status = compose(status, {KEYS["gpu-1"]: {"uuid": "b"}}, now=20)
    (entry,) = status.devices
    assert entry.data == {"uuid": "b"}
    assert [one.last_transition_time for one in entry.conditions] == [format_unix_time(10)]
    status = compose(ALLOCATED, {}, loads("gpu-1", failure="no", now=10))
    status = compose(status, {}, loads("gpu-1", now=20))
    assert {one.last_transition_time for one in status.devices[0].conditions} == {format_unix_time(20)}


def test_a_device_of_simulated_hardware_says_so_as_long_as_it_is_prepared() -> None:
    status = compose(ALLOCATED, {KEYS["gpu-1"]: {"uuid": "a", "simulated": True}, KEYS[DEVICES[0]]: {"uuid": "b"}})
    assert true_types(status, "gpu-1") == {"Ready", "Simulated"}
    assert true_types(status, DEVICES[0]) == {"Ready"}
    assert true_types(compose(status, {}), "gpu-1") == set()


def test_an_entry_is_of_the_share_that_the_claim_has_and_of_no_device_that_it_does_not_have() -> None:
    shared = device_key(result("gpu-0", share="s"))
    gone = device_key(result("gpu-7"))
    status = compose(ALLOCATED, {shared: {"uuid": "a"}, gone: {"uuid": "b"}})
    assert [(entry.device, entry.share_id) for entry in status.devices] == [("gpu-0", share_id("s"))]
    assert compose(replace(status, allocation=None), {shared: {"uuid": "a"}}).devices == ()


def test_data_is_a_document_of_its_own_version_that_knows_all_its_fields() -> None:
    status = DeviceStatus(api_version=API_VERSION, uuid="MIG-1", card="GPU-1", pci_bus_id="0000:3b:00.0")
    data = encode_data(status)
    assert data == {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "DeviceStatus",
        "uuid": "MIG-1",
        "card": "GPU-1",
        "pciBusID": "0000:3b:00.0",
    }
    assert msgspec.convert(data, DeviceStatus) == status


def test_data_that_would_be_too_long_for_the_api_server_goes_without_paths() -> None:
    nodes = tuple(f"/dev/accelerator/queue-{number}" for number in range(1000))
    status = DeviceStatus(api_version=API_VERSION, uuid="NPU-1", device_nodes=nodes, cdi_devices=("a/b=c",))
    data = encode_data(status)
    assert len(msgspec.json.encode(data)) < MAX_DATA_BYTES < len(msgspec.json.encode(status))
    assert data["uuid"] == "NPU-1"

"""When a ResourceClass is Ready: it follows what nodes publish, and says which field keeps devices from it."""

import msgspec
import pytest

from kerf_dra.api.kerf.v1alpha1 import MatchingDevices
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.families.gpu_intel.catalog import describe_card
from kerf_dra.driver.families.gpu_intel.geometry import intel_geometry
from kerf_dra.driver.partitions.geometry import Card
from tests.fakes.published_slices import fpgas, gpus, slices

from .cluster import Cluster, verdicts

SMALL = {"device": "gpu", "minimum": {"memory": "18Gi"}}
LARGE = {"device": "gpu", "minimum": {"memory": "70Gi"}}

SHARED = {"device": "gpu", "profile": "1g.10gb", "sharing": {"strategy": "Mps"}}


async def test_a_class_is_not_ready_while_devices_are_published_and_none_can_do_what_it_says() -> None:
    cluster = Cluster()
    cluster.put_class("shared", SHARED)
    await cluster.settle("shared")
    assert verdicts(cluster, "shared")["Ready"] == "True Compiled", "nothing is known of the nodes' cards yet"
    cluster.publish(*slices("n1", gpus("a30-24gb", sharing=["TimeSlicing"])))
    await cluster.settle("shared")
    assert verdicts(cluster, "shared") == {
        "Accepted": "True Valid",
        "Ready": "False NotSupported",
        "Matching": "False NothingMatches",
    }
    assert cluster.condition("shared", "Ready").message == (
        "spec.sharing.strategy: none of the 14 published devices of gpu.kerf.dev has mps: true, so no node can do "
        "this: omit the field, or add a node that can; claims of the class wait until then"
    )
    assert cluster.device_class("shared") is not None, "pods wait for it, and run once there is such a node"
    assert cluster.events[-1][:3] == ("shared", "Warning", "NotSupported")


@pytest.mark.parametrize(
    ("model", "matching"), [("h100-80gb-sxm", "True DevicesMatch"), ("a30-24gb", "False NothingMatches")]
)
async def test_a_class_is_ready_once_any_device_can_do_what_it_says_whatever_its_size(
    model: str, matching: str
) -> None:
    cluster = Cluster()
    cluster.publish(*slices("n1", gpus("h100-80gb-sxm")))
    cluster.put_class("shared", SHARED)
    await cluster.settle("shared")
    cluster.publish(*slices("n2", gpus(model, sharing=["Mps"])))
    await cluster.settle("shared")
    assert verdicts(cluster, "shared")["Ready"] == "True Compiled"
    assert verdicts(cluster, "shared")["Matching"] == matching


async def test_a_driver_that_is_too_old_everywhere_is_told_with_the_newest() -> None:
    cluster = Cluster()
    cluster.publish(*slices("n1", gpus("a30-24gb", driver_version="535.104.05")))
    cluster.publish(*slices("n2", gpus("a30-24gb", driver_version="550.9")))
    cluster.put_class("recent", {"device": "gpu", "cut": "Whole", "minimumDriverVersion": "550.54"})
    await cluster.settle("recent")
    assert verdicts(cluster, "recent")["Ready"] == "True Compiled"
    assert cluster.condition("recent", "Matching").message == (
        "spec.minimumDriverVersion: none of the 2 published devices with cut whole, exclusive allocation has driver "
        "version 550.54 or later; the newest is 550.9.0"
    )


async def test_the_count_follows_what_is_published() -> None:
    cluster = Cluster()
    cluster.put_class("small", SMALL)
    await cluster.settle("small")
    matching = cluster.condition("small", "Matching")
    assert (matching.status, matching.message) == ("False", "no node has published devices of gpu.kerf.dev yet")
    cluster.seconds += 60
    cluster.publish(*slices("n1", gpus("a30")), *slices("n2", gpus("a30", 2)))
    assert [write.verb for write in await cluster.settle("small")] == ["status"]
    counted = cluster.status("small").matching_devices
    assert counted is not None
    assert (counted.total, counted.cards, counted.nodes) == (3, 3, 2)
    assert [event[2] for event in cluster.events] == ["Compiled", "NothingMatches", "DevicesMatch"]


async def test_a_class_that_matches_nothing_is_explained_by_the_devices_of_its_own_driver() -> None:
    cluster = Cluster()
    cluster.publish(*slices("n1", fpgas("quad")), *slices("n1", gpus("a30")))
    cluster.put_class("large", {"device": "gpu", "minimum": {"memory": "100Gi"}})
    await cluster.settle("large")
    condition = cluster.condition("large", "Matching")
    assert condition.status == "False"
    assert condition.message.startswith("spec.minimum.memory: none of the ")


async def test_a_class_in_shares_waits_for_the_nodes_to_offer_them() -> None:
    cluster = Cluster()
    cluster.publish(*slices("n1", gpus("h100-80gb-sxm")))
    cluster.put_class("shares", {"device": "gpu", "profile": "3g.40gb", "allocation": "Shared"})
    await cluster.settle("shares")
    condition = cluster.condition("shares", "Matching")
    assert (condition.status, condition.reason) == ("Unknown", "NotOfferedYet")
    assert condition.message == (
        "spec.allocation: none of the 2 published devices with cut partition, profile 3g.40gb has shared "
        "allocation (yet): nodes publish it within seconds; shares from Kubernetes 1.36.2 on"
    )
    cluster.publish(*slices("n1", gpus("h100-80gb-sxm"), shareable=frozenset({"3g.40gb"})))
    await cluster.settle("shares")
    assert cluster.condition("shares", "Matching").status == "True"
    assert cluster.status("shares").matching_devices == MatchingDevices(total=2, cards=1, nodes=1)


async def test_a_class_without_devices_says_which_field_is_to_blame() -> None:
    cluster = Cluster()
    cluster.publish(*slices("n1", gpus("a30")))
    cluster.put_class("large", LARGE)
    await cluster.settle("large")
    assert cluster.condition("large", "Matching").message == (
        "spec.minimum.memory: none of the 13 published devices with cut partition has memory of at least "
        "70Gi; the largest is 23.4375Gi (4g.24gb of a30-24gb)"
    )


async def test_hardware_that_no_table_knows_can_be_offered_once_it_is_published() -> None:
    cluster = Cluster()
    spec = {"device": "gpu", "profile": "1g.33gb"}
    cluster.put_class("new", spec)
    await cluster.settle("new")
    assert verdicts(cluster, "new")["Accepted"] == "False UnknownProfile"
    cluster.publish(*(_renamed(one, "1g.35gb", "1g.33gb") for one in slices("n1", gpus("gb300-278gb"))))
    await cluster.settle("new")
    assert verdicts(cluster, "new")["Matching"] == "True DevicesMatch"


def _renamed(published: ResourceSlice, old: str, new: str) -> ResourceSlice:
    """Driver branch 61x prints other names for the profiles of a GB300 than 59x, which the tables follow."""
    text = msgspec.json.encode(KINDS.resource_slices.encode(published))
    return KINDS.resource_slices.decode(text.replace(f'"{old}"'.encode(), f'"{new}"'.encode()))


async def test_a_class_in_shares_of_what_shares_cannot_divide_says_so() -> None:
    """A function without compute units: the condition promised shares within seconds, for ever."""
    cluster = Cluster()
    cluster.publish(*slices("n1", fpgas("quad", count=2)))
    cluster.put_class("shares", {"device": "fpga", "function": "aes-gcm", "allocation": "Shared"})
    await cluster.settle("shares")
    condition = cluster.condition("shares", "Matching")
    assert (condition.status, condition.reason) == ("False", "NothingMatches")
    assert condition.message.endswith(
        "has shared allocation, and none can have it: shares divide computeUnitPercent, and these devices have none"
    )


async def test_a_class_in_shares_of_graphics_without_memory_waits_and_matches() -> None:
    cluster = Cluster()
    cards = [Card(uuid=f"INTEL-{n}", index=n, geometry=intel_geometry(describe_card(0x7D55, 0, 1))) for n in range(2)]
    cluster.publish(*slices("n1", cards))
    cluster.put_class("shares", {"device": "gpu-intel", "cut": "Whole", "allocation": "Shared"})
    await cluster.settle("shares")
    assert cluster.condition("shares", "Matching").reason == "NotOfferedYet"
    cluster.publish(*slices("n1", cards, shareable=frozenset({None}), generation=2))
    await cluster.settle("shares")
    assert cluster.condition("shares", "Matching").reason == "DevicesMatch"

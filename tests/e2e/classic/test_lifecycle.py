"""Claims that Kerf's controller allocates, as real pods on a real kubelet (upstream: ``test/e2e/dra`` of 1.30)."""

import pytest

from tests.e2e.classic.dialects import KERF
from tests.e2e.classic.marks import immediate, referring
from tests.e2e.classic.namespace import CONTEXT, ClassicNamespace, container
from tests.e2e.namespace import FORGOTTEN_S
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import CONTROLLER, Kerf
from tools.realcluster.versions import KubernetesVersion

ONE = {"resourceClaimName": "one"}
TEMPLATE = {"resourceClaimTemplateName": "small"}


async def test_a_pod_with_a_template_gets_a_partition_of_the_size_it_asks_for(namespace: ClassicNamespace) -> None:
    # K-1 to K-6; R-1, R-21
    await namespace.template("size", "gpu-by-size", await namespace.parameters("size", {"minimum": {"memory": "18Gi"}}))
    await namespace.pod("pod", {"gpu": {"resourceClaimTemplateName": "size"}})
    await namespace.wait_running("pod")
    assert [profile for _, profile, _ in namespace.node.gpu_partitions] == ["1g.20gb"]
    await namespace.delete_pod("pod")
    await eventually("the generated claim is gone", namespace.has_no_claims)


async def test_several_claims_of_a_pod_are_allocated_together(namespace: ClassicNamespace) -> None:
    # S-15
    for name in ("one", "two"):
        await namespace.claim(name, "gpu-small")
    await namespace.pod("pod", {"a": ONE, "b": {"resourceClaimName": "two"}})
    await namespace.wait_running("pod")
    assert len(namespace.node.gpu_partitions) == 2


async def test_many_containers_of_many_pods_see_what_their_claims_gave_them(namespace: ClassicNamespace) -> None:
    """Generated claims and one that pods share, in two containers and an init container."""
    await namespace.template("small", "gpu-small")
    await namespace.claim("shared", "gpu-shared")
    claims = {"own": TEMPLATE, "shared": {"resourceClaimName": "shared"}}
    both = [container(name, "own", "shared") for name in ("main", "second")]
    first = container("first", "own", command='test -n "$(env | grep ^KERF_DEVICE_)"')
    for name in ("p1", "p2", "p3"):
        await namespace.pod(name, claims, containers=both, initContainers=[first])
    seen = {}
    for name in ("p1", "p2", "p3"):
        main, second = [dict((await namespace.read_report(name, one)).kerf_devices) for one in ("main", "second")]
        assert main == second
        assert len(main) == 2
        seen[name] = set(main)
    (shared,) = set.intersection(*seen.values())
    assert len(set.union(*seen.values()) - {shared}) == 3


async def test_a_claim_that_no_container_uses_is_allocated_and_until_1_30_not_prepared(
    namespace: ClassicNamespace, version: KubernetesVersion
) -> None:
    # K-7
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE}, containers=[container("main")])
    await namespace.wait_running("pod")
    assert len(await namespace.devices()) == 1
    assert len(namespace.node.gpu_partitions) == (0 if version.minor == "1.30" else 1)


async def test_a_pod_may_have_a_gpu_and_an_fpga_function(namespace: ClassicNamespace) -> None:
    function = await namespace.parameters("aes-gcm", {"function": "aes-gcm"}, "FpgaClaimParameters")
    await namespace.claim("function", "fpga", function)
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE, "fpga": {"resourceClaimName": "function"}})
    await namespace.wait_running("pod")
    assert [function for _, function, _ in namespace.node.fpga_functions] == ["aes-gcm"]


@immediate
async def test_an_immediate_claim_is_allocated_without_a_pod_and_used_by_one_after_the_other(
    namespace: ClassicNamespace,
) -> None:
    # C-18
    await namespace.claim("one", "gpu-small", immediate=True)
    allocation = await namespace.wait_allocated("one")
    for name in ("first", "second", "third"):
        await namespace.pod(name, {"gpu": ONE})
        await namespace.wait_running(name)
        await namespace.delete_pod(name)
        await namespace.wait_clean()  # docs/classic.md: a kubelet before 1.37 forgets a claim that is taken over sooner
    assert await namespace.wait_allocated("one") == allocation


async def test_two_pods_share_a_claim_and_the_device_stays_with_the_last(namespace: ClassicNamespace) -> None:
    # R-10, K-8
    await namespace.claim("one", "gpu-shared")
    for name in ("first", "second"):
        await namespace.pod(name, {"gpu": ONE})
    await namespace.wait_running("first")
    await namespace.wait_running("second")
    assert len(namespace.node.gpu_partitions) == 1
    await namespace.delete_pod("first")
    await namespace.wait_gone("Pod", "first")
    assert len(namespace.node.gpu_partitions) == 1


async def test_a_claim_is_deallocated_after_its_last_pod_and_allocated_again_for_the_next(
    namespace: ClassicNamespace,
) -> None:
    # C-4 by deallocationRequested, R-11, R-26
    await namespace.claim("one", "gpu-small")
    await namespace.pod("first", {"gpu": ONE})
    await namespace.wait_running("first")
    await namespace.delete_pod("first")
    await namespace.wait_released("one")
    await namespace.wait_clean()
    await namespace.pod("second", {"gpu": ONE})
    await namespace.wait_running("second")


async def test_a_pod_that_is_done_gives_its_claim_back_and_one_that_starts_again_keeps_it(
    namespace: ClassicNamespace,
) -> None:
    """Deallocation follows the end of the pod, not of its containers."""
    await namespace.template("small", "gpu-small")
    await namespace.claim("one", "gpu-small")
    once = "test -e /tmp-once/there || { touch /tmp-once/there; exit 1; }; sleep 1000000"
    again = container("main", "gpu", command=once) | {"volumeMounts": [{"name": "once", "mountPath": "/tmp-once"}]}
    volumes = [{"name": "once", "emptyDir": {}}]
    await namespace.pod("restarts", {"gpu": TEMPLATE}, containers=[again], volumes=volumes, restartPolicy="OnFailure")
    await namespace.pod("ends", {"gpu": ONE}, containers=[container("main", "gpu", command="true")])
    await namespace.wait_phase("pod ends has ended", "ends", "Succeeded")
    await namespace.wait_released("one")

    async def has_restarted() -> bool:
        status = (await namespace.api.get("v1", "Pod", "restarts", namespace.name))["status"]
        return [one["restartCount"] for one in status.get("containerStatuses", ()) if one["ready"]] == [1]

    await eventually("the container has started again", has_restarted)

    async def is_one() -> bool:
        return len(await namespace.devices()) == len(namespace.node.gpu_partitions) == 1

    await eventually("one device and its partition are left", is_one, within_s=FORGOTTEN_S)


async def test_a_claim_that_is_in_use_is_deleted_only_when_its_pod_has_ended(namespace: ClassicNamespace) -> None:
    # C-2, then C-4
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_running("pod")
    await namespace.delete_claim("one")
    assert len(namespace.node.gpu_partitions) == 1
    assert "allocation" in (await namespace.read_claim("one"))["status"]
    await namespace.delete_pod("pod")
    await namespace.wait_gone("ResourceClaim", "one")


@immediate
async def test_a_claim_is_deallocated_after_its_class_and_parameters_are_gone(namespace: ClassicNamespace) -> None:
    # R-3
    await namespace.class_(namespace.name)
    await namespace.claim(
        "one", namespace.name, await namespace.parameters("size", {"profile": "2g.20gb"}), immediate=True
    )
    await namespace.wait_allocated("one")
    await namespace.delete_class(namespace.name)
    await namespace.api.delete(KERF, "GpuClaimParameters", "size", namespace.name)
    await namespace.delete_claim("one")
    await namespace.wait_gone("ResourceClaim", "one")


async def test_a_pods_claim_is_deallocated_after_its_class_is_gone(namespace: ClassicNamespace) -> None:
    # R-3, in every release
    await namespace.class_(namespace.name)
    await namespace.claim("one", namespace.name, await namespace.parameters("size", {"profile": "2g.20gb"}))
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_running("pod")
    await namespace.delete_class(namespace.name)
    await namespace.delete_pod("pod")
    await namespace.wait_released("one")


async def test_a_pod_waits_for_its_class_and_runs_once_it_is_there(namespace: ClassicNamespace) -> None:
    # Q-8
    await namespace.claim("one", namespace.name, await namespace.parameters("size", {"profile": "1g.10gb"}))
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_event("pod", namespace.name)
    await namespace.class_(namespace.name)
    await namespace.wait_running("pod")
    await namespace.delete_class(namespace.name)


@referring
async def test_wrong_parameters_are_told_of_and_corrected_ones_let_the_pod_run(namespace: ClassicNamespace) -> None:
    # S-10, Q-9: events on claim and pod that name the field
    await namespace.claim("one", "gpu-by-size", await namespace.parameters("size", {"profile": "9g.90gb"}))
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_event("pod", 'spec.profile: "9g.90gb" is not a profile')
    await namespace.wait_event("one", 'spec.profile: "9g.90gb" is not a profile')
    right = {"spec": {"profile": "1g.10gb"}}
    await namespace.api.patch(KERF, "GpuClaimParameters", "size", right, namespace.name)
    await namespace.wait_running("pod")


async def test_pods_that_do_not_fit_wait_and_run_when_there_is_room(namespace: ClassicNamespace) -> None:
    # Q-13, R-19: two cards, three whole ones are asked for
    whole = await namespace.parameters("whole", {"cut": "Whole"})
    for number in range(3):
        await namespace.claim(f"c{number}", "gpu-by-size", whole)
        await namespace.pod(f"p{number}", {"gpu": {"resourceClaimName": f"c{number}"}})

    async def running() -> list[str] | None:
        pods = await namespace.api.list("v1", "Pod", namespace.name)
        names = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
        return names if len(names) == 2 else None

    first = await eventually("two pods run", running)
    (waiting,) = {"p0", "p1", "p2"} - set(first)
    await namespace.delete_pod(first[0])
    await namespace.wait_running(waiting)


async def test_ten_pods_use_two_cards_one_after_the_other(namespace: ClassicNamespace) -> None:
    """Four halves of cards at a time: every pod ends by itself and makes room; nothing is lost on the way."""
    await namespace.template("half", "gpu-by-size", await namespace.parameters("half", {"profile": "3g.40gb"}))
    names = [f"p{number}" for number in range(10)]
    for name in names:
        main = container("main", "gpu", command="true")
        await namespace.pod(name, {"gpu": {"resourceClaimTemplateName": "half"}}, containers=[main])
    for name in names:
        await namespace.wait_phase(f"pod {name} has ended", name, "Succeeded", within_s=120)


async def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing(namespace: ClassicNamespace) -> None:
    await namespace.claim("one", "gpu-by-size", await namespace.parameters("whole", {"cut": "Whole", "count": 3}))
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_event("pod", "")
    await namespace.delete_pod("pod")
    await namespace.wait_gone("Pod", "pod")
    assert namespace.node.gpu_partitions == []
    assert await namespace.devices() == []


@pytest.mark.parametrize("source", [ONE, TEMPLATE], ids=["claim", "template"])
async def test_a_pod_that_never_met_the_scheduler_gets_its_claim(
    namespace: ClassicNamespace, source: dict[str, str]
) -> None:
    # S-13
    await namespace.claim("one", "gpu-small")
    await namespace.template("small", "gpu-small")
    await namespace.pod("pod", {"gpu": source}, nodeName=namespace.node.name)
    await namespace.wait_running("pod")


async def test_what_was_given_stands_in_the_claim_and_nowhere_else(
    namespace: ClassicNamespace, kerf: Kerf, cluster: Cluster
) -> None:
    # NE-01: the controller is killed, its successor decides the same
    for name in ("one", "two"):
        await namespace.claim(name, "gpu-small")
    await namespace.pod("first", {"gpu": ONE})
    allocation = await namespace.wait_allocated("one")
    await cluster.processes.kill(CONTROLLER)
    await namespace.pod("second", {"gpu": {"resourceClaimName": "two"}})
    await kerf.start_controller()
    await namespace.wait_allocated_count(2)
    assert await namespace.wait_allocated("one") == allocation


async def test_contexts_end_with_the_scheduling_of_their_pods(namespace: ClassicNamespace) -> None:
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_running("pod")

    async def contexts() -> list[Document]:
        return await namespace.api.list(namespace.resource, CONTEXT, namespace.name)

    async def have_ended() -> bool:
        return not await contexts()

    await eventually("there is no context", have_ended, but=contexts)

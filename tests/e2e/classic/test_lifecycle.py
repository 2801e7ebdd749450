"""Claims that Kerf's controller allocates, as real pods on a real kubelet 1.30 (``test/e2e/dra`` of 1.30 upstream)."""

import json

from tests.e2e.classic.scene import KERF, RESOURCE, Scene
from tests.e2e.eventually import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import CONTROLLER, Kerf

ONE = {"resourceClaimName": "one"}


async def test_a_pod_with_a_template_gets_a_partition_of_the_size_it_asks_for(scene: Scene) -> None:
    # T-E driver, T-E claimTests delayed inline, K-1 to K-6
    reference = await scene.parameters("size", {"minimum": {"memory": "18Gi"}})
    await scene.template("size", "gpu-by-size", parametersRef=reference)
    await scene.pod("pod", {"gpu": {"resourceClaimTemplateName": "size"}})
    await scene.runs("pod")
    assert [profile for _, profile, _ in scene.node.cut] == ["1g.20gb"]
    await scene.delete_pod("pod")
    await eventually("the generated claim is gone", scene._no_claims)


async def test_several_claims_of_a_pod_are_allocated_together(scene: Scene) -> None:
    # T-E claimTests many containers, S-15
    for name in ("one", "two"):
        await scene.claim(name, "gpu-small")
    await scene.pod("pod", {"a": ONE, "b": {"resourceClaimName": "two"}})
    await scene.runs("pod")
    assert len(scene.node.cut) == 2


async def test_a_pod_may_have_a_gpu_and_an_fpga_function(scene: Scene) -> None:
    reference = await scene.parameters("aes-gcm", {"function": "aes-gcm"}, "FpgaClaimParameters")
    await scene.claim("function", "fpga", parametersRef=reference)
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE, "fpga": {"resourceClaimName": "function"}})
    await scene.runs("pod")
    assert [function for _, function, _ in scene.node.loaded] == ["aes-gcm"]


async def test_an_immediate_claim_is_allocated_without_a_pod_and_used_by_one_after_the_other(scene: Scene) -> None:
    # T-E re-uses an allocated immediate claim; C-18
    await scene.claim("one", "gpu-small", allocationMode="Immediate")
    allocation = await scene.allocated("one")
    for name in ("first", "second"):
        await scene.pod(name, {"gpu": ONE})
        await scene.runs(name)
        await scene.delete_pod(name)
        await scene.gone("Pod", name)
    assert await scene.allocated("one") == allocation


async def test_two_pods_share_a_claim_and_the_device_stays_with_the_last(scene: Scene) -> None:
    # T-E shares an allocated claim; R-10, K-8
    await scene.claim("one", "gpu-shared")
    for name in ("first", "second"):
        await scene.pod(name, {"gpu": ONE})
    await scene.runs("first")
    await scene.runs("second")
    assert len(scene.node.cut) == 1
    await scene.delete_pod("first")
    await scene.gone("Pod", "first")
    assert len(scene.node.cut) == 1


async def test_a_claim_is_deallocated_after_its_last_pod_and_allocated_again_for_the_next(scene: Scene) -> None:
    # T-E deallocates after use; C-4 by deallocationRequested, R-11, R-26
    await scene.claim("one", "gpu-small")
    await scene.pod("first", {"gpu": ONE})
    await scene.runs("first")
    await scene.delete_pod("first")
    await scene.released("one")
    await scene.pod("second", {"gpu": ONE})
    await scene.runs("second")


async def test_a_claim_that_is_in_use_is_deleted_only_when_its_pod_has_ended(scene: Scene) -> None:
    # C-2, then C-4
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})
    await scene.runs("pod")
    await scene.api.delete(RESOURCE, "ResourceClaim", "one", scene.namespace)
    assert len(scene.node.cut) == 1
    assert "allocation" in (await scene.api.get(RESOURCE, "ResourceClaim", "one", scene.namespace))["status"]
    await scene.delete_pod("pod")
    await scene.gone("ResourceClaim", "one")


async def test_a_claim_is_deallocated_after_its_class_and_parameters_are_gone(scene: Scene) -> None:
    #
    class_ = {"apiVersion": RESOURCE, "kind": "ResourceClass", "metadata": {"name": scene.namespace}}
    await scene.api.create({**class_, "driverName": "kerf.dev"})
    reference = await scene.parameters("size", {"profile": "2g.20gb"})
    await scene.claim("one", scene.namespace, allocationMode="Immediate", parametersRef=reference)
    await scene.allocated("one")
    await scene.api.delete(RESOURCE, "ResourceClass", scene.namespace)
    await scene.api.delete(KERF, "GpuClaimParameters", "size", scene.namespace)
    await scene.api.delete(RESOURCE, "ResourceClaim", "one", scene.namespace)
    await scene.gone("ResourceClaim", "one")


async def test_a_pod_waits_for_its_class_and_runs_once_it_is_there(scene: Scene) -> None:
    # T-E pod waits, then runs after the class is created; Q-8
    await scene.claim("one", scene.namespace, parametersRef=await scene.parameters("size", {"profile": "1g.10gb"}))
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", "does not exist")
    class_ = {"apiVersion": RESOURCE, "kind": "ResourceClass", "metadata": {"name": scene.namespace}}
    await scene.api.create({**class_, "driverName": "kerf.dev"})
    await scene.runs("pod")
    await scene.api.delete(RESOURCE, "ResourceClass", scene.namespace)


async def test_wrong_parameters_are_told_of_and_corrected_ones_let_the_pod_run(scene: Scene) -> None:
    # S-10, Q-9: events on claim and pod that name the field
    reference = await scene.parameters("size", {"profile": "9g.90gb"})
    await scene.claim("one", "gpu-by-size", parametersRef=reference)
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", 'spec.profile: "9g.90gb" is no profile')
    await scene.says("one", 'spec.profile: "9g.90gb" is no profile')
    right = {"spec": {"profile": "1g.10gb"}}
    await scene.api.patch(KERF, "GpuClaimParameters", "size", right, scene.namespace)
    await scene.runs("pod")


async def test_pods_that_do_not_fit_wait_and_run_when_there_is_room(scene: Scene) -> None:
    # T-E node-local: all resources used: two cards, three whole ones are asked for
    reference = await scene.parameters("whole", {"cut": "Whole"})
    for number in range(3):
        await scene.claim(f"c{number}", "gpu-by-size", parametersRef=reference)
        await scene.pod(f"p{number}", {"gpu": {"resourceClaimName": f"c{number}"}})

    async def running() -> list[str] | None:
        pods = await scene.api.list("v1", "Pod", scene.namespace)
        names = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
        return names if len(names) == 2 else None

    first = await eventually("two pods run", running)
    (waiting,) = {"p0", "p1", "p2"} - set(first)
    await scene.delete_pod(first[0])
    await scene.runs(waiting)


async def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing(scene: Scene) -> None:
    reference = await scene.parameters("whole", {"cut": "Whole", "count": 3})
    await scene.claim("one", "gpu-by-size", parametersRef=reference)
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", "")
    await scene.delete_pod("pod")
    await scene.gone("Pod", "pod")
    assert scene.node.cut == []


async def test_a_pod_that_never_met_the_scheduler_gets_its_claim(scene: Scene) -> None:
    # T-E pre-scheduled pod; S-13
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE}, nodeName=scene.node.name)
    await scene.runs("pod")


async def test_what_was_given_stands_in_the_claim_and_nowhere_else(scene: Scene, kerf: Kerf, cluster: Cluster) -> None:
    # NE-01: the controller is killed, its successor decides the same
    await scene.claim("one", "gpu-small", allocationMode="Immediate")
    allocation = await scene.allocated("one")
    await cluster.processes.kill(CONTROLLER)
    await scene.claim("two", "gpu-small", allocationMode="Immediate")
    await kerf.start_controller()
    other = await scene.allocated("two")
    given = [json.loads(one["resourceHandles"][0]["data"])["results"][0]["device"] for one in (allocation, other)]
    assert len(set(given)) == 2

"""Claims that Kerf's controller allocates, as real pods on a real kubelet (upstream: ``test/e2e/dra`` of 1.30)."""

import pytest

from tests.e2e.classic.dialects import KERF
from tests.e2e.classic.marks import immediate, referring
from tests.e2e.classic.scene import CONTEXT, Scene, container
from tests.e2e.wait import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import CONTROLLER, Kerf
from tests.realcluster.versions import KubernetesVersion

ONE = {"resourceClaimName": "one"}
TEMPLATE = {"resourceClaimTemplateName": "small"}


async def test_a_pod_with_a_template_gets_a_partition_of_the_size_it_asks_for(scene: Scene) -> None:
    # K-1 to K-6; R-1, R-21
    await scene.template("size", "gpu-by-size", await scene.parameters("size", {"minimum": {"memory": "18Gi"}}))
    await scene.pod("pod", {"gpu": {"resourceClaimTemplateName": "size"}})
    await scene.runs("pod")
    assert [profile for _, profile, _ in scene.node.cut] == ["1g.20gb"]
    await scene.delete_pod("pod")
    await eventually("the generated claim is gone", scene.has_no_claims)


async def test_several_claims_of_a_pod_are_allocated_together(scene: Scene) -> None:
    # S-15
    for name in ("one", "two"):
        await scene.claim(name, "gpu-small")
    await scene.pod("pod", {"a": ONE, "b": {"resourceClaimName": "two"}})
    await scene.runs("pod")
    assert len(scene.node.cut) == 2


async def test_many_containers_of_many_pods_see_what_their_claims_gave_them(scene: Scene) -> None:
    """Generated claims and one that pods share, in two containers and an init container."""
    await scene.template("small", "gpu-small")
    await scene.claim("shared", "gpu-shared")
    claims = {"own": TEMPLATE, "shared": {"resourceClaimName": "shared"}}
    both = [container(name, "own", "shared") for name in ("main", "second")]
    first = container("first", "own", command='test -n "$(env | grep ^KERF_DEVICE_)"')
    for name in ("p1", "p2", "p3"):
        await scene.pod(name, claims, containers=both, initContainers=[first])
    seen = {}
    for name in ("p1", "p2", "p3"):
        main, second = [dict((await scene.tells(name, one)).kerf_devices) for one in ("main", "second")]
        assert main == second
        assert len(main) == 2
        seen[name] = set(main)
    (shared,) = set.intersection(*seen.values())
    assert len(set.union(*seen.values()) - {shared}) == 3


async def test_a_claim_that_no_container_uses_is_allocated_and_until_1_30_not_prepared(
    scene: Scene, version: KubernetesVersion
) -> None:
    # K-7
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE}, containers=[container("main")])
    await scene.runs("pod")
    assert len(await scene.devices()) == 1
    assert len(scene.node.cut) == (0 if version.minor == "1.30" else 1)


async def test_a_pod_may_have_a_gpu_and_an_fpga_function(scene: Scene) -> None:
    function = await scene.parameters("aes-gcm", {"function": "aes-gcm"}, "FpgaClaimParameters")
    await scene.claim("function", "fpga", function)
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE, "fpga": {"resourceClaimName": "function"}})
    await scene.runs("pod")
    assert [function for _, function, _ in scene.node.loaded] == ["aes-gcm"]


@immediate
async def test_an_immediate_claim_is_allocated_without_a_pod_and_used_by_one_after_the_other(scene: Scene) -> None:
    # C-18
    await scene.claim("one", "gpu-small", immediate=True)
    allocation = await scene.allocated("one")
    for name in ("first", "second", "third"):
        await scene.pod(name, {"gpu": ONE})
        await scene.runs(name)
        await scene.delete_pod(name)
        await scene.nothing_left()  # docs/classic.md: a kubelet before 1.37 forgets a claim that is taken over sooner
    assert await scene.allocated("one") == allocation


async def test_two_pods_share_a_claim_and_the_device_stays_with_the_last(scene: Scene) -> None:
    # R-10, K-8
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
    # C-4 by deallocationRequested, R-11, R-26
    await scene.claim("one", "gpu-small")
    await scene.pod("first", {"gpu": ONE})
    await scene.runs("first")
    await scene.delete_pod("first")
    await scene.released("one")
    await scene.nothing_left()
    await scene.pod("second", {"gpu": ONE})
    await scene.runs("second")


async def test_a_pod_that_is_done_gives_its_claim_back_and_one_that_starts_again_keeps_it(scene: Scene) -> None:
    """Deallocation follows the end of the pod, not of its containers."""
    await scene.template("small", "gpu-small")
    await scene.claim("one", "gpu-small")
    once = "test -e /tmp-once/there || { touch /tmp-once/there; exit 1; }; sleep 1000000"
    again = container("main", "gpu", command=once) | {"volumeMounts": [{"name": "once", "mountPath": "/tmp-once"}]}
    volumes = [{"name": "once", "emptyDir": {}}]
    await scene.pod("restarts", {"gpu": TEMPLATE}, containers=[again], volumes=volumes, restartPolicy="OnFailure")
    await scene.pod("ends", {"gpu": ONE}, containers=[container("main", "gpu", command="true")])
    await scene.pod_is("pod ends has ended", "ends", "Succeeded")
    await scene.released("one")

    async def has_restarted() -> bool:
        pod = await scene.runs("restarts")
        return bool(pod["status"]["containerStatuses"][0]["restartCount"] == 1)

    await eventually("the container has started again", has_restarted)
    assert len(await scene.devices()) == len(scene.node.cut) == 1


async def test_a_claim_that_is_in_use_is_deleted_only_when_its_pod_has_ended(scene: Scene) -> None:
    # C-2, then C-4
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})
    await scene.runs("pod")
    await scene.delete_claim("one")
    assert len(scene.node.cut) == 1
    assert "allocation" in (await scene.read_claim("one"))["status"]
    await scene.delete_pod("pod")
    await scene.gone("ResourceClaim", "one")


@immediate
async def test_a_claim_is_deallocated_after_its_class_and_parameters_are_gone(scene: Scene) -> None:
    # R-3
    await scene.class_(scene.namespace)
    await scene.claim("one", scene.namespace, await scene.parameters("size", {"profile": "2g.20gb"}), immediate=True)
    await scene.allocated("one")
    await scene.delete_class(scene.namespace)
    await scene.api.delete(KERF, "GpuClaimParameters", "size", scene.namespace)
    await scene.delete_claim("one")
    await scene.gone("ResourceClaim", "one")


async def test_a_pods_claim_is_deallocated_after_its_class_is_gone(scene: Scene) -> None:
    # R-3, in every release
    await scene.class_(scene.namespace)
    await scene.claim("one", scene.namespace, await scene.parameters("size", {"profile": "2g.20gb"}))
    await scene.pod("pod", {"gpu": ONE})
    await scene.runs("pod")
    await scene.delete_class(scene.namespace)
    await scene.delete_pod("pod")
    await scene.released("one")


async def test_a_pod_waits_for_its_class_and_runs_once_it_is_there(scene: Scene) -> None:
    # Q-8
    await scene.claim("one", scene.namespace, await scene.parameters("size", {"profile": "1g.10gb"}))
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", scene.namespace)
    await scene.class_(scene.namespace)
    await scene.runs("pod")
    await scene.delete_class(scene.namespace)


@referring
async def test_wrong_parameters_are_told_of_and_corrected_ones_let_the_pod_run(scene: Scene) -> None:
    # S-10, Q-9: events on claim and pod that name the field
    await scene.claim("one", "gpu-by-size", await scene.parameters("size", {"profile": "9g.90gb"}))
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", 'spec.profile: "9g.90gb" is no profile')
    await scene.says("one", 'spec.profile: "9g.90gb" is no profile')
    right = {"spec": {"profile": "1g.10gb"}}
    await scene.api.patch(KERF, "GpuClaimParameters", "size", right, scene.namespace)
    await scene.runs("pod")


async def test_pods_that_do_not_fit_wait_and_run_when_there_is_room(scene: Scene) -> None:
    # Q-13, R-19: two cards, three whole ones are asked for
    whole = await scene.parameters("whole", {"cut": "Whole"})
    for number in range(3):
        await scene.claim(f"c{number}", "gpu-by-size", whole)
        await scene.pod(f"p{number}", {"gpu": {"resourceClaimName": f"c{number}"}})

    async def running() -> list[str] | None:
        pods = await scene.api.list("v1", "Pod", scene.namespace)
        names = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
        return names if len(names) == 2 else None

    first = await eventually("two pods run", running)
    (waiting,) = {"p0", "p1", "p2"} - set(first)
    await scene.delete_pod(first[0])
    await scene.runs(waiting)


async def test_ten_pods_use_two_cards_one_after_the_other(scene: Scene) -> None:
    """Four halves of cards at a time: every pod ends by itself and makes room; nothing is lost on the way."""
    await scene.template("half", "gpu-by-size", await scene.parameters("half", {"profile": "3g.40gb"}))
    names = [f"p{number}" for number in range(10)]
    for name in names:
        main = container("main", "gpu", command="true")
        await scene.pod(name, {"gpu": {"resourceClaimTemplateName": "half"}}, containers=[main])
    for name in names:
        await scene.pod_is(f"pod {name} has ended", name, "Succeeded", within_s=120)


async def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing(scene: Scene) -> None:
    await scene.claim("one", "gpu-by-size", await scene.parameters("whole", {"cut": "Whole", "count": 3}))
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", "")
    await scene.delete_pod("pod")
    await scene.gone("Pod", "pod")
    assert scene.node.cut == []
    assert await scene.devices() == []


@pytest.mark.parametrize("source", [ONE, TEMPLATE], ids=["claim", "template"])
async def test_a_pod_that_never_met_the_scheduler_gets_its_claim(scene: Scene, source: dict[str, str]) -> None:
    # S-13
    await scene.claim("one", "gpu-small")
    await scene.template("small", "gpu-small")
    await scene.pod("pod", {"gpu": source}, nodeName=scene.node.name)
    await scene.runs("pod")


async def test_what_was_given_stands_in_the_claim_and_nowhere_else(scene: Scene, kerf: Kerf, cluster: Cluster) -> None:
    # NE-01: the controller is killed, its successor decides the same
    for name in ("one", "two"):
        await scene.claim(name, "gpu-small")
    await scene.pod("first", {"gpu": ONE})
    allocation = await scene.allocated("one")
    await cluster.processes.kill(CONTROLLER)
    await scene.pod("second", {"gpu": {"resourceClaimName": "two"}})
    await kerf.start_controller()
    await scene.all_allocated(2)
    assert await scene.allocated("one") == allocation


async def test_contexts_end_with_the_scheduling_of_their_pods(scene: Scene) -> None:
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})
    await scene.runs("pod")
    assert await scene.api.list(scene.resource, CONTEXT, scene.namespace) == []

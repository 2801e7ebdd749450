"""Upgrade, rollback and uninstall with claims held, by Helm as in docs/install.md."""

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests import upgrade
from tests.e2e.wait import eventually
from tests.e2e.why_audit import ask_why
from tests.installation.release import SIMULATED, SMALL, Release, import_kerf_image
from tools.helm.chart import CHART, RefusedError
from tools.image import description
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, ready_s

DEFINITION: Final = "resourceclasses.kerf.dev"
SHORT: Final = "    - kclass\n"
NEXT: Final = "    - kclassnext\n"
"""A short name that the definition has in the next version only."""


def next_chart(folder: Path) -> Path:
    """Return this checkout's chart with a definition that has changed."""
    chart = folder / "kerf"
    shutil.copytree(CHART, chart)
    file = chart / "templates" / "crds" / "kerf.dev_resourceclasses.yaml"
    text = file.read_text()
    assert text.count(SHORT) == 1
    file.write_text(text.replace(SHORT, SHORT + NEXT))
    return chart


async def has_next_definition(api: Api) -> bool:
    found = await api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", DEFINITION)
    return NEXT.strip(" -\n") in found["spec"]["names"]["shortNames"]


def starts(pod: Document) -> Any:
    return pod["metadata"]["uid"], [
        (one["containerID"], one["restartCount"]) for one in pod["status"]["containerStatuses"]
    ]


async def wait_image(release: Release, image: str) -> None:
    """Wait until the only plugin is one of ``image``."""

    async def is_of_image() -> bool:
        return bool((await release.wait_plugin())["spec"]["containers"][0]["image"] == image)

    await eventually(f"the plugin is of {image}", is_of_image, within_s=ready_s(), but=release.describe_pods)


async def delete_pod(api: Api, release: Release, name: str) -> None:
    await api.delete("v1", "Pod", name, "default")
    await release.wait_pod_gone(name)


async def test_pods_keep_their_devices_in_an_upgrade_and_a_rollback_which_change_the_definitions(
    cluster: Cluster, api: Api, release: Release, tmp_path: Path
) -> None:
    # 1. The earlier version, and pods with claims.
    await import_kerf_image(cluster, tmp_path, upgrade.IMAGE, upgrade.INPUTS)
    await release.open_namespace()
    await release.label_node()
    await release.run("install", {**SIMULATED, "image": {"tag": upgrade.TAG}}, chart=upgrade.CHART)
    await wait_image(release, upgrade.IMAGE)
    stays, goes = await release.run_pod("stays"), await release.run_pod("goes")
    assert not await has_next_definition(api)

    # 2. Upgraded: the new plugin knows what the old one has prepared.
    await release.run("upgrade", SIMULATED, chart=next_chart(tmp_path))
    await wait_image(release, description.NAME)
    assert await has_next_definition(api)
    await release.wait_controllers()
    new = await release.run_pod("new")
    assert starts(await release.wait_phase("stays", "Running")) == starts(stays)
    assert starts(await release.wait_phase("goes", "Running")) == starts(goes)
    await delete_pod(api, release, "goes")

    # 3. Rolled back: the old plugin knows what the new one has prepared.
    await release.run("rollback", None, "1")
    await wait_image(release, upgrade.IMAGE)
    assert not await has_next_definition(api)
    await release.run_pod("late")
    assert starts(await release.wait_phase("stays", "Running")) == starts(stays)
    assert starts(await release.wait_phase("new", "Running")) == starts(new)
    for name in ("stays", "new", "late"):
        await delete_pod(api, release, name)
    await release.run("uninstall")
    await release.wait_gone()


async def test_an_uninstall_is_refused_while_claims_are_held_and_pods_end_in_either_order(
    cluster: Cluster, api: Api, release: Release
) -> None:
    await release.open_namespace()
    await release.label_node()
    await release.run("install", SIMULATED)
    await release.wait_plugin()
    held = await release.run_pod("held")

    # 1. Too early: refused, with what to do, and Kerf goes on.
    with pytest.raises(RefusedError, match="kerf-uninstall-check"):
        await release.run("uninstall")
    (check,) = await release.uninstall_checks()
    said = " ".join(release.log(check).split())  # lines are wrapped
    assert "namespace default: 1 claim has devices: held-gpu-" in said
    assert "kubectl delete pod -n default held" in said
    await release.wait_plugin()

    # 2. Helm calls the release uninstalling: it is kept by a rollback to its last revision.
    with pytest.raises(RefusedError, match="has no deployed releases"):
        await release.run("upgrade", SIMULATED)
    await release.run("rollback", None, "1")
    await release.run("upgrade", SIMULATED)
    await release.wait_plugin()
    assert starts(await release.wait_phase("held", "Running")) == starts(held)

    # 3. In the wrong order all the same: the pod does not end, Kerf says why, and it ends when Kerf is there again.
    await release.run("uninstall", None, "--no-hooks")
    await release.wait_gone()
    await api.delete("v1", "Pod", "held", "default")

    async def why() -> Document:
        _, report = await ask_why(cluster, "pod/held")
        return report

    async def is_explained() -> bool:
        return any(cause["code"] == "driver-absent" for cause in (await why())["causes"])

    await eventually("the pod waits for a plugin, and is told so", is_explained, but=why)
    await release.run("install", SIMULATED)
    await release.wait_pod_gone("held")

    # 4. In the right order: the definitions stay, with the class.
    await release.run("uninstall")
    await release.wait_gone()
    assert await release.uninstall_checks() == []
    assert await api.find(SMALL["apiVersion"], SMALL["kind"], "small") is not None
    for name in ("kerf-controller", "kerf-uninstall-check"):
        assert await api.find("rbac.authorization.k8s.io/v1", "ClusterRole", name) is None

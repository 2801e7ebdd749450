"""``kerf check cluster`` on a real cluster, which alone answers access reviews and tells its feature gates."""

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

import anyio

from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
ROLE: Final = "rbac.authorization.k8s.io/v1"


async def check(cluster: Cluster) -> tuple[int, Mapping[str, Any]]:
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "check", "cluster", "-o", "json"]
    done = await anyio.run_process([*command, f"--kubeconfig={cluster.kubeconfig}"], check=False)
    return done.returncode, json.loads(done.stdout)


async def test_a_cluster_with_kerf_has_nothing_to_complain_about(cluster: Cluster, namespace: Namespace) -> None:
    async def find_no_fault() -> Mapping[str, Any] | None:
        code, document = await check(cluster)
        return document if (code, document["verdict"]) == (0, "ok") else None

    document = await eventually("the authorizer has seen all roles", find_no_fault, but=lambda: check(cluster))
    assert {one["check"] for one in document["checks"]} >= {
        "feature-gates",
        "permissions",
        "container-runtime",
        "clock",
    }


async def find_problem(cluster: Cluster) -> Mapping[str, Any] | None:
    code, document = await check(cluster)
    return document if code == 1 else None


async def test_a_permission_that_somebody_took_away_is_a_problem(cluster: Cluster, namespace: Namespace) -> None:
    role = await namespace.api.get(ROLE, "ClusterRole", "kerf-controller")
    assert role is not None
    kept = [rule for rule in role["rules"] if "deviceclasses" not in rule["resources"]]
    await namespace.api.patch(ROLE, "ClusterRole", "kerf-controller", {"rules": kept})
    try:
        document = await eventually("the authorizer has seen the role", lambda: find_problem(cluster))
    finally:
        await namespace.api.patch(ROLE, "ClusterRole", "kerf-controller", {"rules": role["rules"]})
    (found,) = [one for one in document["checks"] if one["level"] == "problem"]
    assert "kerf-system/kerf-controller may not create deviceclasses.resource.k8s.io" in found["message"]

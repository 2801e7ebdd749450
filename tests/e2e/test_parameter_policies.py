"""The policies on parameters (``deploy/manifests/16-parameters.yaml``), as the API server itself evaluates them."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
import yaml

from kerf_dra.driver.families.parameter_policy import build_parameter_policy
from tests.e2e.wait import eventually
from tests.families.parameter_cases import ACME, ACME_FAMILY, CASES, FPGA, GPU, ParameterCase
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import DEPLOY
from tools.realcluster.versions import KubernetesVersion

NODES = ()
PATHS = {
    "ResourceClaim": "spec.devices.config",
    "ResourceClaimTemplate": "spec.spec.devices.config",
    "DeviceClass": "spec.config",
}
WRONG: Document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"}}
REFUSED = "opaque.parameters.sharing.strategy: must be one of Exclusive, Mps, TimeSlicing"


def write(kind: str, version: str, *config: Document, name: str = "c") -> Document:
    """An object with ``config`` where its kind has it."""
    spec: Document = {"config": list(config)}
    for outer in reversed(PATHS[kind].split(".")[:-1]):
        spec = {outer: spec}
    namespace = {} if kind == "DeviceClass" else {"namespace": "default"}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": name, **namespace}, **spec}


def entry(driver: str, parameters: object) -> Document:
    return {"opaque": {"driver": driver, "parameters": parameters}}


async def refusal(api: Api, document: Document) -> str:
    """What the API server says to a dry run; empty: it would create the object."""
    try:
        await api.create(document, dryRun="All")
    except StatusError as error:
        return f"{error.code} {error.message}"
    return ""


@pytest.fixture(scope="module")
async def policies(api: Api) -> AsyncIterator[list[Document]]:
    """The policies of Kerf's own families and of a third party's, once they are in force."""
    documents = list(yaml.safe_load_all((DEPLOY / "manifests" / "16-parameters.yaml").read_text()))
    documents += build_parameter_policy(ACME_FAMILY)
    for document in documents:
        await api.apply(document)

    async def are_in_force() -> bool:
        wrong = {"apiVersion": "v0"}
        refused = [await refusal(api, write("DeviceClass", "v1", entry(driver, wrong))) for driver in (GPU, FPGA, ACME)]
        return all(refused)

    await eventually("the policies are in force", are_in_force)
    yield documents
    for document in documents:
        await api.delete(document["apiVersion"], document["kind"], document["metadata"]["name"])


def served(version: KubernetesVersion) -> Iterator[str]:
    return (one for one in version.resource_versions if not one.startswith("v1alpha"))


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.usefixtures("policies")
async def test_every_version_of_every_kind_is_judged_as_the_plugin_would(
    api: Api, version: KubernetesVersion, kind: str, case: ParameterCase
) -> None:
    for one in served(version):
        said = await refusal(api, write(kind, one, entry(case.driver, case.parameters)))
        assert bool(said) == bool(case.problems), said
        assert not said or said.startswith("422 "), said
        for problem in case.problems:
            assert f"{PATHS[kind]}[0].opaque.parameters{problem}" in said, said
        assert said.count("opaque.parameters") == len(case.problems), said


@pytest.mark.usefixtures("policies")
async def test_what_stands_there_already_can_be_changed_elsewhere(api: Api, policies: list[Document]) -> None:
    """A finalizer of an object from before the policy can be removed."""
    binding = next(one for one in policies if one["kind"].endswith("Binding") and GPU in one["metadata"]["name"])
    await api.delete(binding["apiVersion"], binding["kind"], binding["metadata"]["name"])
    old = write("DeviceClass", "v1", entry(GPU, WRONG), name="from-before")

    async def is_allowed() -> bool:
        return not await refusal(api, old)

    await eventually("the policy is no longer in force", is_allowed)
    old["metadata"]["finalizers"] = ["kerf.dev/test"]
    await api.create(old)
    await api.apply(binding)

    async def is_refused() -> bool:
        return bool(await refusal(api, {**old, "metadata": {"name": "another"}}))

    await eventually("the policy is in force", is_refused)
    await api.patch("resource.k8s.io/v1", "DeviceClass", "from-before", {"metadata": {"finalizers": None}})
    change = {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}
    with pytest.raises(StatusError, match=r"sharing\.strategy"):
        await api.patch("resource.k8s.io/v1", "DeviceClass", "from-before", change)
    await api.delete("resource.k8s.io/v1", "DeviceClass", "from-before")


@pytest.mark.usefixtures("policies")
async def test_thirty_two_entries_of_the_largest_size_are_judged_within_the_cost_limit(api: Api) -> None:
    """10 KiB of parameters in each (``OpaqueParametersMaxLength``), once with few long names, once with many short."""
    long = {**WRONG, "x" * 9000: 1}
    many = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"} | {f"f{number}": 1 for number in range(1000)}
    for parameters in (long, many):
        said = await refusal(api, write("DeviceClass", "v1", *[entry(GPU, parameters)] * 32))
        assert said.endswith(" ...")
        assert "spec.config[0].opaque.parameters" in said


async def test_the_type_checker_finds_nothing_to_warn_of(api: Api, policies: list[Document]) -> None:
    for document in policies:
        if document["kind"] == "ValidatingAdmissionPolicy":

            async def is_checked(document: Document = document) -> Any:
                found = await api.get(document["apiVersion"], document["kind"], document["metadata"]["name"])
                return found.get("status", {}).get("observedGeneration") and found["status"]

            status = await eventually("its types are checked", is_checked)
            assert not status.get("typeChecking", {}).get("expressionWarnings"), status


@pytest.mark.usefixtures("policies")
async def test_kubectl_apply_prints_the_field(cluster: Cluster) -> None:
    document = json.dumps(write("ResourceClaimTemplate", "v1", entry(GPU, WRONG)))
    done = await anyio.run_process(cluster.kubectl("apply", "--filename=-"), input=document.encode(), check=False)
    assert done.returncode == 1
    assert f"spec.spec.devices.config[0].{REFUSED}" in done.stderr.decode()

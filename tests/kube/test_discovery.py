from typing import Any

import pytest

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES
from kerf_dra.driver.kube.discovery import discover, discover_any, discover_classic, prove_absence
from kerf_dra.driver.kube.http.errors import NotFoundError, ServerError, UnexpectedAnswerError
from tests.kube.memory_server import MemoryServer, answering, failing
from tests.runtime.virtual_time import VIRTUAL_TIME

GROUP = "/apis/resource.k8s.io"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def cluster(minor: str, served: dict[str, list[str]], *, major: str = "1") -> MemoryServer:
    """``served``: version to plural names."""
    server = MemoryServer()
    server.json["/version"] = {"major": major, "minor": minor, "gitVersion": f"v1.{minor}.0"}
    server.json["/apis"] = {"groups": [{"name": "apps"}, *([{"name": "resource.k8s.io"}] if served else [])]}
    if served:
        server.json[GROUP] = {"versions": [{"version": version} for version in served]}
    for version, plurals in served.items():
        server.json[f"{GROUP}/{version}"] = {"resources": [{"name": plural} for plural in plurals]}
    return server


RULES = "devicetaintrules"
SLICES = "resourceslices"


@pytest.mark.parametrize(
    ("minor", "served", "version", "split", "rules"),
    [
        ("37", {"v1": [SLICES, RULES], "v1beta2": [SLICES, RULES]}, "v1", True, "v1"),
        ("36+", {"v1": [SLICES], "v1beta2": [SLICES, RULES]}, "v1", True, "v1beta2"),
        ("35-eks", {"v1": [SLICES], "v1alpha3": [RULES]}, "v1", True, "v1alpha3"),
        ("34", {"v1": [SLICES]}, "v1", False, None),
        ("33", {"v1beta1": [SLICES], "v1beta2": [SLICES]}, "v1beta2", False, None),
        ("32", {"v1beta1": [SLICES]}, "v1beta1", False, None),
    ],
)
async def test_a_cluster_is_known_by_its_version_and_what_it_serves(
    minor: str, served: dict[str, list[str]], version: str, split: bool, rules: str | None
) -> None:
    features = await discover(cluster(minor, served).client())
    assert features.kubernetes == (1, int(minor[:2]))
    assert features.resource.version == version
    assert features.split_counter_slices is split
    assert (features.device_taint_rules and features.device_taint_rules.version) == rules


@pytest.mark.parametrize(
    ("reported", "patch"),
    [("v1.36.1", 1), ("v1.36.10-gke.1234", 10), ("v1.36.2+k3s1", 2), ("v1.37.0-alpha.3", 0), ("v1.36+", 0), (None, 0)],
)
async def test_the_patch_version_is_what_the_server_says_and_0_where_it_says_none(
    reported: str | None, patch: int
) -> None:
    server = cluster("36", {"v1": [SLICES]})
    server.json["/version"]["gitVersion"] = reported
    assert (await discover(server.client())).patch == patch


@pytest.mark.parametrize("served", [dict[str, list[str]](), {"v1alpha2": [SLICES]}])
async def test_a_cluster_without_dra_is_an_error_that_says_how_to_enable_it(served: dict[str, list[str]]) -> None:
    with pytest.raises(UnsupportedError, match=r"use Kubernetes 1\.34 or later, or enable the API with --runtime"):
        await discover(cluster("31", served).client())


@pytest.mark.parametrize("version", [{"major": ""}, {"major": "one", "minor": "37"}])
async def test_a_server_that_does_not_tell_its_version_is_an_error(version: dict[str, Any]) -> None:
    server = cluster("37", {"v1": [SLICES]})
    server.json["/version"] = version
    with pytest.raises(UnsupportedError, match="does not report its version"):
        await discover(server.client())


@pytest.mark.parametrize("path", ["/version", "/apis/resource.k8s.io", "/apis/resource.k8s.io/v1alpha3"])
@pytest.mark.parametrize("answer", [{}, {"kind": "Status", "status": "Success"}], ids=["empty", "a Status"])
async def test_an_answer_that_is_no_discovery_is_asked_for_again_instead_of_ending_the_process(
    path: str, answer: dict[str, Any]
) -> None:
    server = cluster("37", {"v1": [SLICES], "v1alpha3": ["devicetaintrules"]})
    server.json[path] = answer
    with pytest.raises(UnexpectedAnswerError, match=rf"GET {path}: the answer has no "):
        await discover(server.client())


async def test_a_server_that_fails_is_not_taken_for_one_without_dra() -> None:
    server = cluster("37", {"v1": [SLICES]})
    server.faults.append(failing(answering(503), name="resource.k8s.io"))
    with pytest.raises(ServerError):
        await discover(server.client())


@pytest.mark.parametrize("served", [{"v1": [SLICES]}, {"v1alpha2": [], "v1beta1": [SLICES]}, {}])
async def test_a_server_with_structured_dra_or_none_has_no_classic_dra(served: dict[str, list[str]]) -> None:
    assert await discover_classic(cluster("32", served).client()) is None


async def test_a_server_where_drivers_allocate_has_classic_dra() -> None:
    plurals = ["resourceclaims", "resourceclaimtemplates", "resourceclasses", "podschedulingcontexts"]
    found = await discover_classic(cluster("30", {"v1alpha2": plurals}).client())
    assert found is not None
    assert found.kubernetes == (1, 30)


PAGE_404 = NotFoundError("GET", 404, "", "default backend - 404")
"""What a proxy says, and an API server of a path that it does not have: neither is a Status."""


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"groups": [{"name": "apps"}, {"name": "resource.k8s.io"}]}, "it is in the list of all groups"),
        ({"groups": []}, "the list of all groups is empty"),
        ({"groups": None}, "the list of all groups is empty"),
        ({"groups": [{"name": "apps"}, {}]}, "the groups of the answer have no name"),
        ({"groups": "none"}, "the groups of the answer have no name"),
        ({"kind": "Status"}, "the answer has no groups"),
        (None, "every API server has /apis"),
    ],
)
@pytest.mark.parametrize("answer", [None, {"versions": []}], ids=["404", "no versions"])
async def test_only_the_list_of_all_groups_proves_that_a_cluster_has_no_dra(
    groups: dict[str, Any] | None, says: str, answer: dict[str, Any] | None
) -> None:
    """A proxy's page for one path ended the controller and the plugin of a cluster with DRA: "enable the API"."""
    server = cluster("37", {"v1": [SLICES]})
    server.json |= {path: found for path, found in ((GROUP, answer), ("/apis", groups)) if found is not None}
    missing = [path for path, found in ((GROUP, answer), ("/apis", groups)) if found is None]
    server.faults.append(lambda request: PAGE_404 if request.path in missing else None)
    with pytest.raises(UnexpectedAnswerError, match=says):
        await discover_any(server.client())


@pytest.mark.parametrize("path", ["/version", f"{GROUP}/v1alpha3", f"{GROUP}/v1alpha2"])
async def test_a_404_for_a_document_that_is_served_is_asked_for_again(path: str) -> None:
    served = {"v1": [SLICES], "v1alpha3": [RULES]} if "v1alpha2" not in path else {"v1alpha2": [SLICES]}
    server = cluster("37", served)
    server.faults.append(lambda request: PAGE_404 if request.path == path else None)
    with pytest.raises(UnexpectedAnswerError, match="default backend"):
        await discover_any(server.client())


@pytest.mark.parametrize("entries", [[{}], [{"version": 1}], ["v1"], "v1", {"v1": 1}, 7])
async def test_versions_of_another_form_are_no_answer(entries: Any) -> None:
    """They ended the process with a traceback."""
    server = cluster("37", {"v1": [SLICES]})
    server.json[GROUP] = {"versions": entries}
    with pytest.raises(UnexpectedAnswerError, match="versions of the answer have no version"):
        await discover_any(server.client())


@pytest.mark.parametrize(
    "documents",
    [
        {"/apis": {"groups": [{"name": "apps"}]}},
        {"/apis/kerf.dev": {"versions": [{"version": "v1"}]}, "/apis": {"groups": [{"name": "kerf.dev"}]}},
        {
            "/apis/kerf.dev": {"versions": [{"version": "v1alpha1"}]},
            "/apis/kerf.dev/v1alpha1": {"resources": [{"name": "fpgashells"}]},
        },
    ],
    ids=["no such group", "no such version", "no such kind"],
)
async def test_what_discovery_lacks_is_not_served(documents: dict[str, Any]) -> None:
    server = MemoryServer(json=documents)
    server.faults.append(lambda request: None if request.path in documents else PAGE_404)
    await prove_absence(server.client(), RESOURCE_CLASSES)

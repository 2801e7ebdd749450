"""Manifests are checked before anything is applied, and all problems are reported at once."""

import io
import sys
from pathlib import Path

import pytest

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.driver.demo.environment import find_packaged_folder
from kerf_dra.driver.demo.manifests import BadManifestsError, find_ineffective_objects, find_offers, load_manifests
from kerf_dra.driver.demo.scenario import EXAMPLES

CLASS = """
apiVersion: kerf.dev/v1alpha1
kind: ResourceClass
metadata: {name: small}
spec: {device: gpu, minimum: {memory: 4Gi}}
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: small}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: small}}]}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: small}]
  containers: [{name: main, image: busybox, resources: {limits: {cpu: 1}, claims: [{name: gpu}]}}]
"""


def write(folder: Path, *documents: str, name: str = "objects.yaml") -> Path:
    file = folder / name
    file.write_text("---".join(documents))
    return file


def lines_of(*paths: Path) -> list[str]:
    with pytest.raises(BadManifestsError) as caught:
        load_manifests(paths)
    return list(caught.value.lines)


def test_what_others_refer_to_is_applied_first(tmp_path: Path) -> None:
    file = write(tmp_path, POD, TEMPLATE, CLASS)
    assert [manifest.kind for manifest in load_manifests([file])] == ["ResourceClass", "ResourceClaimTemplate", "Pod"]


def test_quantities_may_be_bare_numbers_as_on_a_real_api_server(tmp_path: Path) -> None:
    pod = POD + "  overhead: {cpu: 1, memory: 1048576}\n  volumes: [{name: v, emptyDir: {sizeLimit: 1024}}]\n"
    assert len(load_manifests([write(tmp_path, pod, TEMPLATE, CLASS)])) == 3


def test_a_directory_stands_for_its_manifests(tmp_path: Path) -> None:
    write(tmp_path, POD, name="b.yaml")
    write(tmp_path, TEMPLATE, CLASS, name="a.yml")
    write(tmp_path, "not a manifest", name="README.md")
    assert len(load_manifests([tmp_path])) == 3


BAD = [
    # what is written, in which document, and the line that tells it (after the file's name)
    (
        CLASS.replace("minimum", "minimun"),
        'ResourceClass small: spec.minimun: unknown field; did you mean "minimum"?',
    ),
    (CLASS.replace("4Gi", "4Gx"), 'ResourceClass small: spec.minimum.memory: "4Gx" is not a quantity'),
    (TEMPLATE.replace("exactly", "exact"), "spec.spec.devices.requests[0].exact: unknown field"),
    (POD.replace("image", "imgae"), "Pod p: spec.containers[0].imgae: unknown field"),
    (POD.replace("cpu: 1", "cpu: [1]"), "Pod p: spec.containers[0].resources.limits.cpu: should be a valid string"),
    (POD.replace("{name: p}", "{}"), "Pod without name: metadata.name: is required"),
    (POD.replace("{name: p}", "{name: P_1}"), "Pod P_1: metadata.name: must be a DNS subdomain"),
    (
        POD.replace("{name: p}", r'{name: "p\e[31m\a"}'),
        "Pod p\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}: meta",
    ),
    (POD.replace("TemplateName: small", "TemplateName: big"), "no ResourceClaimTemplate big in namespace default"),
    (
        POD.replace("spec:", "spec:\n  schedulerName: kai-scheduler", 1),
        "Pod p: spec.schedulerName: no scheduler kai-scheduler runs here: leave it out",
    ),
    (
        POD.replace("{name: p}", "{name: p, namespace: lab}"),
        "Pod p: metadata.namespace: no Namespace lab is given, and the cluster has only default, kube-node-lease,",
    ),
    (TEMPLATE.replace("Name: small", "Name: big"), "deviceClassName: no ResourceClass or DeviceClass big"),
    ("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\n", "kind: apps/v1 DaemonSet is not known here"),
    ("[]\n", "is a list, not an object"),
    ("a: [\n", "cannot be read"),
]


@pytest.mark.parametrize(("document", "line"), BAD)
def test_a_bad_document_is_told_with_its_path(tmp_path: Path, document: str, line: str) -> None:
    file = write(tmp_path, document)
    [told] = [told for told in lines_of(file, write(tmp_path, CLASS, TEMPLATE, name="good.yaml")) if line in told]
    assert told.startswith(f"{file}: ")


def test_a_namespace_may_be_given_or_one_that_every_cluster_has(tmp_path: Path) -> None:
    """One that was not there ended the demo after its start, with an answer of the API server and logs."""
    lab = "\napiVersion: v1\nkind: Namespace\nmetadata: {name: lab}\n"
    config = "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: NAMESPACE}\n"
    documents = [lab, *(config.replace("NAMESPACE", name) for name in ("lab", "kube-system", "default"))]
    assert len(load_manifests([write(tmp_path, *documents)])) == 4


def test_all_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    first = write(tmp_path, POD.replace("image", "imgae"), CLASS.replace("4Gi", "x"), name="1.yaml")
    second = write(tmp_path, TEMPLATE.replace("exactly", "exact"), name="2.yaml")
    lines = lines_of(first, second, tmp_path / "missing.yaml")
    assert [line.split(":")[0] for line in lines[:4]] == [
        str(tmp_path / "missing.yaml"),
        str(first),
        str(first),
        str(second),
    ]
    assert f"{first}: document 2: ResourceClass small: spec.minimum.memory" in lines[2]


def test_kerfs_own_parameters_inside_a_claim_are_checked_too(tmp_path: Path) -> None:
    parameters = "{apiVersion: kerf.dev/v1alpha1, kind: GpuConfig, sharing: {strategy: Half}}"
    config = f"config: [{{opaque: {{driver: gpu.kerf.dev, parameters: {parameters}}}}}], requests"
    lines = lines_of(write(tmp_path, CLASS, TEMPLATE.replace("requests", config)))
    assert "spec.spec.devices.config[0].opaque.parameters.sharing.strategy" in lines[0]


def test_the_same_object_twice_is_refused(tmp_path: Path) -> None:
    assert "is given twice" in lines_of(write(tmp_path, CLASS, CLASS))[0]


def test_an_empty_selection_of_files_is_an_error(tmp_path: Path) -> None:
    assert lines_of(tmp_path) == [f"no manifest in {tmp_path}"]


def test_the_shipped_examples_are_good() -> None:
    assert {
        manifest.kind for manifest in load_manifests([find_packaged_folder("examples") / name for name in EXAMPLES])
    } >= {
        "ResourceClass",
        "ResourceClaimTemplate",
        "Pod",
    }


def test_where_the_client_library_is_missing_the_error_says_where_to_run_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image has no kubernetes, whose models check core kinds; Kerf's own kinds need none."""
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    load_manifests([write(tmp_path, CLASS)])
    with pytest.raises(UnsupportedError, match="run the demo where Kerf is installed with pip"):
        load_manifests([write(tmp_path, CLASS, POD)])


STRAY = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: stray, namespace: kube-public}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: small}}]}}
"""
OFFER = """
apiVersion: kerf.dev/v1alpha1
kind: ResourceClass
metadata: {name: offered}
spec: {device: gpu, profile: 1g.10gb, devicePlugin: {resource: example.com/gpu, perNode: 2}}
"""


def test_what_no_pod_uses_is_found(tmp_path: Path) -> None:
    manifests = load_manifests([write(tmp_path, CLASS, TEMPLATE, POD, STRAY, OFFER)])
    file = tmp_path / "objects.yaml"
    assert [*find_ineffective_objects(manifests)] == [
        f"{file}: document 4: ResourceClaim stray: no pod uses it, so nothing gets its devices",
    ]
    assert not [*find_ineffective_objects(load_manifests([write(tmp_path, CLASS, TEMPLATE, POD)]))]


def test_the_offers_of_classes_are_what_nodes_are_waited_for(tmp_path: Path) -> None:
    other = OFFER.replace("offered", "other").replace("com/gpu, perNode: 2", "com/mig, perNode: 3")
    assert find_offers(load_manifests([write(tmp_path, CLASS, OFFER, other)])) == {
        "example.com/gpu": 2,
        "example.com/mig": 3,
    }


def test_a_container_that_names_no_claim_of_its_pod_is_found_before_anything_starts(tmp_path: Path) -> None:
    """The API server refuses such a pod, and the whole demo once ended with its answer and logs."""
    misspelt = POD.replace("claims: [{name: gpu}]", "claims: [{name: gpus}]")
    file = write(tmp_path, CLASS, TEMPLATE, misspelt)
    with pytest.raises(BadManifestsError) as raised:
        load_manifests([file])
    assert raised.value.lines == (
        (
            f"{file}: document 3: Pod p: spec.containers[0].resources.claims[0].name: no claim gpus is in "
            "spec.resourceClaims; the pod has gpu"
        ),
    )


FLAT = TEMPLATE.replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1").replace(
    "exactly: {deviceClassName: small}", "deviceClassName: small"
)


def test_a_manifest_of_any_version_that_the_api_server_converts_is_applied_as_v1(tmp_path: Path) -> None:
    [flat] = [each for each in load_manifests([write(tmp_path, CLASS, FLAT, POD)]) if each.kind.endswith("Template")]
    [v1] = [each for each in load_manifests([write(tmp_path, CLASS, TEMPLATE, POD)]) if each.kind.endswith("Template")]
    assert flat.body["apiVersion"] == "resource.k8s.io/v1"
    assert flat.body["spec"]["spec"]["devices"] == v1.body["spec"]["spec"]["devices"]
    missing = write(tmp_path, FLAT.replace("deviceClassName: small", "deviceClassName: big"))
    assert "spec.spec.devices.requests[0].deviceClassName: no ResourceClass or DeviceClass big" in lines_of(missing)[0]


GROUP = "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: g}\n"
WITHOUT_ROOM = TEMPLATE.replace("name: small}\nspec", "name: small, namespace: team}\nspec")
FORMS = {
    "the form of v1beta1 in v1": (
        [CLASS, TEMPLATE.replace("exactly: {deviceClassName: small}", "deviceClassName: small")],
        'requests[0].deviceClassName: unknown field; v1 has it below "exactly": write exactly: {deviceClassName: ...}',
    ),
    "a pod in the form of Kubernetes 1.30": (
        [
            CLASS,
            TEMPLATE,
            POD.replace("resourceClaimTemplateName: small", "source: {resourceClaimTemplateName: small}"),
        ],
        "spec.resourceClaims[0].source: unknown field; Kubernetes 1.31 and later have its fields in the entry itself",
    ),
    "a misspelt field of a pod": ([POD.replace("image", "imgae")], 'imgae: unknown field; did you mean "image"?'),
    "a misspelt field in a list of a workload": (
        ["apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {selector: {matchLabel: {}}}\n"],
        'spec.selector.matchLabel: unknown field; did you mean "matchLabels"?',
    ),
    "a misspelt kind": ([POD.replace("Pod", "Podd")], "kind: v1 Podd is not known here; did you mean Pod?"),
    "another version of a kind": (
        [POD.replace("v1", "v2")],
        "apiVersion: v2 has no Pod that is known here; write v1",
    ),
    "a version that is not converted": (
        [TEMPLATE.replace("k8s.io/v1", "k8s.io/v1alpha3")],
        "is not a version that Kubernetes 1.32 and later convert",
    ),
    "a template in another namespace": (
        [CLASS, WITHOUT_ROOM, POD],
        (
            "no ResourceClaimTemplate small in namespace default is given; there is one in namespace team, and pods "
            "use those of their own: write one namespace in both"
        ),
    ),
    "a misspelt template": (
        [CLASS, TEMPLATE, POD.replace("TemplateName: small", "TemplateName: smal")],
        "no ResourceClaimTemplate smal in namespace default is given; did you mean small?",
    ),
    "a misspelt class": (
        [CLASS, TEMPLATE.replace("Name: small", "Name: smal")],
        "no ResourceClass or DeviceClass smal is given; did you mean small?",
    ),
    "a class that only the cluster has": (
        [TEMPLATE.replace("Name: small", "Name: gold")],
        "gold is given; there is fpga.kerf.dev, gpu-intel.kerf.dev, gpu.kerf.dev",
    ),
    "a group of pods": ([GROUP], "kind: PodGroup is not known here: the demo's scheduler places each pod alone"),
    "a pod of a group": (
        [CLASS, TEMPLATE, POD + "  schedulingGroup: {podGroupName: g}\n"],
        "spec.schedulingGroup: the demo's scheduler places each pod alone: leave it out",
    ),
}


@pytest.mark.parametrize(("documents", "line"), FORMS.values(), ids=FORMS.keys())
def test_a_problem_says_what_to_write_instead(tmp_path: Path, documents: list[str], line: str) -> None:
    assert any(line in told for told in lines_of(write(tmp_path, *documents)))


def test_a_field_is_reported_once_by_all_checks_of_a_document(tmp_path: Path) -> None:
    bad = POD.replace("claims: [{name: gpu}]", "claims: [{nam: gpu}]")
    paths = [line.split(": ")[3] for line in lines_of(write(tmp_path, CLASS, TEMPLATE, bad)) if "resources" in line]
    assert paths.count("spec.containers[0].resources.claims[0].nam") == 1


def test_manifests_are_read_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))
    kinds = [each.kind for each in load_manifests([Path("-"), write(tmp_path, CLASS, TEMPLATE)])]
    assert kinds == ["ResourceClass", "ResourceClaimTemplate", "Pod"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: [\n")))
    assert lines_of(Path("-"))[0].startswith("-: cannot be read: ")

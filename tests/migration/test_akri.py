"""Akri's Configurations become DiscoveryConfigurations, and what has no counterpart is said by its name."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.api.kerf.decoder import decode_discovery_configuration
from kerf_dra.api.kerf.discovery_objects import DiscoveryConfigurationObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import find_details_fault
from kerf_dra.driver.migration.akri import find_configurations, migrate_akri_objects
from kerf_dra.driver.migration.limits import migrate_workload

PAGE = Path(__file__).parents[2] / "docs/migrating.md"
UDEV = 'udevRules:\n- KERNEL=="video[0-9]*"\n'


def configuration(name: str = "cameras", namespace: str | None = None, **spec: Any) -> JsonObject:
    handler = {"name": "udev", "discoveryDetails": UDEV}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "resourceVersion": "1"}
    value = {"discoveryHandler": handler, **spec}
    return {"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": metadata, "spec": value}


def pod(*limits: dict[str, Any]) -> JsonObject:
    containers = [{"name": f"c{number}", "resources": {"limits": one}} for number, one in enumerate(limits)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}


def converted(*documents: JsonObject) -> tuple[list[JsonObject], list[str]]:
    """The documents and the remarks, without the one that is always there."""
    results = list(migrate_akri_objects(documents, find_details_fault))
    found = [document for result in results for document in result.documents]
    remarks = [remark for result in results for remark in (*result.remarks, *result.left)]
    assert ("remove Akri before you apply" in "".join(remarks[-1:])) is bool(found)
    return found, remarks[:-1] if found else remarks


def claims(document: JsonObject, *known: str) -> tuple[list[JsonObject], list[str]]:
    """The devices of the templates, and the remarks."""
    result = migrate_workload(document, {}, frozenset(known))
    assert result is not None
    templates = [one for one in result.documents if one["kind"] == "ResourceClaimTemplate"]
    return [one["spec"]["spec"]["devices"] for one in templates], [*result.remarks]


def test_discovery_capacity_and_properties_are_taken_over() -> None:
    document = configuration(capacity=3, brokerProperties={"WIDTH": "640"})
    [made], [remark] = converted(document)
    assert made == {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "DiscoveryConfiguration",
        "metadata": {"name": "cameras"},
        "spec": {
            "discoveryHandler": {"name": "udev", "details": UDEV},
            "capacity": 3,
            "brokerProperties": {"WIDTH": "640"},
            "extendedResourceDomain": "akri.sh",
        },
    }
    read = decode_discovery_configuration(
        DiscoveryConfigurationObject(metadata=ObjectMeta(name="cameras"), spec=made["spec"])
    )
    assert read.spec.unique_devices, "as in Akri"
    assert "compare what nodes find" in remark


def test_a_configuration_without_a_capacity_has_akris() -> None:
    [made], _ = converted(configuration())
    assert made["spec"]["capacity"] == 1


@pytest.mark.parametrize(
    ("handler", "made", "remark"),
    [
        (
            {"name": "debugEcho", "discoveryDetails": "descriptions: [foo]"},
            {"name": "debugEcho", "details": "descriptions: [foo]"},
            "DEBUG_ECHO_INSTANCES_SHARED",
        ),
        ({"name": "debugEcho", "discoveryDetails": '{"descriptions": ["a"], "shared": true}'}, None, None),
        (
            {"name": "onvif", "discoveryDetails": "ipAddresses: {}", "discoveryProperties": []},
            {"name": "onvif", "details": "ipAddresses: {}"},
            "the plugin has no handler onvif",
        ),
        ({"name": "opcua"}, {"name": "opcua"}, "the plugin has no handler opcua"),
        (
            {"name": "lab", "discoveryProperties": [{"name": "USER", "value": "me"}, {"name": "EMPTY"}]},
            {"name": "lab", "properties": {"USER": "me", "EMPTY": ""}},
            "the plugin has no handler lab",
        ),
    ],
    ids=["debugEcho", "debugEcho, shared", "onvif", "opcua", "one of their own"],
)
def test_a_handler_keeps_its_name_and_details_and_one_that_is_not_inside_is_told(
    handler: JsonObject, made: JsonObject | None, remark: str | None
) -> None:
    [found], remarks = converted(configuration(discoveryHandler=handler))
    assert made is None or found["spec"]["discoveryHandler"] == made
    assert [remark in told for told in remarks if remark] == [True] * bool(remark)
    assert len(remarks) == bool(remark)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"secretKeyRef": {"name": "login", "namespace": "lab", "key": "user"}}, "mount Secret lab/login into"),
        ({"configMapKeyRef": {"name": "sites", "key": "all", "optional": True}}, "mount ConfigMap sites into"),
    ],
)
def test_ak_24_a_value_from_a_secret_or_a_config_map_is_told(source: JsonObject, what: str) -> None:
    handler = {"name": "onvif", "discoveryProperties": [{"name": "USER", "valueFrom": source}]}
    [made], [_, remark] = converted(configuration(discoveryHandler=handler))
    assert made["spec"]["discoveryHandler"] == {"name": "onvif"}
    assert remark.startswith("Configuration cameras: spec.discoveryHandler.discoveryProperties: USER: left out:")
    assert what in remark


@pytest.mark.parametrize(
    ("spec", "field", "step"),
    [
        ({"brokerSpec": {"brokerPodSpec": {"containers": []}}}, "spec.brokerSpec.brokerPodSpec", "write a Deployment"),
        ({"brokerPodSpec": {"containers": []}}, "spec.brokerPodSpec", "write a Deployment"),
        ({"brokerSpec": {"brokerJobSpec": {"template": {}}}}, "spec.brokerSpec.brokerJobSpec", "write a Job"),
        ({"instanceServiceSpec": {"ports": []}}, "spec.instanceServiceSpec", "write a Deployment"),
        ({"configurationServiceSpec": {"ports": []}}, "spec.configurationServiceSpec", "write a Service"),
    ],
)
def test_ak_25_a_broker_and_a_service_are_told_with_what_to_write_instead(
    spec: JsonObject, field: str, step: str
) -> None:
    [made], [_, remark] = converted(configuration(**spec))
    assert made["spec"].keys() == {"discoveryHandler", "capacity", "extendedResourceDomain"}
    assert remark.startswith(f"Configuration cameras: {field}: left out: ")
    assert step in remark
    unset: JsonObject = dict.fromkeys(spec)
    [without], remarks = converted(configuration(**unset))
    assert (without, len(remarks)) == (made, 1), "null is unset"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (configuration(capacty=2), 'spec.capacty: unknown field; did you mean "capacity"?'),
        (configuration(brokerSpec={"brokerPod": {}}), "spec.brokerSpec.brokerPod: unknown field"),
        (
            configuration(discoveryHandler={"name": "udev", "discoveryDetail": ""}),
            "spec.discoveryHandler.discoveryDetail: unknown field",
        ),
        ({**configuration(), "apiVersion": "akri.sh/v1"}, "apiVersion: "),
        ({**configuration(), "spek": {}}, "spek: unknown field"),
        ({**configuration(), "spec": None}, "spec: is required"),
        (
            configuration(discoveryHandler={"name": "udev", "discoveryDetails": "udevRules: ['ACTION==\"add\"']"}),
            "spec.discoveryHandler.discoveryDetails: details.udevRules: udev rule",
        ),
        (
            configuration(discoveryHandler={"name": "debugEcho", "discoveryDetails": '{"debugEcho": {}}'}),
            "details.debugEcho unknown field",
        ),
        (configuration(brokerProperties={"resolution-width": "800"}), "spec.brokerProperties.resolution-width: "),
        (configuration(capacity=100_000), "spec.capacity: "),
        (configuration(name="Lab_cameras"), "metadata.name must be a DNS label"),
    ],
)
def test_ak_28_what_is_unknown_or_cannot_be_said_here_is_refused_with_its_field(
    document: JsonObject, reason: str
) -> None:
    found, [remark] = converted(document)
    assert not found
    assert remark.startswith(f"Configuration {document['metadata']['name']}: left out: ")
    assert reason in remark


def test_one_that_is_refused_hides_no_other_and_names_are_unique_without_namespaces() -> None:
    found, remarks = converted(
        configuration(capacty=1, namespace="a"),
        configuration(namespace="b"),
        configuration(namespace="c"),
        configuration(name="usb"),
        {"apiVersion": "akri.sh/v0", "kind": "Instance", "metadata": {"name": "usb-3f850a"}},
        {"apiVersion": "akri.sh/v0", "kind": "Agent", "metadata": {"name": "x"}},
        {"apiVersion": "apps/v1", "kind": "Configuration", "metadata": {"name": "somebody-else's"}},
    )
    assert [one["metadata"]["name"] for one in found] == ["cameras", "usb"]
    left_out = [remark for remark in remarks if ": left out: " in remark]
    assert [remark.split(": left out: ")[0] for remark in left_out] == [
        "Configuration a/cameras",
        "Configuration c/cameras",
        "Instance usb-3f850a",
        "Agent x",
    ]
    assert "rename it" in left_out[1]
    assert "kubectl get discovereddevices" in left_out[2]


def test_the_name_of_a_configuration_becomes_that_of_its_resource_for_which_its_pods_ask() -> None:
    """Akri's agent writes - for . and / in resources: Kerf refused such a Configuration, and its pods waited."""
    lab, usb = configuration(name="lab.cameras.v2"), configuration(name="usb")
    found, remarks = converted(lab, configuration(name="lab-cameras.v2"), usb)
    assert [one["metadata"]["name"] for one in found] == ["lab-cameras-v2", "usb"]
    assert [remark for remark in remarks if "compare what" not in remark] == [
        "Configuration lab.cameras.v2: metadata.name: becomes lab-cameras-v2, as Akri names its resources",
        "Configuration lab-cameras.v2: left out: another one is lab-cameras-v2 here, without namespaces: rename it",
    ]
    known = find_configurations([lab, usb])
    resources = ("akri.sh/lab-cameras-v2", "akri.sh/lab-cameras-v2-3f850a")
    devices, waits = claims(pod(*({name: 1} for name in resources)), *known)
    assert [one["requests"][0]["exactly"]["deviceClassName"] for one in devices] == [
        "lab-cameras-v2.shared.kerf.dev",
        "lab-cameras-v2-3f850a.shared.kerf.dev",
    ]
    assert not [remark for remark in waits if "the pod waits until" in remark]


def test_a_resource_that_akri_never_names_so_is_left() -> None:
    result = migrate_workload(
        pod({"akri.sh/lab.cameras": 1}, {"akri.sh/usb": 1}), {}, frozenset({"usb", "lab-cameras"})
    )
    assert result is not None
    assert [remark.split(": left as it is: ")[0] for remark in result.left] == [
        "Pod p, container c0: resources.limits.akri.sh/lab.cameras"
    ]
    assert "it writes - for each . and /" in result.left[0]


def test_pods_with_akris_limits_have_claims_for_any_device_and_for_this_one() -> None:
    devices, remarks = claims(pod({"akri.sh/cameras": "1"}, {"akri.sh/cameras-3f850a": 1}), "cameras")
    assert devices == [
        {"requests": [{"name": "device", "exactly": {"deviceClassName": f"{name}.shared.kerf.dev"}}]}
        for name in ("cameras", "cameras-3f850a")
    ]
    [remark] = remarks
    assert remark.startswith("Pod p, container c1: akri.sh/cameras-3f850a: names one device")


def test_ak_07_several_devices_of_a_configuration_are_different_and_slots_of_one_device_are_not() -> None:
    limits = {"nvidia.com/gpu": 1, "akri.sh/cameras": 2, "akri.sh/cameras-3f850a": 2}
    [devices], _ = claims(pod(limits), "cameras")
    assert [one["exactly"].get("count", 1) for one in devices["requests"]] == [1, 2, 2]
    assert devices["constraints"] == [{"requests": ["device-1"], "distinctAttribute": "shared.kerf.dev/uuid"}]


@pytest.mark.parametrize(
    ("resource", "known", "waits_for"),
    [
        ("akri.sh/cameras", ["usb"], "cameras"),
        ("akri.sh/cameras-3f850a", ["usb"], "cameras"),
        ("akri.sh/cameras-3f850a", ["cameras-3f850a"], None),
        ("akri.sh/cameras-3f850a", ["cameras"], None),
    ],
    ids=["a configuration", "a device", "a configuration with the name of a device", "a device of a known one"],
)
def test_a_configuration_that_the_files_do_not_have_is_named(
    resource: str, known: list[str], waits_for: str | None
) -> None:
    _, remarks = claims(pod({resource: 1}), *known)
    told = [remark for remark in remarks if "the pod waits until" in remark]
    assert [f"a DiscoveryConfiguration {waits_for}," in remark for remark in told] == [True] * bool(waits_for)


def test_the_page_shows_what_is_written() -> None:
    """docs/migrating.md has an example before and after."""
    section = PAGE.read_text().partition("### The same camera before and after")[2].partition("\n#")[0]
    before, after = ([*yaml.safe_load_all(block)] for block in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL))
    made, _ = converted(*before)
    workloads = [migrate_workload(one, {}, find_configurations(before)) for one in before]
    made += [document for result in workloads if result is not None for document in result.documents]
    assert made == after

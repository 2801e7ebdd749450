"""Converts Akri's Configurations (``akri.sh/v0``) to ``kerf.dev`` DiscoveryConfigurations. Pure.

Discovery, capacity and properties have a counterpart. Brokers and Services have none, and become remarks that say what
to write instead. An Instance has none in a file: nodes find its device again. Pods with ``akri.sh/...`` in their limits
are converted with those of device plugins (``kerf_dra.driver.migration.limits``).

The fields are those of Akri 0.6 to 0.13 (``deployment/helm/crds/akri-configuration-crd.yaml``,
``shared/src/akri/configuration.rs``).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_discovery_configuration
from kerf_dra.api.kerf.discovery_objects import DISCOVERY_CONFIGURATIONS, DiscoveryConfigurationObject
from kerf_dra.api.kerf.v1alpha1 import API_VERSION, Strict
from kerf_dra.api.kerf.validation import check_document, convert_document
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.migration.classic import MigrationResult, leave_out, report_unreadable

DOMAIN: Final = "akri.sh"
"""The API group of Akri's objects, and the domain of its extended resources."""
_VERSION: Final = f"{DOMAIN}/v0"
_INSTANCE: Final = re.compile(r"(.+)-[0-9a-f]{6}")
"""The name of an Instance: that of its Configuration with a digest of three bytes."""
_WRITE_A_HANDLER: Final = "docs/write-a-discovery-handler.md"

FindFault = Callable[[str, str], str | None]
"""Returns why the handler of a name does not take these details; None: it does, or it is no handler of the plugin."""


class _KeyReference(Strict):
    """A key of a Secret or ConfigMap."""

    key: str
    name: str
    namespace: str = ""
    optional: bool | None = None


class _ValueSource(Strict):
    secret_key_ref: _KeyReference | None = None
    config_map_key_ref: _KeyReference | None = None


class _DiscoveryProperty(Strict):
    name: str
    value: str | None = None
    value_from: _ValueSource | None = None


class _DiscoveryHandlerInfo(Strict):
    name: str
    discovery_details: str = ""
    discovery_properties: tuple[_DiscoveryProperty, ...] = ()


class _BrokerSpec(Strict):
    broker_pod_spec: JsonObject | None = None
    broker_job_spec: JsonObject | None = None


class _ConfigurationSpec(Strict):
    discovery_handler: _DiscoveryHandlerInfo
    capacity: int = 1
    broker_spec: _BrokerSpec | None = None
    broker_pod_spec: JsonObject | None = None
    """Where the pod of ``broker_spec`` was until Akri 0.6."""
    instance_service_spec: JsonObject | None = None
    configuration_service_spec: JsonObject | None = None
    broker_properties: dict[str, str] = {}


class _Configuration(Strict):
    api_version: Literal["akri.sh/v0"]
    kind: Literal["Configuration"]
    spec: _ConfigurationSpec
    metadata: Any = None
    status: Any = None


def find_configurations(documents: Sequence[JsonObject]) -> frozenset[str]:
    """Return the names of the Configurations, as in resources, and DiscoveryConfigurations among ``documents``."""
    return frozenset(
        resource_name(name_of(document))
        for document in documents
        if (document.get("kind") == "Configuration" and is_akris(document))
        or document.get("kind") == DISCOVERY_CONFIGURATIONS.kind
    )


def resource_name(name: str) -> str:
    """Return the name of a Configuration or an Instance in Akri's extended resources.

    >>> resource_name("my.cameras")
    'my-cameras'
    """
    return name.replace(".", "-").replace("/", "-")


def find_configuration(name: str, configurations: frozenset[str]) -> str | None:
    """Return the Configuration of the Instance ``name``; None: it is the name of a Configuration itself.

    >>> find_configuration("cameras-3f850a", frozenset())
    'cameras'
    """
    match = _INSTANCE.fullmatch(name)
    return None if match is None or name in configurations else match[1]


def migrate_akri_objects(documents: Sequence[JsonObject], find_fault: FindFault) -> Iterator[MigrationResult]:
    """Yield a DiscoveryConfiguration for each Configuration of Akri, and remarks on what has no counterpart."""
    converted: set[str] = set()
    for document in filter(is_akris, documents):
        kind, subject, name = document.get("kind"), subject_of(document), resource_name(name_of(document))
        if kind == "Instance":
            yield leave_out(
                subject, "nodes find its device again, as a DiscoveredDevice: kubectl get discovereddevices"
            )
        elif kind != "Configuration":
            yield leave_out(subject, f"kerf knows the kinds Configuration and Instance of {_VERSION}")
        elif name in converted:
            yield leave_out(subject, f"another one is {name} here, without namespaces: rename it")
        else:
            try:
                result = _migrate_configuration(document, find_fault)
            except InvalidDocumentError as error:
                result = report_unreadable(subject, error)
            converted |= {name} if result.documents else set()
            yield result
    if converted:
        remark = f"remove Akri before you apply this: its agent has the kubelet count the resources {DOMAIN}/..., too"
        yield MigrationResult(documents=(), remarks=(remark,))


def _migrate_configuration(document: JsonObject, find_fault: FindFault) -> MigrationResult:
    """Raises InvalidDocumentError when the Configuration is not one, or when what it says cannot be said in Kerf."""
    subject, name = subject_of(document), resource_name(name_of(document))
    checked = check_document(document, _Configuration)
    if checked.problems:
        raise InvalidDocumentError(_VERSION, checked.problems)
    read: _Configuration = convert_document(checked.cleaned, _Configuration)
    wanted = read.spec.discovery_handler
    if fault := find_fault(wanted.name, wanted.discovery_details):
        return leave_out(subject, f"spec.discoveryHandler.discoveryDetails: {fault} ({_WRITE_A_HANDLER})")
    handler: JsonObject = {"name": wanted.name}
    if wanted.discovery_details:
        handler["details"] = wanted.discovery_details
    if values := {each.name: each.value or "" for each in wanted.discovery_properties if each.value_from is None}:
        handler["properties"] = values
    spec: JsonObject = {"discoveryHandler": handler, "capacity": read.spec.capacity}
    if read.spec.broker_properties:
        spec["brokerProperties"] = read.spec.broker_properties
    spec["extendedResourceDomain"] = DOMAIN
    decode_discovery_configuration(DiscoveryConfigurationObject(metadata=ObjectMeta(name=name), spec=spec))
    made: JsonObject = {
        "apiVersion": API_VERSION,
        "kind": DISCOVERY_CONFIGURATIONS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    left = (*_properties_left(wanted), *_brokers_left(name, read.spec))
    remarks = (*_name_remarks(document, name), *_handler_remarks(wanted))
    return MigrationResult(
        documents=(made,),
        remarks=tuple(f"{subject}: {remark}" for remark in remarks),
        left=tuple(f"{subject}: {each}" for each in left),
    )


def _handler_remarks(wanted: _DiscoveryHandlerInfo) -> Iterator[str]:
    where = "spec.discoveryHandler"
    match wanted.name:
        case "udev":
            yield (
                f"{where}: compare what nodes find: values of rules are patterns as in udev(7), and Akri takes some "
                f"for regular expressions ({_WRITE_A_HANDLER})"
            )
        case "debugEcho" if "shared" not in wanted.discovery_details:
            yield (
                f"{where}: each node has devices of its own: add shared: true to the details if Akri's handler has "
                "DEBUG_ECHO_INSTANCES_SHARED=true"
            )
        case "debugEcho":
            pass
        case _:
            yield (
                f"{where}: the plugin has no handler {wanted.name}, and Akri's cannot be used: nodes find nothing "
                f"until a handler of yours registers by this name ({_WRITE_A_HANDLER})"
            )


def _name_remarks(document: JsonObject, name: str) -> Iterator[str]:
    if name_of(document) != name:
        yield f"metadata.name: becomes {name}, as Akri names its resources"


def _properties_left(wanted: _DiscoveryHandlerInfo) -> Iterator[str]:
    for each in wanted.discovery_properties:
        if each.value_from is not None:
            yield (
                f"spec.discoveryHandler.discoveryProperties: {each.name}: left out: plugins read no Secrets and "
                f"ConfigMaps: mount {_source(each.value_from)} into the handler"
            )


def _source(source: _ValueSource) -> str:
    found = [
        f"{kind} {reference.namespace}/{reference.name}" if reference.namespace else f"{kind} {reference.name}"
        for kind, reference in (("Secret", source.secret_key_ref), ("ConfigMap", source.config_map_key_ref))
        if reference is not None
    ]
    return " and ".join(found) or "it"


def _brokers_left(name: str, spec: _ConfigurationSpec) -> Iterator[str]:
    brokers = spec.broker_spec or _BrokerSpec()
    pods = {"spec.brokerPodSpec": spec.broker_pod_spec, "spec.brokerSpec.brokerPodSpec": brokers.broker_pod_spec}
    convert = f"with {DOMAIN}/{name} in place of {{{{PLACEHOLDER}}}} in its limits, and convert it: kerf migrate -f"
    for field, pod in pods.items():
        if pod is not None:
            yield (
                f"{field}: left out: Kerf starts no brokers: write a Deployment with this pod and as many replicas as "
                f"there are users, {convert}"
            )
    if brokers.broker_job_spec is not None:
        yield f"spec.brokerSpec.brokerJobSpec: left out: Kerf starts no brokers: write a Job with this spec, {convert}"
    if spec.instance_service_spec is not None:
        yield (
            "spec.instanceServiceSpec: left out: Kerf makes no Services: for each device that needs one, write a "
            f"Deployment with {DOMAIN}/<DiscoveredDevice> in its limits, and a Service with this spec that selects its "
            "pods"
        )
    if spec.configuration_service_spec is not None:
        yield (
            "spec.configurationServiceSpec: left out: Kerf makes no Services: write a Service with this spec that "
            "selects the pods of the brokers' Deployment"
        )


def is_akris(document: JsonObject) -> bool:
    """Whether a document is an object of Akri's API group."""
    return str(document.get("apiVersion")).partition("/")[0] == DOMAIN


def name_of(document: JsonObject) -> str:
    """Return the name of an object; empty: it has none."""
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def subject_of(document: JsonObject) -> str:
    """Return the object's kind and name, with its namespace if it has another one than the default."""
    metadata = document.get("metadata")
    namespace = metadata.get("namespace", "default") if isinstance(metadata, dict) else "default"
    kind, name = document.get("kind") or "a document without kind,", name_of(document)
    return f"{kind} {'' if namespace == 'default' else f'{namespace}/'}{name}" if name else f"{kind} without name"

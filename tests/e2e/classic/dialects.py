"""The differences between ``v1alpha2`` (Kubernetes 1.27 to 1.30) and ``v1alpha3`` (1.31) of ``resource.k8s.io``."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tools.realcluster.api import Document

DRIVER: Final = "gpu.kerf.dev"
KERF: Final = "kerf.dev/v1alpha1"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a claim, with the name under which ``v1alpha2`` refers to them."""

    name: str
    kind: str
    spec: Document


class Dialect(Protocol):
    """One version of ``resource.k8s.io`` in which drivers allocate."""

    api_version: str
    class_kind: str
    refers: bool
    """Whether classes and claims refer to parameters by name; else they contain them."""
    has_immediate: bool
    """Whether a claim can be allocated without a pod."""

    def class_(
        self, name: str, parameters: Document | None, *, driver: str = "", suitable_nodes: Document | None = None
    ) -> Document:
        """Return a class; ``parameters`` are the GpuClassParameters or FpgaClassParameters of the same name.

        ``driver``: the one that allocates; empty: that of the parameters.
        """
        ...

    def claim_spec(
        self, class_name: str, parameters: Parameters | None, *, immediate: bool = False, driver: str = DRIVER
    ) -> Document:
        """Return the spec of a claim, which is also the inner spec of a template."""
        ...

    def allocation(self, driver: str, nodes: Document) -> Document:
        """Return the status of a claim that ``driver`` has allocated on the node selector ``nodes``, without
        devices."""
        ...

    def pod_claims(self, sources: dict[str, Document]) -> Sequence[Document]:
        """Return ``spec.resourceClaims`` of a pod; ``sources`` has the claim or template of each entry."""
        ...

    def devices(self, claim: Document) -> Sequence[str]:
        """Return the names of the devices that a claim has."""
        ...


class _V1alpha2:
    api_version = "resource.k8s.io/v1alpha2"
    class_kind = "ResourceClass"
    refers = True
    has_immediate = True

    def class_(
        self, name: str, parameters: Document | None, *, driver: str = "", suitable_nodes: Document | None = None
    ) -> Document:
        driver = driver or _driver_of(parameters)
        document = {"apiVersion": self.api_version, "kind": self.class_kind, "metadata": {"name": name}}
        if parameters is not None:
            document["parametersRef"] = _reference(parameters["kind"], name)
        return {**document, "driverName": driver, "suitableNodes": suitable_nodes}

    def claim_spec(
        self, class_name: str, parameters: Parameters | None, *, immediate: bool = False, driver: str = DRIVER
    ) -> Document:
        spec: Document = {"resourceClassName": class_name}  # which says whose it is
        if parameters is not None:
            spec["parametersRef"] = _reference(parameters.kind, parameters.name)
        return {**spec, **({"allocationMode": "Immediate"} if immediate else {})}

    def pod_claims(self, sources: dict[str, Document]) -> Sequence[Document]:
        return [{"name": entry, "source": source} for entry, source in sources.items()]

    def allocation(self, driver: str, nodes: Document) -> Document:
        return {"driverName": driver, "allocation": {"availableOnNodes": nodes}}

    def devices(self, claim: Document) -> Sequence[str]:
        handles = claim.get("status", {}).get("allocation", {}).get("resourceHandles", ())
        return [result["device"] for handle in handles for result in json.loads(handle["data"])["results"]]


class _V1alpha3:
    api_version = "resource.k8s.io/v1alpha3"
    class_kind = "DeviceClass"
    refers = False
    has_immediate = False

    def class_(
        self, name: str, parameters: Document | None, *, driver: str = "", suitable_nodes: Document | None = None
    ) -> Document:
        driver = driver or _driver_of(parameters)
        document = {"apiVersion": self.api_version, "kind": self.class_kind, "metadata": {"name": name}}
        config = [] if parameters is None else [{"opaque": _opaque(driver, parameters["kind"], parameters["spec"])}]
        return {**document, "spec": {"config": config, "suitableNodes": suitable_nodes}}

    def claim_spec(
        self, class_name: str, parameters: Parameters | None, *, immediate: bool = False, driver: str = DRIVER
    ) -> Document:
        assert not immediate, "Kubernetes 1.31 has no such claims"
        devices: Document = {"requests": [{"name": "request", "deviceClassName": class_name}]}
        if parameters is not None:
            devices["config"] = [{"opaque": _opaque(driver, parameters.kind, parameters.spec)}]
        return {"controller": driver, "devices": devices}

    def pod_claims(self, sources: dict[str, Document]) -> Sequence[Document]:
        return [{"name": entry, **source} for entry, source in sources.items()]

    def allocation(self, driver: str, nodes: Document) -> Document:
        return {"allocation": {"controller": driver, "nodeSelector": nodes}}

    def devices(self, claim: Document) -> Sequence[str]:
        allocation = claim.get("status", {}).get("allocation", {})
        return [result["device"] for result in allocation.get("devices", {}).get("results", ())]


_ALL: Final[Sequence[Dialect]] = (_V1alpha2(), _V1alpha3())


def dialect_of(resource_version: str) -> Dialect:
    """``v1alpha2`` or ``v1alpha3``."""
    (found,) = (one for one in _ALL if one.api_version == f"resource.k8s.io/{resource_version}")
    return found


def convert_examples(examples: Iterable[Document], dialect: Dialect) -> Iterable[Document]:
    """The classes of ``deploy/examples/classic`` with their parameters, as ``dialect`` has them."""
    documents = list(examples)
    by_name = {one["metadata"]["name"]: one for one in documents if one["kind"].endswith("ClassParameters")}
    if dialect.refers:
        yield from by_name.values()
    yield from (dialect.class_(name, parameters) for name, parameters in by_name.items())


def _driver_of(parameters: Document | None) -> str:
    is_fpga = parameters is not None and parameters["kind"].startswith("Fpga")
    return "fpga.kerf.dev" if is_fpga else DRIVER


def _reference(kind: str, name: str) -> Document:
    return {"apiGroup": "kerf.dev", "kind": kind, "name": name}


def _opaque(driver: str, kind: str, spec: Document) -> Document:
    return {"driver": driver, "parameters": {"apiVersion": KERF, "kind": kind, "spec": spec}}

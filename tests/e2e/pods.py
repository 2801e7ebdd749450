"""Builders of the Kubernetes objects that the tests create."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.realcluster.api import Document
from tools.realcluster.documents import IMAGE
from tools.realcluster.environment import chosen_version

RESOURCE: Final = f"resource.k8s.io/{chosen_version().resource_version}"

END: Final = "--- that is all"
FILE: Final = "--- file "
_FOLDERS: Final = "/var/run/kubernetes.io /tmp/nvidia-mps /dev/shm"
"""What containers get of their devices beside nodes: metadata, and the folders of MPS."""
REPORT_COMMAND: Final = f"""\
env
ls -lR /dev
for file in $(find {_FOLDERS} -type f 2>/dev/null); do echo "{FILE}$file"; cat "$file"; done
echo '{END}'
trap exit TERM
sleep 1000000 & wait"""
"""The command of every container: it reports environment, device nodes and files of its devices, and waits for SIGTERM.
Without a trap the kernel does not deliver SIGTERM to a container's first process, and the kubelet waits 2 s."""


def template(name: str, spec: Document) -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec},
    }


def claim(name: str, spec: Document) -> Document:
    return {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def devices(*requests: Document, constraints: Sequence[Document] = (), config: Sequence[Document] = ()) -> Document:
    """Return the spec of a claim."""
    asked: Document = {"requests": list(requests)}
    if constraints:
        asked["constraints"] = list(constraints)
    if config:
        asked["config"] = list(config)
    return {"devices": asked}


def exactly(name: str, device_class: str, **more: Any) -> Document:
    """Return an exact request; v1beta1 has its fields in the request itself."""
    fields = {"deviceClassName": device_class, **more}
    return {"name": name, **fields} if RESOURCE.endswith("/v1beta1") else {"name": name, "exactly": fields}


def first_available(name: str, **device_classes: str) -> Document:
    """Return a request with alternatives, best first, given as names and classes."""
    alternatives = [{"name": sub, "deviceClassName": class_} for sub, class_ in device_classes.items()]
    return {"name": name, "firstAvailable": alternatives}


def opaque(parameters: Document, *requests: str) -> Document:
    """Return configuration for Kerf's devices of ``requests``, or of all requests if there is none."""
    driver = "fpga.kerf.dev" if parameters.get("kind") == "FpgaConfig" else "gpu.kerf.dev"
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def by_template(name: str) -> Document:
    return {"resourceClaimTemplateName": name}


def by_name(name: str) -> Document:
    return {"resourceClaimName": name}


def pod(
    name: str,
    claims: Mapping[str, Document] | None = None,
    *,
    containers: Sequence[str] = ("main",),
    limits: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """Return a pod whose containers have all ``claims``, given by name in the pod as ``by_template`` or ``by_name``."""
    claims = claims or {}
    resources: Document = {"claims": [{"name": claim} for claim in claims]} if claims else {}
    if limits:
        resources["limits"] = dict(limits)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Always",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,  # 0 would delete the object before the kubelet has done anything
            "resourceClaims": [{"name": claim, **source} for claim, source in claims.items()],
            "containers": [
                {
                    "name": container,
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", REPORT_COMMAND],
                    "resources": resources,
                }
                for container in containers
            ],
            **spec,
        },
    }

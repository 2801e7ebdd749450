"""``kerf migrate``: converts what asks for devices in older ways to claims of Kubernetes 1.32 and later."""

from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import yaml

from kerf_dra.api.errors import InvalidDocumentError, UnsupportedError
from kerf_dra.api.kerf.classic_parameters import (
    CLAIM_PARAMETERS,
    CLASS_PARAMETERS,
    SPECS,
    ClaimParameters,
    ClassParameters,
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
    ParametersObject,
)
from kerf_dra.api.kerf.decoder import decode_parameters_object
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim, ClassicClass, ClassicTemplate, ParametersReference
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.cluster.plan import read_documents
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import access_options, with_exit_codes
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kube.discovery import discover_classic
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import find_details_fault
from kerf_dra.driver.migration.classic import (
    MigrationResult,
    leave_out,
    migrate_class,
    migrate_template,
    report_unreadable,
)
from kerf_dra.driver.migration.documents import migrate_documents

EXIT_LEFT: Final = 1
"""Something is not converted, and standard error says what and why."""


class _Dumper(yaml.SafeDumper):
    """A dumper that keeps the lines of details of discovery."""


def _represent(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent)


@click.command(short_help="Write classes, templates and workloads that use claims.")
@option(
    "-f",
    "--filename",
    "files",
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    multiple=True,
    help="Manifests of Akri's objects and of pods that count devices in limits: a file, a directory, or standard input "
    "(-). Repeatable.",
)
@access_options
@with_exit_codes
def command(files: tuple[Path, ...], kubeconfig: Path | None, context: str | None) -> int:
    """Convert manifests, or the classes, parameters and templates of a cluster in which drivers allocate.

    With -f: Akri's Configurations, and pods and workloads whose containers count devices in limits, as Akri and device
    plugins offer them (Kerf's, those of NVIDIA and Intel, with the annotations of Intel's scheduler extender). Prints
    DiscoveryConfigurations, and each workload with claims instead, after the ResourceClasses and
    ResourceClaimTemplates that it needs. A container is converted as a whole, or stays as it is. Other documents are
    left out.

    Without: classes, parameters and templates of a cluster of Kubernetes 1.27 to 1.30. Prints ResourceClasses of
    kerf.dev and ResourceClaimTemplates of resource.k8s.io/v1.

    Each document and resource that is left, and what has no equivalent, is reported on standard error with the reason.
    Nothing is changed. Exit code 1: something is left; 2: bad input; 3: the cluster cannot be read.
    """
    found = _convert(files) if files else event_loop.run(_read, kubeconfig, context)
    documents: list[JsonObject] = []
    for result in found:  # a class that several need is written once
        documents += [document for document in result.documents if document not in documents]
    if documents:
        click.echo(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False), nl=False)
    for result in found:
        for line in (*result.left, *result.remarks):
            click.echo(to_one_line(line), err=True)  # names in it may be anything
    return EXIT_LEFT if any(result.left for result in found) else 0


def _convert(files: tuple[Path, ...]) -> list[MigrationResult]:
    documents = [document for file in files for document in read_documents(file)]
    return list(migrate_documents(documents, find_details_fault))


async def _read(kubeconfig: Path | None, context: str | None) -> list[MigrationResult]:
    async with Client(await load_access(kubeconfig, context), user_agent="kerf-migrate") as client:
        features = await discover_classic(client)
        if features is None or features.resource.version != "v1alpha2":
            raise UnsupportedError("this cluster has no resource.k8s.io/v1alpha2: there is nothing to migrate")
        parameters: dict[tuple[str, str, str], ParametersObject] = {}
        for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS):
            for held in (await client.list(kind)).items:
                parameters[kind.kind, held.metadata.namespace, held.metadata.name] = held
        classes = (await client.list(features.resource.classes)).items
        templates = (await client.list(features.resource.templates)).items
        claims = (await client.list(features.resource.claims)).items
    names = {one.metadata.name for one in classes if _is_kerfs(one)}
    return [*_classes(classes, parameters), *_templates(templates, names, parameters), *_claims(claims)]


_Parameters = dict[tuple[str, str, str], ParametersObject]


def _is_kerfs(held: ClassicClass) -> bool:
    return held.driver_name in {family.driver for family in BUILT_IN}


def _classes(classes: Sequence[ClassicClass], parameters: _Parameters) -> Iterator[MigrationResult]:
    for held in classes:
        if not _is_kerfs(held):
            yield leave_out(f"ResourceClass {held.metadata.name}", f"driverName: {held.driver_name}: is not of Kerf")
            continue
        try:
            class_spec = _spec(held.parameters_ref, "", parameters)
            match class_spec:
                case GpuClassParametersSpec() | FpgaClassParametersSpec():
                    yield migrate_class(held, class_spec)
                case _:
                    raise LookupError("it has no class parameters, so its devices are not defined")
        except (InvalidDocumentError, LookupError) as error:
            yield report_unreadable(f"ResourceClass {held.metadata.name}", error)


def _templates(
    templates: Sequence[ClassicTemplate], classes: Container[str], parameters: _Parameters
) -> Iterator[MigrationResult]:
    for held in templates:
        if (name := held.spec.spec.requests[0].class_name) not in classes:
            reason = f"resourceClassName: {name}: there is no such class of Kerf"
            yield leave_out(f"ResourceClaimTemplate {held.ref}", reason)
            continue
        try:
            claim_spec = _spec(held.spec.spec.requests[0].parameters_ref, held.metadata.namespace, parameters)
            match claim_spec:
                case GpuClaimParametersSpec() | FpgaClaimParametersSpec() | None:
                    yield migrate_template(held, claim_spec)
                case _:
                    raise LookupError("its parameters are those of classes")
        except (InvalidDocumentError, LookupError) as error:
            yield report_unreadable(f"ResourceClaimTemplate {held.ref}", error)


def _claims(claims: Sequence[ClassicClaim]) -> Iterator[MigrationResult]:
    """Name the claims that belong to no pod: those of templates are made again on the new cluster."""
    for held in claims:
        if not any(owner.kind == "Pod" for owner in held.metadata.owner_references):
            reason = "write a ResourceClaimTemplate for its pods, or a claim for the new cluster: `kerf claim`"
            yield leave_out(f"ResourceClaim {held.ref}", reason)


def _spec(
    reference: ParametersReference | None, namespace: str, parameters: _Parameters
) -> ClassParameters | ClaimParameters | None:
    """Return the referenced parameters; None: none are referenced.

    Raises LookupError when they do not exist, InvalidDocumentError when they are wrong.
    """
    if reference is None:
        return None
    held = parameters.get((reference.kind, namespace, reference.name)) if reference.kind in SPECS else None
    if held is None:
        raise LookupError(f"its parameters {reference.kind} {reference.name} are not there")
    return decode_parameters_object(reference.kind, held)

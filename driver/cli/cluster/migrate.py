"""``kerf migrate``: converts what asks for devices in older ways to claims of Kubernetes 1.32 and later."""

from collections.abc import Iterator
from pathlib import Path

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
from kerf_dra.api.model.classic import ClassicClass, ClassicTemplate, ParametersReference
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
from kerf_dra.driver.migration.akri import find_configurations, migrate_akri_objects
from kerf_dra.driver.migration.classic import MigrationResult, migrate_class, migrate_template, report_unreadable
from kerf_dra.driver.migration.limits import find_offered, migrate_workload


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
    ResourceClaimTemplates that it needs. Other documents are left out.

    Without: classes, parameters and templates of a cluster of Kubernetes 1.27 to 1.30. Prints ResourceClasses of
    kerf.dev and ResourceClaimTemplates of resource.k8s.io/v1.

    What has no equivalent is reported on standard error. Nothing is changed. Exit code 2: bad input; 3: the cluster
    cannot be read.
    """
    found = _convert(files) if files else event_loop.run(_read, kubeconfig, context)
    documents: list[JsonObject] = []
    for result in found:  # a class that several need is written once
        documents += [document for document in result.documents if document not in documents]
    click.echo(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False), nl=False)
    for result in found:
        for remark in result.remarks:
            click.echo(to_one_line(remark), err=True)  # names in it may be anything
    return 0


def _convert(files: tuple[Path, ...]) -> list[MigrationResult]:
    documents = [document for file in files for document in read_documents(file)]
    offered, configurations = find_offered(documents), find_configurations(documents)
    workloads = (migrate_workload(each, offered, configurations) for each in documents)
    return [
        *migrate_akri_objects(documents, find_details_fault),
        *(result for result in workloads if result is not None),
    ]


async def _read(kubeconfig: Path | None, context: str | None) -> list[MigrationResult]:
    async with Client(await load_access(kubeconfig, context), user_agent="kerf-migrate") as client:
        features = await discover_classic(client)
        if features is None or features.resource.version != "v1alpha2":
            raise UnsupportedError("this cluster has no resource.k8s.io/v1alpha2: there is nothing to migrate")
        parameters: dict[tuple[str, str, str], ParametersObject] = {}
        for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS):
            for held in (await client.list(kind)).items:
                parameters[kind.kind, held.metadata.namespace, held.metadata.name] = held
        drivers = {family.driver for family in BUILT_IN}
        classes = [one for one in (await client.list(features.resource.classes)).items if one.driver_name in drivers]
        names = {one.metadata.name for one in classes}
        templates = [
            template
            for template in (await client.list(features.resource.templates)).items
            if template.spec.spec.requests[0].class_name in names
        ]
    return [*_classes(classes, parameters), *_templates(templates, parameters)]


_Parameters = dict[tuple[str, str, str], ParametersObject]


def _classes(classes: list[ClassicClass], parameters: _Parameters) -> Iterator[MigrationResult]:
    for held in classes:
        try:
            class_spec = _spec(held.parameters_ref, "", parameters)
            match class_spec:
                case GpuClassParametersSpec() | FpgaClassParametersSpec():
                    yield migrate_class(held, class_spec)
                case _:
                    raise LookupError("it has no class parameters, so its devices are not defined")
        except (InvalidDocumentError, LookupError) as error:
            yield report_unreadable(f"ResourceClass {held.metadata.name}", error)


def _templates(templates: list[ClassicTemplate], parameters: _Parameters) -> Iterator[MigrationResult]:
    for held in templates:
        try:
            claim_spec = _spec(held.spec.spec.requests[0].parameters_ref, held.metadata.namespace, parameters)
            match claim_spec:
                case GpuClaimParametersSpec() | FpgaClaimParametersSpec() | None:
                    yield migrate_template(held, claim_spec)
                case _:
                    raise LookupError("its parameters are those of classes")
        except (InvalidDocumentError, LookupError) as error:
            yield report_unreadable(f"ResourceClaimTemplate {held.ref}", error)


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

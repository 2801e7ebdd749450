"""``kerf families``: the installed families of devices, the vocabulary that users' selectors need, the families' own
DeviceClasses, and policies that judge their parameters.

``deploy/manifests`` has what ``--policies`` and ``--device-classes`` print for Kerf's own families
(``python -m tools.generate``).
"""

import shutil
import textwrap
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import click
import yaml

from kerf_dra.api.resource.registry import VERSIONS, load_kinds
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.output import OutputFormat, format_table, output_formats, print_document
from kerf_dra.driver.families.base import AttributeDefinition, Family
from kerf_dra.driver.families.parameter_policy import build_parameter_policy
from kerf_dra.driver.families.registry import add_backends, find_families, installed_families, list_backends
from kerf_dra.driver.families.selectors import build_device_class

_INDENT: Final = " " * 6
"""The indentation of descriptions below the names that they describe."""
_WIDTH: Final = 120
"""The characters of a line of YAML, where an expression lets itself be folded."""
_INDENTED: Final = 24
"""Of those, what stands before an expression at most: its indentation and its key."""

_POLICIES_HEADER: Final = """\
# Refuses wrong parameters for {drivers} when a claim, a template or a DeviceClass is written, with
# their path: printed by `kerf families --policies{arguments}`.
# These policies spare users a pod that does not start; they protect nothing. The kubelet plugin judges parameters by
# the same rules, and what a class and a claim give together, which no policy sees. So a policy that cannot be evaluated
# lets the object pass (failurePolicy: Ignore), and any of them may be deleted.
"""
_CLASSES_HEAD: Final = """\
# One DeviceClass for each family, for claims that choose by CEL of their own (docs/asking-for-devices.md):
# every device except shares of a partition and monitor devices. Printed by `kerf families --device-classes`.
# Before Kubernetes 1.34 the version is v1beta2 or v1beta1 (`--api-version`).
"""


@click.command(short_help="List the installed families of devices, their attributes and capacities.")
@click.argument("names", nargs=-1)
@option(
    "--policies",
    is_flag=True,
    help="Print admission policies that judge the families' parameters when they are written, for `kubectl apply`.",
)
@output_formats("text", "json", "yaml", "name")
@option("--device-classes", is_flag=True, help="Print the families' own DeviceClasses, for `kubectl apply`.")
@option(
    "--api-version",
    type=click.Choice(VERSIONS),
    default=VERSIONS[0],
    help="Version of resource.k8s.io for --device-classes: v1 from Kubernetes 1.34 on.",
)
def command(
    names: tuple[str, ...], policies: bool, output: OutputFormat, device_classes: bool, api_version: str
) -> None:
    """List the installed families of devices; with NAMES, the attributes and capacities of their devices.

    Each family is a DRA driver of its own. Selectors (CEL) name attributes and capacities by the driver's name.
    """
    installed = add_backends(installed_families())
    chosen = find_families(names, installed) or [*installed.values()]
    if policies and device_classes:
        raise click.UsageError("--policies and --device-classes are two files: print one after the other")
    if (policies or device_classes) and output != "text":
        raise click.UsageError("--policies and --device-classes print YAML for kubectl: leave --output out")
    if policies:
        click.echo(format_policies(chosen, names), nl=False)
    elif device_classes:
        click.echo(format_device_classes(chosen, api_version), nl=False)
    elif output == "name":
        click.echo("\n".join(family.name for family in chosen))
    elif output != "text":
        print_document([_document(family) for family in chosen], output)
    elif names:
        click.echo("\n\n".join("\n".join(_lines(family)) for family in chosen))
    else:
        rows = [
            (family.name, family.driver, _list(list_backends(family)), _list(family.configurations))
            for family in chosen
        ]
        click.echo(format_table(("FAMILY", "DRIVER", "BACKENDS", "CONFIGURATIONS"), rows))


def format_policies(families: Collection[Family], names: Iterable[str] = ()) -> str:
    """Return the policies on the parameters of ``families`` as YAML; ``names`` are the command's arguments."""

    class Dumper(yaml.SafeDumper):
        """A dumper that keeps the lines of expressions and folds long ones, without anchors."""

        def ignore_aliases(self, _data: object) -> bool:
            return True

    def represent(dumper: Dumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else ">" if len(text) > _WIDTH - _INDENTED else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    header = _POLICIES_HEADER.format(
        drivers=", ".join(family.driver for family in families), arguments="".join(f" {name}" for name in names)
    )
    documents = [document for family in families for document in build_parameter_policy(family)]
    return header + yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=_WIDTH, explicit_start=False)


def format_device_classes(families: Iterable[Family], version: str) -> str:
    """Return the families' own DeviceClasses as YAML documents of one version of ``resource.k8s.io``."""
    kind = load_kinds(version).device_classes
    documents = [kind.encode(build_device_class(family)) for family in families]
    return _CLASSES_HEAD + yaml.safe_dump_all(documents, sort_keys=False, width=120)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "-"


def _lines(family: Family) -> Iterator[str]:
    yield f"family {family.name}, driver {family.driver}"
    yield f"backends: {_list(list_backends(family))}; configurations: {_list(family.configurations)}"
    yield f'\nattributes: device.attributes["{family.driver}"].NAME'
    for name, attribute in family.attributes.items():
        domain, _, short = name.rpartition("/")
        standard = f', device.attributes["{domain}"].{short}' if domain else ""
        yield f"  {short} ({type_of(attribute)}{standard})"
        yield _wrap(attribute.description)
    yield f'\ncapacities: device.capacity["{family.driver}"].NAME'
    for name, description in family.capacities.items():
        yield f"  {name}{' (spec.minimum)' if name in family.minimums else ''}"
        yield _wrap(description)


def _wrap(description: str) -> str:
    width = shutil.get_terminal_size().columns
    return textwrap.fill(description, width, initial_indent=_INDENT, subsequent_indent=_INDENT)


def type_of(attribute: AttributeDefinition) -> str:
    """Return the type of an attribute as ``resource.k8s.io`` names it: string, int, bool or version."""
    return str(next(iter(to_builtins(attribute.neutral))))


def _document(family: Family) -> dict[str, Any]:
    return {
        "name": family.name,
        "driver": family.driver,
        "attributes": {
            name: {"type": type_of(attribute), "description": attribute.description}
            for name, attribute in family.attributes.items()
        },
        "capacities": {name: {"description": description} for name, description in family.capacities.items()},
        "minimums": list(family.minimums),
        "classFields": sorted(family.class_fields),
        "configurations": list(family.configurations),
        "backends": {name: family.backends[name] for name in list_backends(family)},
        "callTimeoutSeconds": family.call_timeout_s,
    }

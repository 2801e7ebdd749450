"""A CustomResourceDefinition as a served kind, and the strategy of definitions themselves.

Only the conversion strategy None is supported: each version shows the stored body, and its own schema applies when it
is written. Source: ``apiextensions-apiserver`` ``pkg/registry/customresource`` and ``pkg/controller``.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.crd.cel_rules import has_rules, validate_rules
from kerf_dra.driver.local.apiserver.crd.object_validation import validate_object
from kerf_dra.driver.local.apiserver.crd.printer_columns import UnsupportedJsonPathError, build_printer_columns
from kerf_dra.driver.local.apiserver.crd.schema_validation import validate_structural_schema
from kerf_dra.driver.local.apiserver.crd.structural_schema import default, prune
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, ResourceType, Strategy
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.merge_schema import derive_merge_schema, with_metadata
from kerf_dra.driver.local.apiserver.meta.names import dns_label, dns_subdomain, validate_name
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldErrors,
    bad_request,
    immutable,
    invalid,
    not_supported,
    quoted,
    required,
)
from kerf_dra.driver.local.apiserver.storage import GroupResource

DEFINITIONS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer of a deleted definition until its objects are gone."""
_ANY_OBJECT: Final[JsonObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def build_resource_type(definition: JsonObject) -> ResourceType:
    """Return the kind that a valid definition describes."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    return ResourceType(
        group=group,
        plural=names["plural"],
        singular=names["singular"],
        kind=names["kind"],
        list_kind=names["listKind"],
        short_names=names.get("shortNames") or (),
        categories=names.get("categories") or (),
        namespaced=spec["scope"] == "Namespaced",
        versions=[_version(group, names["kind"], each) for each in _order_served(spec["versions"])],
        store=GroupResource(group, names["plural"]),
        counts_generation=True,
        allow_unconditional_update=False,
        selectable_fields={
            "metadata.name": lambda body: str(body["metadata"].get("name") or ""),
            "metadata.namespace": lambda body: str(body["metadata"].get("namespace") or ""),
        },
        any_finalizer=True,
        is_custom=True,
    )


def _order_served(versions: Iterable[JsonObject]) -> Sequence[JsonObject]:
    """Return the served versions, the storage version first, which our controllers prefer."""
    return sorted((each for each in versions if each.get("served")), key=lambda each: not each.get("storage"))


def _version(group: str, kind: str, row: JsonObject) -> ApiVersion:
    schema = lookup(row, "schema", "openAPIV3Schema") or _ANY_OBJECT
    return ApiVersion(
        name=row["name"],
        merge_schema=with_metadata(derive_merge_schema(schema)),
        strategy=_build_strategy(kind, f"{group}/{row['name']}", schema),
        columns=build_printer_columns(row.get("additionalPrinterColumns") or []),
        schema=schema,
        has_status=lookup(row, "subresources", "status") is not None,
        warning=_deprecation(group, kind, row),
    )


def _deprecation(group: str, kind: str, row: JsonObject) -> str:
    if not row.get("deprecated"):
        return ""
    return str(row.get("deprecationWarning") or f"{group}/{row['name']} {kind} is deprecated")


def _build_strategy(kind: str, api_version: str, schema: JsonObject) -> Strategy:
    def prune_body(body: JsonObject, field_validation: str) -> Sequence[str]:
        unknown = [f"unknown field {quoted(path)}" for path in prune(body, schema)]
        if unknown and field_validation == "Strict":
            version = api_version.rpartition("/")[2]
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: '
                + ", ".join(unknown)
            )
        return unknown if field_validation == "Warn" else ()

    def validate(body: JsonObject) -> FieldErrors:
        yield from _validate_body(body, schema, None)

    def validate_update(body: JsonObject, old: JsonObject) -> FieldErrors:
        # Ratcheting (KEP-4008): errors of the old object may stay, e.g. after the schema became stricter.
        before = set(_validate_body(old, schema, None))
        yield from (error for error in _validate_body(body, schema, old) if error not in before)

    return Strategy(
        prune=prune_body,
        default=lambda body, _now: default(body, schema),
        validate=validate,
        validate_update=validate_update,
        validate_status=validate_update,
    )


_BLOCKING: Final = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
"""The errors after which CEL rules are not evaluated, as they might meet values of the wrong type."""


def _validate_body(body: JsonObject, schema: JsonObject, old: JsonObject | None) -> FieldErrors:
    found = list(validate_object(body, schema))
    yield from found
    if not has_rules(schema):
        return
    if any(error.reason in _BLOCKING for error in found):
        yield invalid(
            "<nil>",
            None,
            "some validation rules were not checked because the object was invalid; correct the existing errors to "
            "complete validation",
        )
    else:
        yield from validate_rules(body, schema, old)


def _default(body: JsonObject, _now: str) -> None:
    spec = body.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    names["singular"] = names.get("singular") or kind.lower()
    names["listKind"] = names.get("listKind") or f"{kind}List"
    spec["conversion"] = spec.get("conversion") or {"strategy": "None"}


def _prepare_for_create(body: JsonObject) -> None:
    """Set the status: a definition is established at once."""
    now = body["metadata"]["creationTimestamp"]
    body["status"] = {
        "acceptedNames": body["spec"]["names"],
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
        ],
        "storedVersions": _storage_versions(body),
    }


def _condition(type_: str, reason: str, message: str, now: str) -> JsonObject:
    return {"lastTransitionTime": now, "message": message, "reason": reason, "status": "True", "type": type_}


def _prepare_for_delete(body: JsonObject, now: str) -> None:
    """Add the finalizer and the condition of a definition whose objects have to be deleted first."""
    metadata = body["metadata"]
    metadata.pop("deletionGracePeriodSeconds", None)
    finalizers = metadata.get("finalizers") or []
    metadata["finalizers"] = [*finalizers, *({CLEANUP_FINALIZER} - set(finalizers))]
    status = body.setdefault("status", {})
    if not any(each["type"] == "Terminating" for each in status.get("conditions") or []):
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        terminating = _condition("Terminating", "InstanceDeletionPending", message, now)
        status["conditions"] = [*(status.get("conditions") or []), terminating]


def _storage_versions(body: JsonObject) -> list[str]:
    return [each["name"] for each in lookup(body, "spec", "versions") or [] if each.get("storage")]


def _prepare_for_update(body: JsonObject, old: JsonObject, _now: str) -> None:
    status = dict(old.get("status") or {})
    stored = list(status.get("storedVersions") or [])
    status["storedVersions"] = [*stored, *(name for name in _storage_versions(body) if name not in stored)]
    status["acceptedNames"] = body["spec"]["names"]
    body["status"] = status


def _validate_new(body: JsonObject) -> FieldErrors:
    spec, name = body["spec"], body["metadata"].get("name")
    if name != f"{spec['names'].get('plural') or ''}.{spec.get('group') or ''}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from _validate(body)


def _validate(body: JsonObject) -> FieldErrors:
    spec = body["spec"]
    group, names = spec.get("group") or "", spec["names"]
    yield from validate_name("spec.group", group, dns_subdomain)
    if group and "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope")
    if scope not in {"Cluster", "Namespaced"}:
        yield not_supported("spec.scope", scope or "", ("Cluster", "Namespaced")) if scope else required("spec.scope")
    for field in ("plural", "singular", "kind", "listKind"):
        yield from validate_name(f"spec.names.{field}", (names.get(field) or "").lower(), dns_label)
    if lookup(spec, "conversion", "strategy") != "None":
        strategy = lookup(spec, "conversion", "strategy")
        yield invalid("spec.conversion.strategy", strategy, "only None is supported by this API server")
    yield from _validate_versions(spec.get("versions") or [])


def _validate_versions(versions: Sequence[JsonObject]) -> FieldErrors:
    if sum(1 for each in versions if each.get("storage")) != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    for index, row in enumerate(versions):
        path = f"spec.versions[{index}]"
        yield from validate_name(f"{path}.name", row.get("name"), dns_label)
        schema = lookup(row, "schema", "openAPIV3Schema")
        if schema is None:
            yield required(f"{path}.schema.openAPIV3Schema")
        else:
            # The schema of a single version has the path that it had beside the versions, as in upstream.
            place = "spec.validation" if len(versions) == 1 else f"{path}.schema"
            yield from validate_structural_schema(schema, f"{place}.openAPIV3Schema")
        for at, column in enumerate(row.get("additionalPrinterColumns") or []):
            yield from _validate_column(column, f"{path}.additionalPrinterColumns[{at}]")


def _validate_column(column: JsonObject, path: str) -> FieldErrors:
    for field in ("name", "type", "jsonPath"):
        if not column.get(field):
            yield required(f"{path}.{field}")
            return
    try:
        build_printer_columns([column])
    except UnsupportedJsonPathError as error:
        yield invalid(f"{path}.jsonPath", column["jsonPath"], str(error))


def _validate_update(body: JsonObject, old: JsonObject) -> FieldErrors:
    yield from _validate(body)
    for path in (("spec", "group"), ("spec", "scope"), ("spec", "names", "kind"), ("spec", "names", "plural")):
        value = lookup(body, *path)
        if value != lookup(old, *path):
            yield immutable(".".join(path), value)


DEFINITION_STRATEGY: Final = Strategy(
    default=_default,
    prepare_for_create=_prepare_for_create,
    prepare_for_update=_prepare_for_update,
    prepare_for_delete=_prepare_for_delete,
    validate=_validate_new,
    validate_update=_validate_update,
)

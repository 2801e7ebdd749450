"""Create and update: from the document of a request to a new revision.

No write awaits anything between reading the old object and storing the new one, so no other request comes between, and
``resourceVersion`` is compared with exactly the revision that is replaced.

The steps of an update: the change is applied to the object in the version of the request; pruning and defaulting; what
this endpoint does not write is restored (spec and metadata for the status subresource, status for the object);
the strategy prepares; managed fields are recorded; validation and admission. An object that did not change is not
written. Source: ``k8s.io/apiserver`` ``pkg/registry/rest`` and ``pkg/registry/generic/registry/store.go``.
"""

import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.times import format_time
from kerf_dra.driver.local.apiserver.admission.admission import (
    check_namespace,
    validate_admin_access,
    validate_admin_access_of_status,
)
from kerf_dra.driver.local.apiserver.admission.mutation_policies import apply_policies
from kerf_dra.driver.local.apiserver.admission.policies import AdmissionAttributes
from kerf_dra.driver.local.apiserver.admission.validating_policies import check_policies
from kerf_dra.driver.local.apiserver.http.query_options import WriteOptions
from kerf_dra.driver.local.apiserver.kinds.served_kinds import ServedKinds
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from kerf_dra.driver.local.apiserver.meta import managed_fields
from kerf_dra.driver.local.apiserver.meta.documents import (
    JsonValue,
    deep_copy,
    drop,
    lookup,
    replace,
    without,
    without_nulls,
)
from kerf_dra.driver.local.apiserver.meta.names import validate_metadata, validate_metadata_update
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    MODIFIED,
    ApiStatusError,
    FieldError,
    FieldErrors,
    already_exists,
    bad_request,
    conflict,
    invalid,
    object_invalid,
    object_not_found,
    quoted,
)
from kerf_dra.driver.local.apiserver.registry.delete import is_gone
from kerf_dra.driver.local.apiserver.storage import ObjectKey, Storage, StoredObject

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels and no digits that look like letters, lest they form words (``util/rand``)."""
_SUFFIX_LENGTH: Final = 5
_MAX_GENERATED: Final = 63 - _SUFFIX_LENGTH
"""The longest prefix of ``generateName`` that is used (``MaxGeneratedNameLength``)."""

_SYSTEM_METADATA: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
"""Fields of ``metadata`` that only the server writes."""

UpdateFunction: TypeAlias = Callable[[JsonObject | None], JsonObject]
"""Turns the present document, in the version of the request (None: there is none), into the wanted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """How one object is to be written."""

    type: ResourceType
    version: ApiVersion
    key: ObjectKey
    """The key; for a creation without the name, which is in the document."""
    subresource: str = ""
    options: WriteOptions = field(default_factory=WriteOptions)
    operation: Literal["Update", "Apply"] = "Update"
    """An apply comes with its ``managedFields``; those of an update are computed here."""
    allow_create: bool = False
    replaces: bool = False
    """Whether the client sends the whole object (PUT), so that a uid in it is a precondition."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The object after the request; after a dry run, as it would be."""

    stored: StoredObject
    created: bool = False
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWriter:
    """Creates and updates objects in one storage."""

    storage: Storage
    served_kinds: ServedKinds
    clock: Callable[[], datetime]
    uid: Callable[[], str]
    random: random.Random
    dropped_fields: Mapping[str, Sequence[str]]

    def create(self, request: WriteRequest, document: JsonObject) -> WriteResult:
        """Create an object. Raises ApiStatusError (400, 403, 404 without its namespace, 409 when it exists, 422)."""
        type_, version = request.type, request.version
        _check_identity(request, document)
        if document["metadata"].get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise ApiStatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)  # 500 without a reason, as upstream
        body, warnings = self._build_stored_body(request, document)
        body = self._apply_policies(request, body, None)
        metadata = body["metadata"]
        if metadata.get("generateName") and not metadata.get("name"):
            metadata["name"] = self._generate_name(metadata["generateName"])
        key = ObjectKey(request.key.namespace, metadata.get("name") or "")
        self._fill_system_metadata(type_, metadata, key)
        if type_.namespaced:
            check_namespace(self.storage, type_, key)
        if version.has_status and not type_.status_on_create:
            body.pop("status", None)
        _set_or_drop(metadata, "managedFields", self._record_managers(request, None, body))
        version.strategy.prepare_for_create(body)
        self._refuse(
            type_,
            key.name,
            [
                *validate_admin_access(self.storage, type_, key, body),
                *_validate_metadata(type_, metadata),
                *version.strategy.validate(body),
            ],
        )
        self._check_policies(request, key, body, None)
        if self.storage.get(type_.store, key):
            raise self._already_exists(type_, key, generated=bool(metadata.get("generateName")))
        return WriteResult(self._commit(request, key, body), created=True, warnings=warnings)

    def update(self, request: WriteRequest, change: UpdateFunction) -> WriteResult:
        """Update an object. Raises ApiStatusError (400, 403, 404, 409 when it has changed meanwhile, 422)."""
        type_ = request.type
        old = self.storage.get(type_.store, request.key)
        if old is None:
            return self._create_by_update(request, change)
        wanted = change(_to_wire(request, old.body))
        _check_identity(request, wanted)
        self._check_revision(request, old, wanted)
        body, warnings = self._build_stored_body(request, wanted)
        self._restore_unwritten(request, old.body, body)
        body = self._apply_policies(request, body, old)
        metadata = body["metadata"]
        if request.operation == "Update":
            _set_or_drop(metadata, "managedFields", self._record_managers(request, old, body))
        if request.subresource == "status":
            request.version.strategy.prepare_for_status_update(body, old.body)
        else:
            request.version.strategy.prepare_for_update(body, old.body, format_time(self.clock()))
        if type_.counts_generation and _select_counted(request, body) != _select_counted(request, old.body):
            metadata["generation"] = old.body["metadata"].get("generation", 0) + 1
        self._refuse(type_, request.key.name, self._validate_update(request, body, old.body))
        self._check_policies(request, request.key, body, old)
        return WriteResult(self._store_update(request, old, body), warnings=warnings)

    def _create_by_update(self, request: WriteRequest, change: UpdateFunction) -> WriteResult:
        if not request.allow_create or request.subresource:
            raise object_not_found(request.type.group, request.type.plural, request.key.name)
        document = change(None)
        _check_identity(request, document)
        if document["metadata"].get("uid"):
            why = f"Precondition failed: UID in precondition: {document['metadata']['uid']}, UID in object meta: "
            raise conflict(request.type.group, request.type.plural, request.key.name, why)
        metadata = without(document["metadata"], "resourceVersion")
        return self.create(request, {**document, "metadata": {**metadata, "name": request.key.name}})

    def _build_stored_body(self, request: WriteRequest, document: JsonObject) -> tuple[JsonObject, Sequence[str]]:
        """Return a new body in the stored form, with defaults; and warnings for the client."""
        type_, version = request.type, request.version
        body = deep_copy(without(document, "kind", "apiVersion"))
        if not type_.is_custom:
            body = without_nulls(body)
        # Empty and absent fields of metadata are the same.
        body["metadata"] = {
            name: value for name, value in without_nulls(body["metadata"]).items() if value not in ([], {})
        }
        warnings = version.strategy.prune(body, request.options.field_validation)
        if version.to_stored:
            body = version.to_stored(body)
        for path in self.dropped_fields.get(type_.plural, ()):
            drop(body, path)
        canonicalize_quantities(body, version.strategy.quantities, type_.kind, version.name)
        version.strategy.default(body, format_time(self.clock()))
        return body, warnings

    def _apply_policies(self, request: WriteRequest, body: JsonObject, old: StoredObject | None) -> JsonObject:
        """Return a stored body as MutatingAdmissionPolicies change it, with the defaults of what they add.

        Raises ApiStatusError: 422 when a policy fails, 400 when it adds a field that the kind does not have.
        """
        write = self._build_attributes(request, request.key, body, old)
        changed = apply_policies(self.storage, self.served_kinds, write)
        if changed == write.new:
            return body
        strict = dataclasses.replace(request, options=dataclasses.replace(request.options, field_validation="Strict"))
        return self._build_stored_body(strict, changed)[0]

    def _generate_name(self, prefix: str) -> str:
        suffix = "".join(self.random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))
        return prefix[:_MAX_GENERATED] + suffix

    def _fill_system_metadata(self, type_: ResourceType, metadata: JsonObject, key: ObjectKey) -> None:
        for name in (*_SYSTEM_METADATA, "generation", "resourceVersion"):
            metadata.pop(name, None)
        metadata["uid"] = self.uid()
        metadata["creationTimestamp"] = format_time(self.clock())
        if type_.counts_generation:
            metadata["generation"] = 1
        if key.namespace:
            metadata["namespace"] = key.namespace
        else:
            metadata.pop("namespace", None)

    def _check_revision(self, request: WriteRequest, old: StoredObject, wanted: JsonObject) -> None:
        type_, name = request.type, request.key.name
        metadata = wanted["metadata"]
        uid = metadata.get("uid")
        # In a patch another uid is no precondition but a forbidden change, which validation reports.
        if request.replaces and uid and uid != old.body["metadata"]["uid"]:
            found = old.body["metadata"]["uid"]
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
            raise conflict(type_.group, type_.plural, name, why)
        revision = metadata.get("resourceVersion")
        if revision and str(revision) != str(old.revision):
            raise conflict(type_.group, type_.plural, name, MODIFIED)
        if not revision and not type_.allow_unconditional_update:
            raise object_invalid(
                type_.group,
                type_.plural,
                name,
                [invalid("metadata.resourceVersion", 0, "must be specified for an update")],
            )

    def _restore_unwritten(self, request: WriteRequest, old: JsonObject, body: JsonObject) -> None:
        """Restore, in place, what this endpoint does not write."""
        metadata, kept = body["metadata"], old["metadata"]
        if request.subresource == "status":
            status = body.get("status")
            managed = metadata.get("managedFields")
            body.clear()
            body.update(deep_copy(without(old, "status")))
            if status is not None:
                body["status"] = status
            if managed is not None:
                body["metadata"]["managedFields"] = managed
            return
        metadata.setdefault("uid", kept["uid"])
        for name in (*_SYSTEM_METADATA[1:], "generation", "resourceVersion"):
            if name in kept:
                metadata[name] = kept[name]
            else:
                metadata.pop(name, None)
        if request.key.namespace:
            metadata["namespace"] = request.key.namespace
        if request.version.has_status:
            body.pop("status", None)
            if "status" in old:
                body["status"] = old["status"]

    def _validate_update(self, request: WriteRequest, body: JsonObject, old: JsonObject) -> FieldErrors:
        type_, strategy = request.type, request.version.strategy
        yield from validate_metadata_update(body["metadata"], old["metadata"])
        if request.subresource == "status":
            yield from validate_admin_access_of_status(self.storage, type_, request.key, body, old)
            yield from strategy.validate_status(body, old)
            return
        yield from _validate_metadata(type_, body["metadata"])
        yield from strategy.validate_update(body, old)

    def _record_managers(self, request: WriteRequest, old: StoredObject | None, body: JsonObject) -> list[JsonObject]:
        """Return the ``managedFields`` after this write."""
        if request.operation == "Apply":
            return list(body["metadata"].get("managedFields") or [])
        to_wire = request.version.to_wire
        shown = to_wire(body) if to_wire else body
        before = None if old is None else (to_wire(old.body) if to_wire else old.body)
        return managed_fields.record_update(
            before,
            shown,
            by=managed_fields.FieldManager(
                name=request.options.field_manager,
                api_version=request.type.api_version(request.version),
                subresource=request.subresource,
                time=format_time(self.clock()),
            ),
            schema=request.version.merge_schema,
            zero=request.version.zero_value,
        )

    def _check_policies(
        self, request: WriteRequest, key: ObjectKey, body: JsonObject, old: StoredObject | None
    ) -> None:
        """Raise ApiStatusError when a ValidatingAdmissionPolicy denies the write."""
        check_policies(self.storage, self._build_attributes(request, key, body, old))

    def _build_attributes(
        self, request: WriteRequest, key: ObjectKey, body: JsonObject, old: StoredObject | None
    ) -> AdmissionAttributes:
        return AdmissionAttributes(
            operation="CREATE" if old is None else "UPDATE",
            resource=request.type.store,
            version=request.version.name,
            subresource=request.subresource,
            key=key,
            new=_to_wire(request, body),
            old=None if old is None else _to_wire(request, old.body),
        )

    def _refuse(self, type_: ResourceType, name: str, errors: Iterable[FieldError]) -> None:
        if found := list(errors):
            raise object_invalid(type_.group, type_.kind, name, found)

    def _already_exists(self, type_: ResourceType, key: ObjectKey, *, generated: bool) -> ApiStatusError:
        refusal = already_exists(type_.group, type_.plural, key.name)
        if generated:
            message = f"{refusal.message}, the server was not able to generate a unique name for the object"
            return ApiStatusError(
                HTTPStatus.CONFLICT, refusal.reason, message, details=refusal.details, retry_after_s=1
            )
        there = self.storage.get(type_.store, key)
        if there and there.body["metadata"].get("deletionTimestamp"):
            message = f"object is being deleted: {refusal.message}"
            return ApiStatusError(HTTPStatus.CONFLICT, refusal.reason, message, details=refusal.details)
        return refusal

    def _store_update(self, request: WriteRequest, old: StoredObject, body: JsonObject) -> StoredObject:
        metadata = body["metadata"]
        if is_gone(metadata) and not lookup(body, "spec", "finalizers"):
            if not request.options.dry_run:
                self.storage.remove(request.type.store, request.key, body)
            return StoredObject(request.key, old.revision, body)
        metadata["resourceVersion"] = str(old.revision)
        if managed_fields.is_unchanged(body, old.body):
            return old
        return self._commit(request, request.key, body)

    def _commit(self, request: WriteRequest, key: ObjectKey, body: JsonObject) -> StoredObject:
        if request.options.dry_run:
            return StoredObject(key, 0, body)
        return self.storage.put(request.type.store, key, body)


def canonicalize_quantities(body: JsonObject, paths: Sequence[str], kind: str, version: str) -> None:
    """Rewrite, in place, the quantities at the paths. Raises ApiStatusError (400) for a value that is none.

    Each amount has one form, in whatever form it was written: ``1024Mi`` comes back as ``1Gi``
    (``resource.Quantity`` of ``k8s.io/apimachinery``).
    """
    try:
        for path in paths:
            replace(body, path, _canonical_quantity)
    except InvalidQuantityError as error:
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: quantities must match the regular '
            "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _canonical_quantity(amount: JsonValue) -> str:
    return str(Quantity(str(amount)))


def _validate_metadata(type_: ResourceType, metadata: JsonObject) -> FieldErrors:
    return validate_metadata(
        metadata, namespaced=type_.namespaced, name_check=type_.name_check, any_finalizer=type_.any_finalizer
    )


def _to_wire(request: WriteRequest, body: JsonObject) -> JsonObject:
    """Return a stored body in the version of the request, with kind and version. Not to be changed in place."""
    convert = request.version.to_wire
    names = {"kind": request.type.kind, "apiVersion": request.type.api_version(request.version)}
    return {**names, **(convert(body) if convert else body)}


def _set_or_drop(document: JsonObject, name: str, value: object) -> None:
    document.pop(name, None)
    if value:
        document[name] = value


def _select_counted(request: WriteRequest, body: JsonObject) -> JsonObject:
    """Return the part of a body whose changes ``metadata.generation`` counts."""
    return without(body, "metadata", "status") if request.version.has_status else without(body, "metadata")


def _check_identity(request: WriteRequest, document: JsonObject) -> None:
    """Raise ApiStatusError (400) unless the document has the kind and identity that the URL names."""
    expected = request.type.api_version(request.version)
    api_version, kind = document.get("apiVersion") or expected, document.get("kind") or request.type.kind
    if kind != request.type.kind and request.type.is_custom:
        name = lookup(document, "metadata", "name") or ""
        raise object_invalid(request.type.group, kind, name, [invalid("kind", kind, f"must be {request.type.kind}")])
    if kind != request.type.kind or api_version.rpartition("/")[0] != request.type.group:
        raise bad_request(
            f"{kind} in version {quoted(api_version)} cannot be handled as a {request.type.kind}: "
            f"this address takes {request.type.kind} of {expected}"
        )
    if api_version != expected:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )
    metadata = document.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if request.key.name and name and name != request.key.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({request.key.name})")
    if request.type.namespaced and namespace and namespace != request.key.namespace:
        if request.key.name:
            raise bad_request(
                f"the namespace of the object ({namespace}) does not match the namespace on the request "
                f"({request.key.namespace})"
            )
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")

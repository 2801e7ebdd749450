"""``authorization.k8s.io/v1``: questions to the API server whether a user may do something.

A review is created and answered in one call, and never stored; its answer is in the object that comes back.
"""

from kerf_dra.api.model.base import Value
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.wire import Kind, identity_kind


class ResourceAttributes(Value):
    """The action that a review is about; an empty ``name`` means every object, an empty ``namespace`` all of them."""

    verb: str
    group: str = ""
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class AccessReviewSpec(Value):
    """Who does what: ``user`` with ``groups``, or in a SelfSubjectAccessReview the caller."""

    resource_attributes: ResourceAttributes
    user: str = ""
    groups: tuple[str, ...] = ()


class AccessReviewStatus(Value):
    """The answer of the API server's authorizers."""

    allowed: bool = False
    reason: str = ""


class SubjectAccessReview(Object):
    """Whether the user of the spec may do what it says; needs the permission to ask for others."""

    spec: AccessReviewSpec
    status: AccessReviewStatus = AccessReviewStatus()


class SelfSubjectAccessReview(Object):
    """Whether the caller may do what the spec says; every account may ask."""

    spec: AccessReviewSpec
    status: AccessReviewStatus = AccessReviewStatus()


SUBJECT_ACCESS_REVIEWS: Kind[SubjectAccessReview] = identity_kind(
    SubjectAccessReview,
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    namespaced=False,
)
SELF_SUBJECT_ACCESS_REVIEWS: Kind[SelfSubjectAccessReview] = identity_kind(
    SelfSubjectAccessReview,
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    namespaced=False,
)

"""Whether anything puts the placements into effect that ResourceClasses ask for.

The controller knows whether schedulers ask its extender and whether graded placement is enabled, and says so in the
condition Placement of each class. Its metrics, its Lease and the policy are not read: the condition is what everyone
sees.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kerf_dra.api.kerf.v1alpha1 import PLACEMENT, ResourceClassObject
from kerf_dra.driver.diagnostics.preflight.results import CheckResult, ok, warning
from kerf_dra.driver.placement.class_placement import read_placement

CHECK: Final = "class-placements"
_PAGE: Final = "docs/placement.md says how to put it into effect; or omit placement"


def check_class_placements(classes: Iterable[ResourceClassObject], *, is_classic: bool) -> Iterator[CheckResult]:
    """Check the classes that ask for nodes to be preferred; ``is_classic``: drivers allocate in this cluster."""
    asking = [held for held in classes if read_placement(held.spec) in ("Packed", "Spread")]
    for held in asking:
        yield _check_class(held, is_classic=is_classic)
    if not asking:
        yield ok(CHECK, "no ResourceClass asks for nodes to be preferred (placement: Packed or Spread)")


def _check_class(held: ResourceClassObject, *, is_classic: bool) -> CheckResult:
    name = held.metadata.name
    asks = f"ResourceClass {name} asks for placement: {read_placement(held.spec)}"
    if is_classic:
        return warning(CHECK, f"{asks}, which has no effect where drivers allocate (classic DRA)", "omit placement")
    found = next((each for each in held.status.conditions if each.type == PLACEMENT), None)
    if found is None:
        step = f"see whether the controller runs, and the conditions: kubectl describe resourceclass {name}"
        return warning(CHECK, f"{asks}, and the controller has not said whether it is in effect", step)
    if found.status == "True":
        return ok(CHECK, f"{asks}: {found.message}")
    return warning(CHECK, f"{asks}: {found.message}", _PAGE)

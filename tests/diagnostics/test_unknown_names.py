"""Misspelled attributes and capacities: on every device an error, which the API server does not notice."""

import pytest

from kerf_dra.api.model.claims import DeviceConstraint
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim
from kerf_dra.driver.diagnostics.plan import plan_workloads
from tests.fakes.cluster_states import claim, device_class, gpu_cluster, parse, replace, request

DRIVER = 'device.driver == "gpu.kerf.dev"'
AT_LEAST = '.compareTo(quantity("18Gi")) >= 0'


def explain(*selectors: str, of_class: str = DRIVER) -> WhyReport:
    now = replace(
        gpu_cluster(), classes=(device_class("any", of_class),), claims=(claim("c", request("r", "any", *selectors)),)
    )
    return explain_claim(ClusterIndex(now), ObjectRef("default", "c"))


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        ('device.capacity["gpu.kerf.dev"].memry', 'device.capacity["gpu.kerf.dev"].memory'),
        ('device.attributes["gpu.kerf.dev"].memory', 'device.capacity["gpu.kerf.dev"].memory'),
        ('device.capacity["gpu.kerf.dve"].memory', 'device.capacity["gpu.kerf.dev"].memory'),
        ('device.capacity["gpu.kerf.dev"]["Memory"]', 'device.capacity["gpu.kerf.dev"].memory'),
    ],
)
def test_a_misspelled_name_is_named_with_the_one_that_is_meant(read: str, meant: str) -> None:
    answer = explain('device.attributes["gpu.kerf.dev"].cut == "partition"', f"{read}{AT_LEAST}")
    assert answer.verdict is Verdict.INVALID
    [cause] = answer.causes
    assert cause.message.startswith(
        "claim default/c, spec.devices.requests[0].exactly.selectors[1]: no device has device."
    )
    assert cause.message.endswith(f"; did you mean {meant}?")
    assert answer.message == cause.message


def test_a_name_that_is_like_no_other_is_named_alone() -> None:
    answer = explain('device.attributes["example.com"].xyz == 1')
    assert answer.message.endswith('selectors[0]: no device has device.attributes["example.com"].xyz')


def test_a_name_of_another_driver_is_named_with_the_driver_that_has_it() -> None:
    """Selectors of one vendor's driver are taken along to another one."""
    answer = explain('device.attributes["mig.vendor.com"].profile == "1g.10gb"')
    assert answer.message.endswith(
        'no device has device.attributes["mig.vendor.com"].profile; devices of gpu.kerf.dev have it: write '
        'device.attributes["gpu.kerf.dev"].profile'
    )


def test_the_class_is_named_when_it_is_misspelled_there() -> None:
    answer = explain(of_class=f'{DRIVER} && device.attributes["gpu.kerf.dev"].profil == "1g.10gb"')
    assert answer.message == (
        'deviceclass any, spec.selectors[0]: no device has device.attributes["gpu.kerf.dev"].profil; did you mean '
        'device.attributes["gpu.kerf.dev"].profile?'
    )


def test_another_fault_of_an_expression_is_told_as_it_is() -> None:
    """The name that is asked for with a default is no fault, though no device has it."""
    answer = explain('device.attributes["gpu.kerf.dev"].?nothing.orValue(0) == 0', 'int("x") == 0')
    assert answer.verdict is Verdict.INVALID
    assert "no device has" not in answer.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu.kerf.dev/uid", "no device has the attribute gpu.kerf.dev/uid; did you mean gpu.kerf.dev/uuid?"),
        ("example.com/xyz", "no device has the attribute example.com/xyz"),
        ("kerf.dev/card", "no device has the attribute kerf.dev/card"),
    ],
)
def test_an_attribute_of_a_constraint_that_no_device_has_is_named(name: str, said: str) -> None:
    """It cannot hold over any devices, which reads as if they were taken."""
    pair = claim("c", request("r", "any", count=2), constraints=(DeviceConstraint(match_attribute=name),))
    now = replace(gpu_cluster(), classes=(device_class("any", DRIVER),), claims=(pair,))
    answer = explain_claim(ClusterIndex(now), ObjectRef("default", "c"))
    assert answer.verdict is Verdict.INVALID
    assert answer.message == f"claim default/c, spec.devices.constraints[0].matchAttribute: {said}"


def test_of_several_drivers_that_have_an_attribute_the_one_that_is_named_is_meant() -> None:
    """Another driver's was suggested in most runs, by the order of a set."""
    now = gpu_cluster()
    others = [
        replace(one, spec=replace(one.spec, driver=f"{letter}.example.com", pool=replace(one.spec.pool, name=letter)))
        for letter in "abcdefgh"
        for one in now.slices
    ]
    pair = claim("c", request("r", "any", count=2), constraints=(DeviceConstraint(match_attribute="gpu.kerf.dev/uid"),))
    now = replace(now, classes=(device_class("any", DRIVER),), claims=(pair,), slices=(*now.slices, *others))
    answer = explain_claim(ClusterIndex(now), ObjectRef("default", "c"))
    assert answer.message.endswith("; did you mean gpu.kerf.dev/uuid?")


def test_a_plan_names_it_too() -> None:
    cluster = ClusterIndex(replace(gpu_cluster(), classes=(device_class("any", DRIVER),)))
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "r",
                        "exactly": {
                            "deviceClassName": "any",
                            "selectors": [{"cel": {"expression": f'device.capacity["gpu.kerf.dev"].memry{AT_LEAST}'}}],
                        },
                    }
                ]
            }
        },
    }
    [unplaced] = plan_workloads(cluster, parse(cluster, template).workloads).unplaced
    assert unplaced.why.message.endswith('did you mean device.capacity["gpu.kerf.dev"].memory?')

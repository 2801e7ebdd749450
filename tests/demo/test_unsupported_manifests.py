"""Manifests for another release of Kubernetes, or for another program: one line says what there is to do about all."""

from pathlib import Path

import pytest

from kerf_dra.driver.demo.environment import find_packaged_folder
from kerf_dra.driver.demo.manifests import CLASSIC_CHECKS, BadManifestsError, load_manifests
from tests.demo.test_manifests import CLASS, POD, TEMPLATE, write

EXAMPLES = find_packaged_folder("examples")
QUOTA = "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\nspec: {hard: {}}\n"
QUEUE = "\napiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: team}\nspec: {clusterQueue: team}\n"
PARAMETERS = "\napiVersion: kerf.dev/v1alpha1\nkind: GpuClaimParameters\nmetadata: {name: small}\nspec: {}\n"


def lines_of(*paths: Path, is_classic: bool = False) -> tuple[str, ...]:
    with pytest.raises(BadManifestsError) as caught:
        load_manifests(paths, CLASSIC_CHECKS if is_classic else None)
    return caught.value.lines


def test_the_example_for_older_releases_says_which_option_it_needs() -> None:
    """Each of its documents was a line of its own, with a list of what is known."""
    [line] = lines_of(EXAMPLES / "classic")
    assert line.startswith(f"{EXAMPLES}/classic: resource.k8s.io/v1alpha2 ResourceClass, ")
    assert line.endswith("are for Kubernetes 1.27 to 1.31: add --classic")


def test_the_other_examples_say_so_with_that_option(tmp_path: Path) -> None:
    [line] = lines_of(EXAMPLES / "gpu-small", EXAMPLES / "gpu-whole", is_classic=True)
    assert line == (
        f"{EXAMPLES}/gpu-small/gpu-small.yaml, {EXAMPLES}/gpu-whole/gpu-whole.yaml: kerf.dev/v1alpha1 ResourceClass, "
        "resource.k8s.io/v1 ResourceClaimTemplate are for Kubernetes 1.32 and later: leave out --classic"
    )


@pytest.mark.parametrize(
    ("document", "is_classic"),
    [(PARAMETERS, False), (TEMPLATE.replace("/v1", "/v1alpha2"), False), (CLASS, True), (TEMPLATE, True)],
)
def test_one_misplaced_document_is_enough(tmp_path: Path, document: str, is_classic: bool) -> None:
    [line] = lines_of(write(tmp_path, POD.replace("image", "imgae"), document), is_classic=is_classic)
    assert line.endswith("leave out --classic" if is_classic else "add --classic")
    assert " is for Kubernetes " in line


def test_what_is_of_both_releases_is_not_misplaced(tmp_path: Path) -> None:
    """The classic demo takes no Deployments, which Kubernetes 1.30 has."""
    deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n"
    [line] = lines_of(write(tmp_path, deployment), is_classic=True)
    assert "apps/v1 Deployment is not known here" in line


def test_the_example_of_quotas_says_what_it_needs() -> None:
    [line] = lines_of(EXAMPLES / "quota")
    assert line.startswith(f"{EXAMPLES}/quota: config.kueue.x-k8s.io/v1beta2 Configuration, ")
    assert "need Kueue and Kubernetes' quota controller, and the demo has neither" in line
    assert "apply this to a cluster (docs/quota.md)" in line


@pytest.mark.parametrize(
    ("document", "needs"),
    [
        (QUOTA, "v1 ResourceQuota needs Kubernetes' quota controller, and the demo does not have it"),
        (QUEUE, "kueue.x-k8s.io/v1beta2 LocalQueue needs Kueue, and the demo does not have it"),
    ],
)
def test_what_needs_another_program_hides_no_other_mistake(tmp_path: Path, document: str, needs: str) -> None:
    lines = lines_of(write(tmp_path, document, CLASS.replace("4Gi", "4Gx")))
    assert needs in lines[0]
    assert "spec.minimum.memory" in lines[1]
    assert len(lines) == 2

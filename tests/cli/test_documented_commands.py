"""Every command of the pages is run by tests: here, or where the tables below say; or there is a reason not to."""

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from kerf_dra.driver.cli import main
from tests.structure.references import missing
from tests.structure.rules import check
from tools.generate.examples import FOLDERS
from tools.sources import ROOT, files, text

_BLOCK: Final = re.compile(r"^(?P<indent> *)```(?:sh|shell)\n(?P<lines>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"\s+# .*$")
_CLUSTER: Final = "docs/examples/full-card/cluster.json"

RUN_HERE: Final[Mapping[str, tuple[int, str]]] = {
    # command: its exit code, and a part of what it prints
    "kerf claim gpu --memory 18Gi": (0, 'compareTo(quantity("18Gi")) >= 0'),
    "kerf claim gpu --profile 1g.10gb --count 2 --same-card": (0, "count: 2"),
    "kerf claim gpu --memory 9Gi --count 2 --distinct-cards": (0, "distinctAttribute: gpu.kerf.dev/uuid"),
    "kerf claim gpu --memory 18Gi --pod busybox": (0, "resourceClaimTemplateName: gpu-memory-18gi"),
    "kerf claim gpu --cut whole --architecture hopper": (0, "hopper"),
    "kerf claim fpga --function zstd --kind claim": (0, "kind: ResourceClaim"),
    "kerf claim fpga --slots 2": (0, "slots"),
    "kerf models h100-80gb-sxm": (0, "7g.80gb"),
    f"kerf why pod/trainer --from {_CLUSTER}": (1, "default/notebook on node-1 ends"),
    f"kerf frag --from {_CLUSTER}": (0, "1 of 8 units are free, 1 of them stranded"),
    f"kerf plan -f deploy/examples/gpu-by-size --from {_CLUSTER}": (1, "would wait"),
}
_DEMO: Final = "tests/flows/test_demo.py"
_ORIGINS: Final = "tests/flows/test_demo_origins.py"
_KUBECTL: Final = "tests/contract/test_kubectl.py"
_QUESTIONS: Final = "tests/flows/test_diagnostics.py"
_NPU: Final = "tests/testing/test_npu_programs.py"
_QUOTA: Final = "tests/e2e/test_quota.py"
_GRADED: Final = "tests/e2e/test_graded_placement.py"
_DRAIN: Final = "tests/cli/test_drain.py"
_FPGA: Final = "tests/cli/test_fpga.py"
_FOLDERS: Final = "test_directories_of_dfx_mgr_say_what_to_write_into_their_documents"
_SIGNATURES: Final = "tests/kubeletplugin/backends/fpga/images/test_fetched_images.py"
"""Its keys and its signature were made by these commands."""
_ON_A_CLUSTER: Final = dict.fromkeys(
    (
        "make image ARGS=--with-simulated",
        "ctr --namespace k8s.io images import dist/kerf-image.tar",
        "helm install kerf deploy/chart/kerf --namespace kerf-system --create-namespace \\",
        "    --values deploy/chart/kerf/profiles/simulated.yaml",
        "kubectl label node NODE kerf.dev/simulated=true",
        "kubectl --namespace kerf-system rollout status daemonset kerf-kubelet-plugin-simulated",
        "kubectl apply --filename deploy/examples/gpu-by-size",
        "kubectl wait pod/gpu-by-size --for=condition=Ready --timeout=2m",
        "kubectl kerf why pod/gpu-by-size",
    ),
    "tests/installation/test_readme.py"
    "::test_the_commands_of_the_readme_lead_from_an_empty_cluster_to_a_pod_with_a_partition",
)
"""README's section on clusters, whose commands one test runs word by word."""
RUN_ELSEWHERE: Final[Mapping[str, str]] = {
    **_ON_A_CLUSTER,
    "make demo": f"{_DEMO}::test_the_whole_story_is_observed_and_nothing_is_left",
    "kerf demo -f deploy/examples/gpu-by-size": f"{_DEMO}::test_what_the_readme_shows_of_the_demo_is_what_it_prints",
    "kerf view": "tests/cli/test_view.py::test_a_cluster_is_shown_with_the_rights_of_the_kubeconfig",
    "kerf view --from docs/examples/full-card/cluster.json": (
        "tests/cli/test_view.py::test_the_printed_address_shows_a_file_of_gather_until_ctrl_c"
    ),
    "kerf demo --keep": (f"{_DEMO}::test_a_kept_cluster_stays_up_until_ctrl_c_and_then_proves_that_nothing_is_left"),
    "kubectl get pods,resourceclaims": f"{_KUBECTL}::test_get_shows_what_there_is",
    "kubectl get pods,resourceclaims --watch": f"{_KUBECTL}::test_watch_tells_of_a_pods_life_as_it_happens",
    "kubectl get resourceclasses,deviceclasses": f"{_KUBECTL}::test_get_shows_what_there_is",
    "kubectl apply -f deploy/examples/resource-classes": f"{_KUBECTL}::test_server_side_apply_and_patch",
    "kerf claim gpu --memory 18Gi | kubectl apply -f -": (
        "tests/e2e/test_own_size.py::test_a_size_of_ones_own_is_applied_and_its_pod_runs"
    ),
    "kerf check cluster": (
        "tests/cli/test_check.py::test_the_embedded_cluster_is_checked_and_what_it_does_not_serve_is_said"
    ),
    "kerf check node --backend nvidia --node-name $(hostname)": (
        "tests/cli/test_check.py::test_a_node_is_checked_without_a_cluster_and_nothing_is_made"
    ),
    "kerf checkpoint export /root/copies": (
        "tests/cli/test_checkpoint.py::test_a_copy_is_one_database_that_others_can_open"
    ),
    "kerf why pod/trainer -n research": (
        "tests/diagnostics/test_commands.py::test_why_tells_obstacles_holders_and_remedies"
    ),
    "kerf why deployment/web": "tests/diagnostics/test_workload_pods.py",
    "kerf why -A --idle": "tests/diagnostics/test_idle_claims.py",
    "kerf plan -f job.yaml --count 10": f"{_QUESTIONS}::test_a_plan_says_what_the_scheduler_then_does",
    "kerf top": f"{_QUESTIONS}::test_every_question_is_answered_by_the_cluster_and_alike_by_its_dump",
    "kerf frag": f"{_QUESTIONS}::test_every_question_is_answered_by_the_cluster_and_alike_by_its_dump",
    "kerf gather --output-file dump.json.gz": (
        f"{_QUESTIONS}::test_every_question_is_answered_by_the_cluster_and_alike_by_its_dump"
    ),
    "helm upgrade kerf deploy/chart/kerf -n kerf-system --reuse-values --set extender.enabled=true": (
        "tests/oracle/helm/test_helm.py"
        "::test_server_and_client_of_the_extender_know_one_another_by_the_certificates_of_the_chart"
    ),
    "helm upgrade kerf deploy/chart/kerf -n kerf-system --reuse-values --set gradedPlacement.enabled=true": (
        "tests/oracle/helm/test_helm.py"
        "::test_graded_placement_is_off_unless_a_value_says_so_and_kubernetes_has_the_kind_of_policy"
    ),
    "helm upgrade kerf deploy/chart/kerf -n kerf-system --reuse-values --set reclaim.enabled=true": (
        "tests/oracle/helm/test_helm.py::test_the_reclaimer_is_off_unless_a_value_says_so"
    ),
    "kubectl label namespace payments kerf.dev/do-not-evict=allowed": (
        "tests/local/apiserver/test_do_not_evict_policy.py"
        "::test_namespaces_with_the_label_are_left_out_and_writes_that_cannot_be_judged_are_refused"
    ),
    'kerf drain node-1/gpu-1 --reason "fan is loud, ticket 7" --wait': (
        f"{_DRAIN}::test_wait_ends_with_the_phase_or_with_its_time"
    ),
    'kerf drain node-1/gpu-1 --reason "ECC errors" --then reset --wait': (
        f"{_DRAIN}::test_with_then_wait_ends_when_the_card_is_back"
    ),
    "kerf drain node-1/gpu-2 --then hook=update-vbios --wait": (
        f"{_DRAIN}::test_then_says_what_is_done_with_the_free_card"
    ),
    "kerf drain node-1/gpu-3 --then mig-on --wait": f"{_DRAIN}::test_then_says_what_is_done_with_the_free_card",
    "kerf undrain node-1/gpu-1": f"{_DRAIN}::test_undrain_deletes_the_maintenances_of_the_card_and_of_no_other",
    'kubectl patch resourceclass gpu-small --type merge -p \'{"spec": {"placement": "Packed"}}\'': _GRADED,
    (
        "kubectl get resourceclass gpu-small -o jsonpath='{.status.conditions[?(@.type==\"Placement\")].message}'"
    ): _GRADED,
    "kerf placement config > extender.yaml": (
        "tests/cli/test_placement.py::test_the_fragment_has_the_address_and_the_certificates_of_the_cluster"
    ),
    "kerf check uninstall": "tests/cli/test_check.py::test_a_cluster_with_claims_of_kerfs_may_not_lose_it",
    "kerf fpga images": _FPGA,
    "kerf fpga shells": _FPGA,
    "kerf fpga slots": f"{_FPGA}::test_slots_show_what_is_loaded_and_which_claim_has_them",
    "kerf fpga load --dry-run --backend dfl fpga-0-aes-gcm-at-0": (
        f"{_FPGA}::test_a_dry_run_says_what_a_load_would_do_and_changes_nothing"
    ),
    "kerf fpga verify aes-gcm.gbs": f"{_FPGA}::test_an_image_file_says_what_to_write_into_its_document",
    "kerf fpga verify shell.yaml aes-gcm.yaml --images . --key release.pem": (
        f"{_FPGA}::test_signatures_are_checked_by_the_keys_that_are_given"
    ),
    "kerf fpga verify /lib/firmware/xilinx/k26_2rp_1409": f"{_FPGA}::{_FOLDERS}",
    "kerf fpga verify /lib/firmware/xilinx/k26_2rp_1409/aes128-0/aes128-0_slot0": f"{_FPGA}::{_FOLDERS}",
    "kubectl get fpgashells,fpgaimages": _FPGA,
    "kubectl describe fpgaimage aes-gcm": _FPGA,
    "openssl genpkey -algorithm ed25519 -out release.pem": _SIGNATURES,
    "openssl pkey -in release.pem -pubout": _SIGNATURES,
    "printf '%s\\n' kerf.dev/v1alpha1 aes-gcm 1.2.0 1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55 \\": _SIGNATURES,
    "  \"$(sha256sum < aes-gcm.gbs | cut -d' ' -f1)\" > statement": _SIGNATURES,
    "openssl pkeyutl -sign -rawin -in statement -inkey release.pem | base64 -w0": _SIGNATURES,
    "kerf devices --backend intel": "tests/kubeletplugin/backends/intel/test_backend.py",
    "kerf devices --backend dfl": "tests/kubeletplugin/backends/dfl/test_backend.py",
    "kerf devices --backend xrt": "tests/cli/test_devices.py::test_alveo_cards_are_listed",
    "kerf fpga verify aes.xclbin": (
        f"{_FPGA}::test_an_xclbin_file_says_what_to_write_and_is_checked_with_its_document"
    ),
    "kubectl apply -f deploy/examples/quota/kueue-queues.yaml -f deploy/examples/quota/kueue-job.yaml": _QUOTA,
    "kubectl get workloads": _QUOTA,
    "kerf demo -f deploy/examples/device-plugin": f"{_ORIGINS}::test_a_pod_of_a_device_plugin_has_its_partition",
    "kubectl apply -f deploy/examples/device-plugin": (
        "tests/e2e/test_device_plugin.py::test_the_example_runs_a_pod_that_counts_gpus"
    ),
    r"kubectl get nodes -o custom-columns=NODE:.metadata.name,GPUS:.status.allocatable.example\\.com/gpu": (
        "tests/local/test_device_plugins.py::test_the_node_shows_its_devices_and_a_pod_that_cannot_have_one_fails"
    ),
    "kerf demo -f deploy/examples/intel-fractions": f"{_ORIGINS}::test_tiles_have_a_mask_and_shares_their_limits",
    "kubectl apply -f deploy/examples/intel-fractions": (
        "tests/e2e/test_intel.py::test_the_example_gives_two_tiles_and_two_shares"
    ),
    "kerf demo -f deploy/examples/discovered-cameras": f"{_ORIGINS}::test_five_replicas_have_two_cameras",
    "kubectl apply -f deploy/examples/discovered-cameras": (
        "tests/e2e/test_discovered_devices.py::test_the_example_of_two_cameras_runs_five_replicas"
    ),
    "kubectl get clusterqueue team -o yaml": _QUOTA,
    "kubectl apply -f deploy/examples/classic/classes.yaml -f deploy/examples/classic/gpu-by-size.yaml": (
        "tests/flows/test_classic_demo.py"
    ),
    "python -m kerf_dra.driver.testing.nvml /tmp/machine h100-80gb h100-80gb a30": (
        "tests/testing/nvml/test_demonstration.py"
        "::test_a_machine_of_the_command_line_is_found_by_the_variables_that_it_prints"
    ),
    "cd tools/image/cdi_hook": "tests/oracle/nvidia/test_hooks_in_containers.py",
    "go build -o nvidia-cdi-hook github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook": (
        "tests/oracle/nvidia/test_hooks_in_containers.py"
    ),
    "kerf new-driver tpu --vendor umbrella": "tests/testing/test_new_driver.py",
    "pip install ./docs/examples/npu": _NPU,
    "mkdir -p /tmp/npus/npu-0 /tmp/npus/npu-1": _NPU,
    "kerf devices --family npu --backend acme=/tmp/npus": f"{_NPU}::test_its_devices_are_shown",
    "kerf demo --backend acme=/tmp/npus -f docs/examples/npu/pods.yaml": (
        f"{_NPU}::test_pods_of_its_manifests_run_in_the_demo"
    ),
    **{f"kubectl apply -f {folder}": "tests/e2e/test_examples.py" for folder in FOLDERS},
}
"""The tests that run a command, or what it does, on a cluster or with programs."""
PAGES_RUN_ELSEWHERE: Final[Mapping[str, str]] = {
    "docs/another-driver.md": "tests/oracle/drivers/test_drivers_in_go.py",
    "docs/install.md": "tests/installation/test_installation.py",
    "docs/sanity.md": "tests/sanity/test_command.py",
    "docs/metrics.md": "tests/cli/test_documented_commands.py::test_the_alerts_become_an_object_of_the_operator",
}
"""Pages whose blocks belong together, with the tests that go that way."""
NOT_RUN: Final[Mapping[str, str]] = {
    "export OPCUA_DISCOVERY_URL=\"$(env | sed -n 's/^OPCUA_DISCOVERY_URL_[0-9A-F]\\{6\\}=//p')\"": (
        "needs a container with a device; the variable is that of tests/attack/test_node_tokens.py"
    ),
    "make test": "it runs this test",
    "echo 0000:3b:00.0 > /sys/bus/pci/drivers/dfl-pci/unbind": "needs such a card; make kernel-dfl does it in a guest",
    "echo 0000:3b:00.0 > /sys/bus/pci/drivers/dfl-pci/bind": "needs such a card; make kernel-dfl does it in a guest",
    ".venv/bin/pytest -q tests/families/test_catalogs.py": "they are tests of their own",
    "pip install '.[view]'": "what it installs is in requirements-dev.lock",
    "make gpu": "needs a card; on the stand-in `make test` runs tests/gpu",
    "KERF_GPU_DRIVER_ROOT=/run/nvidia/driver make gpu": "needs a card",
    "cat /sys/class/fpga_region/region*/dfl-fme.*/dfl-fme-region.*/fpga_region/region*/compat_id": "needs a card",
    "cat /sys/class/fpga_region/region*/dfl-fme.*/ports_num": "needs a card",
    "kubectl exec --namespace kerf-system PLUGIN-POD -- kerf devices --backend nvidia=/etc/kerf/nvidia.yaml": (
        "needs a card; tests/cli/test_devices.py lists stand-ins for cards"
    ),
    "kubectl label node node-1 kerf.dev/dfl=true": "needs a card",
    "cat /sys/bus/pci/drivers/xocl/*/interface_uuids": "needs a card",
    "kubectl label node node-1 kerf.dev/xrt=true": "needs a card",
    (
        "podman build --build-arg BASE=REGISTRY/debian:12 --file deploy/image/xrt.Containerfile"
        " --tag REGISTRY/kerf-xrt:0.1.0 ."
    ): "needs an image of Debian; tools/image reads the file",
    "kubectl label node node-1 kerf.dev/dfx-mgr=true": "needs a board",
    "kubectl apply -f deploy/crds -f deploy/manifests -f deploy/fpga": "needs a card; the manifests are compared",
    (
        "kubectl get resourceclaims -A -o jsonpath="
        "'{range .items[*].status.devices[*]}{.device} {.data.uuid}{\"\\n\"}{end}'"
    ): "kubectl's own language; the fields are read by tests/kubeletplugin/test_with_the_embedded_cluster.py",
}
PAGES_NOT_RUN: Final[Mapping[str, str]] = {
    "deploy/krew/README.md": "an archive of 50 MB, and Krew; tests/structure/test_forge_files.py judges the manifest",
    "docs/reliability.md": "records of runs that took hours, with their output; make has a target for each",
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def documented() -> Iterator[tuple[str, str]]:
    """Each page with each command of its blocks, without its comment."""
    for page in sorted(files()):
        name = page.as_posix()
        if page.suffix != ".md" or page.parts[0] == "tests" or name in {**PAGES_RUN_ELSEWHERE, **PAGES_NOT_RUN}:
            continue
        for block in _BLOCK.finditer(text(page)):
            lines = (line.removeprefix(block["indent"]) for line in block["lines"].splitlines())
            yield from ((name, _COMMENT.sub("", line)) for line in lines if line)


def test_every_command_of_a_page_is_run_or_has_a_reason() -> None:
    known = {**RUN_HERE, **RUN_ELSEWHERE, **NOT_RUN}
    check("no test runs it", {f"{page}: {command}" for page, command in documented() if command not in known})


def test_every_command_of_the_tables_is_in_a_page() -> None:
    in_pages = {command for _, command in documented()}
    check("in no page", {*RUN_HERE, *RUN_ELSEWHERE, *NOT_RUN} - in_pages)


def test_the_tests_of_the_tables_are_there() -> None:
    named = [*RUN_ELSEWHERE.values(), *PAGES_RUN_ELSEWHERE.values()]
    check("no such test", {fault for name in named for fault in missing(name)})


@pytest.mark.parametrize("command", RUN_HERE)
def test_a_command_of_a_page_does_what_it_says(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    code = main(shlex.split(command)[1:])
    output = capsys.readouterr()
    expected, said = RUN_HERE[command]
    assert code == expected
    assert [line for line in output.err.splitlines() if not line.startswith("note: ")] == []
    assert said in " ".join(output.out.split())


def test_the_alerts_become_an_object_of_the_operator() -> None:
    [(_, block)] = _BLOCK.findall(text(Path("docs/metrics.md")))
    script = block.replace("kubectl apply -f -", "cat")
    assert script != block
    made = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rule = yaml.safe_load(made)
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(text(Path("deploy/monitoring/rules.yaml")))

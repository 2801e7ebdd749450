"""The chart, rendered by Helm itself: lint, versions of Kubernetes, values, and the manifests of ``deploy/``."""

import base64
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.driver.cli.cluster.placement import CLIENT_SECRET, SERVICE
from tools.helm.chart import CHART, MANIFESTS, NAMESPACE, ROOT, Helm, RefusedError, documents, profile, render

pytestmark = pytest.mark.oracle

EVERYTHING: Mapping[str, Any] = {
    "image": {"digest": "sha256:" + "0" * 64, "pullPolicy": "Always", "pullSecrets": ["mine"]},
    "namespace": {"create": True},
    "earlyLoading": {"enabled": True},
    "kubeletRoot": "/data/kubelet",
    "cdiFolder": "/etc/cdi",
    "apiServer": {"address": "https://10.0.0.1:6443", "certificateAuthority": "-----BEGIN CERTIFICATE-----\nx\n"},
    "certificateAuthorities": "-----BEGIN CERTIFICATE-----\ny\n",
    "proxy": {"httpsProxy": "http://proxy.example:3128", "noProxy": ["10.0.0.0/8", ".lab"]},
    "log": {"level": "debug", "format": "text"},
    "controller": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    "extender": {"enabled": True, "clusterIP": "10.96.0.77"},
    "gradedPlacement": {"enabled": True},
    "plugin": {"check": True},
    "mpsDaemons": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "metrics": {"serviceMonitor": True, "prometheusRule": True, "dashboard": True, "labels": {"team": "gpu"}},
    "plugins": [
        {
            **profile("nvidia")["plugins"][0],
            "sharing": True,
            "driverRoot": "/run/nvidia/driver",
            "includeCards": {"nvidia": ["0000:3b:00.0", "0000:5e:00.0"]},
            "excludeCards": {"nvidia": ["GPU-8f3c1b2d-0000-4000-8000-000000000001"]},
        },
        {**profile("simulated")["plugins"][0], "nodeSelector": {"pool": "trial"}},
        {
            "name": "fpga",
            "families": ["fpga"],
            "backends": {"simulated": None},
            "privileged": True,
            "mounts": [{"name": "images", "path": "/opt/images", "readOnly": True}],
        },
    ],
}
"""Every value that changes what is rendered, with another value than the default."""


@pytest.fixture(scope="module")
def helm() -> Helm:
    return Helm.built()


@pytest.mark.parametrize("values", [{}, profile("simulated"), profile("nvidia"), profile("xrt"), EVERYTHING], ids=str)
def test_helm_finds_no_fault_of_the_chart(helm: Helm, values: Mapping[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), f"--values={file}")


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_the_manifests_are_rendered_from_the_chart(helm: Helm, manifest: str) -> None:
    assert (ROOT / "deploy" / manifest).read_text() == render(helm, manifest), "run `python -m tools.helm`"


def workloads(rendered: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in documents(rendered):
        if document["kind"] in {"DaemonSet", "Deployment"}:
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("kubernetes", "served"), [("1.30.0", None), ("1.32.1", "v1beta1"), ("1.33.0", "v1beta2"), ("1.37.0", "v1")]
)
def test_device_classes_have_the_version_that_kubernetes_serves(
    helm: Helm, kubernetes: str, served: str | None
) -> None:
    found = documents(helm.template(EVERYTHING, kubernetes=kubernetes))
    versions = {document["apiVersion"] for document in found if document["kind"] == "DeviceClass"}
    assert versions == ({f"resource.k8s.io/{served}"} if served else set())


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match=r"requires kubeVersion: >=1\.30"):
        helm.template({}, kubernetes="1.29.9")


def test_everything_is_in_the_namespace_of_the_release(helm: Helm) -> None:
    rendered = helm.template(EVERYTHING, namespace="elsewhere")
    assert NAMESPACE not in rendered
    namespaces = {document["metadata"].get("namespace") for document in documents(rendered)}
    assert namespaces == {"elsewhere", "default", None}, "events about cluster-scoped objects are in default"


def test_only_definitions_stay_when_the_release_goes(helm: Helm) -> None:
    for document in documents(helm.template(EVERYTHING)):
        kept = document["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
        assert kept == (document["kind"] == "CustomResourceDefinition"), document["metadata"]["name"]


def test_an_uninstall_is_checked_first_for_all_drivers_by_an_account_that_goes_with_the_check(helm: Helm) -> None:
    drivers = [*yaml.safe_load((CHART / "values.yaml").read_text())["drivers"], "npu.acme.example"]
    found = [
        document
        for document in documents(helm.template({**EVERYTHING, "drivers": drivers}))
        if document["metadata"]["name"] == "kerf-uninstall-check"
    ]
    assert {one["kind"] for one in found} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    for one in found:
        annotations = one["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "pre-delete"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        is_before_the_job = int(annotations.get("helm.sh/hook-weight", 0)) < 0
        assert is_before_the_job == (one["kind"] != "Job")
    (role,) = (one for one in found if one["kind"] == "ClusterRole")
    assert role["rules"] == [
        {"apiGroups": [group], "resources": [kind], "verbs": ["list"]}
        for group, kind in (("resource.k8s.io", "resourceclaims"), ("kerf.dev", "resourceclasses"), ("", "pods"))
    ]
    (job,) = (one for one in found if one["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    access = "--kubeconfig=/etc/kerf-api-server/kubeconfig"
    assert container["args"] == ["check", "uninstall", *(f"--driver={one}" for one in drivers), access]


def test_no_plugin_runs_on_all_nodes_unless_that_is_said(helm: Helm) -> None:
    for name, pod in workloads(helm.template(EVERYTHING)):
        assert pod.get("nodeSelector") or pod.get("affinity"), name
    vendors: dict[str, Any] = {"name": "npu", "families": ["gpu"], "backends": {"acme": None}}
    with pytest.raises(RefusedError, match="the profile npu has no nodeSelector: name its nodes, or set allNodes"):
        helm.template({"plugins": [vendors]})
    (pod,) = (
        pod for name, pod in workloads(helm.template({"plugins": [{**vendors, "allNodes": True}]})) if "npu" in name
    )
    assert "nodeSelector" not in pod


def test_every_profile_has_names_and_folders_of_its_own(helm: Helm) -> None:
    found = documents(helm.template(EVERYTHING))
    identities = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in found]
    assert len(identities) == len({*identities})
    states = {
        yaml.safe_load(text)["state"]
        for one in found
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith("kerf-hardware-")
        for file, text in one["data"].items()
        if file == "simulated.yaml"
    }
    assert states == {"/var/lib/kerf/simulated", "/var/lib/kerf/fpga"}


def test_only_profiles_that_say_so_are_privileged(helm: Helm) -> None:
    for name, pod in workloads(helm.template(EVERYTHING)):
        (container,) = pod["containers"]
        is_privileged = name in {"kerf-kubelet-plugin-nvidia", "kerf-kubelet-plugin-fpga", "kerf-mps-daemons"}
        assert bool(container["securityContext"].get("privileged")) == is_privileged, name
        assert bool(pod.get("hostPID")) == is_privileged, name
        assert container["image"] == f"localhost/kerf@sha256:{'0' * 64}"
        assert container["imagePullPolicy"] == "Always"


def test_the_check_before_a_plugin_has_its_rights_mounts_and_options(helm: Helm) -> None:
    for name, pod in workloads(helm.template(EVERYTHING)):
        if not name.startswith("kerf-kubelet-plugin-"):
            assert "initContainers" not in pod
            continue
        (check,), (plugin,) = pod["initContainers"], pod["containers"]
        for field in ("image", "imagePullPolicy", "env", "resources", "securityContext", "volumeMounts"):
            assert check[field] == plugin[field], (name, field)
        assert check["args"][:3] == ["check", "node", "--node-name=$(NODE_NAME)"]
        others = ("kubelet-plugin", "--profile=", "--probes-address=", "--log-")
        assert check["args"][2:] == [one for one in plugin["args"] if not one.startswith(others)], name


def test_without_that_value_there_is_no_check(helm: Helm) -> None:
    assert "initContainers" not in helm.template(profile("nvidia"))


def test_plugins_alone_have_the_proxy_and_the_authorities_of_image_servers(helm: Helm) -> None:
    """NO_PROXY has the API server: the address of its service, which the kubelet fills in, and that of the values."""
    rendered = helm.template(EVERYTHING)
    for name, pod in workloads(rendered):
        (container,) = pod["containers"]
        variables = {one["name"]: one.get("value") for one in container.get("env", ())}
        mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", ())}
        found = {name: value for name, value in variables.items() if name.endswith("_PROXY") or name.startswith("SSL_")}
        if name.startswith("kerf-kubelet-plugin-"):
            assert found == {
                "HTTPS_PROXY": "http://proxy.example:3128",
                "NO_PROXY": "$(KUBERNETES_SERVICE_HOST),10.0.0.1:6443,10.0.0.0/8,.lab",
                "SSL_CERT_FILE": "/etc/kerf-certificates/ca.crt",
            }
            assert mounts["certificates"] == "/etc/kerf-certificates"
        else:
            assert not found, name
    (authorities,) = (one for one in documents(rendered) if one["metadata"]["name"] == "kerf-certificate-authorities")
    assert authorities["data"] == {"ca.crt": EVERYTHING["certificateAuthorities"]}
    changed = helm.template({**EVERYTHING, "certificateAuthorities": "-----BEGIN CERTIFICATE-----\nz\n"})
    assert rendered.count("kerf.dev/certificate-authorities: ") == len(EVERYTHING["plugins"])
    for line in changed.splitlines():
        assert "kerf.dev/certificate-authorities: " not in line or line not in rendered, "the pods are new ones"


def test_without_a_proxy_there_is_no_variable_of_one(helm: Helm) -> None:
    rendered = helm.template({**profile("fpga"), "proxy": {"noProxy": [".lab"]}})
    assert "_PROXY" not in rendered
    assert "SSL_CERT_FILE" not in rendered


@pytest.mark.parametrize(
    ("usage", "options"),
    [
        ({}, []),
        ({"intervalSeconds": 0}, ["--sample-interval=0"]),
        ({"intervalSeconds": 7.5, "idleAfterSeconds": 3600}, ["--sample-interval=7.5", "--idle-after=3600"]),
    ],
)
def test_plugins_sample_as_the_values_say(helm: Helm, usage: Mapping[str, float], options: Sequence[str]) -> None:
    rendered = helm.template({**profile("simulated"), "plugin": {"usage": usage}})
    [arguments] = [
        pod["containers"][0]["args"] for name, pod in workloads(rendered) if name.startswith("kerf-kubelet-plugin-")
    ]
    assert [one for one in arguments if one.startswith(("--sample-interval", "--idle-after"))] == options


def test_every_mount_has_its_volume(helm: Helm) -> None:
    for name, pod in workloads(helm.template(EVERYTHING)):
        (container,) = pod["containers"]
        mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}, name


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"plugins": [{**profile("nvidia")["plugins"][0], "nodeSelectors": {}}]}, "nodeSelectors"),
        ({"plugins": [{**profile("nvidia")["plugins"][0], "privileged": False}]}, "allOf"),
        ({"plugin": {"surge": "yes"}}, "surge"),
        ({"plugin": {"usage": {"intervalSeconds": -1}}}, "intervalSeconds"),
        ({"drivers": ["gpu.kerf.dev"], **profile("simulated")}, r"driver fpga\.kerf\.dev is not in the value drivers"),
    ],
)
def test_wrong_values_are_refused_with_their_name(helm: Helm, values: Mapping[str, Any], said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        helm.template(values)


def test_writers_of_descriptions_are_those_whom_the_values_name(helm: Helm) -> None:
    def conditions(writers: Mapping[str, Any]) -> list[str]:
        rendered = documents(helm.template({"fpgaDescriptions": {"writers": writers}}))
        (policy,) = (
            one
            for one in rendered
            if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"] == "kerf-fpga-descriptions"
        )
        return [one["expression"] for one in policy["spec"]["validations"]]

    assert len(conditions({})) == 1
    assert conditions({"groups": ["fpga-team"], "users": ["ada"]})[1] == (
        'variables.groups.exists(group, group in ["fpga-team"]) || request.userInfo.username in ["ada"]'
    )
    with pytest.raises(RefusedError, match="fpgaDescriptions"):
        conditions({"users": ['ada"]) || true || ("']})


def test_server_and_client_of_the_extender_know_one_another_by_the_certificates_of_the_chart(
    helm: Helm, tmp_path: Path
) -> None:
    found = {one["metadata"]["name"]: one for one in documents(helm.template({"extender": {"enabled": True}}))}
    for side in ("server", "client"):
        (tmp_path / side).mkdir()
        for name, value in found[f"kerf-extender-{side}"]["data"].items():
            (tmp_path / side / name).write_bytes(base64.b64decode(value))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context()
    for side, context in (("server", server), ("client", client)):
        context.load_cert_chain(tmp_path / side / "tls.crt", tmp_path / side / "tls.key")
        context.load_verify_locations(tmp_path / side / "ca.crt")
    assert shake_hands(server, client, f"kerf-extender.{NAMESPACE}.svc") == "kube-scheduler"


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """The common name of the client's certificate, as the server sees it, when both sides accept one another."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(5):
        for side in (asking, serving):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    certificate: Any = serving.getpeercert()
    return str(dict(pair for part in certificate["subject"] for pair in part)["commonName"])


@pytest.mark.parametrize(("kubernetes", "is_there"), [("1.35.9", False), ("1.36.0", True), ("1.37.0", True)])
def test_graded_placement_is_off_unless_a_value_says_so_and_kubernetes_has_the_kind_of_policy(
    helm: Helm, kubernetes: str, is_there: bool
) -> None:
    assert "MutatingAdmissionPolicy" not in helm.template({}, kubernetes=kubernetes)
    found = documents(helm.template({"gradedPlacement": {"enabled": True}}, kubernetes=kubernetes))
    policies = [
        document["kind"] for document in found if document["metadata"]["name"] == "graded-placement.gpu.kerf.dev"
    ]
    assert policies == (["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"] if is_there else [])


def test_the_extender_is_off_unless_a_value_says_so(helm: Helm) -> None:
    rendered = [one for one in documents(helm.template({})) if one["kind"] != "CustomResourceDefinition"]
    assert "extender" not in json.dumps(rendered)


def test_the_reclaimer_is_off_unless_a_value_says_so(helm: Helm) -> None:
    """It is the only account of Kerf's that may evict pods."""
    rendered = [one for one in documents(helm.template({})) if one["kind"] != "CustomResourceDefinition"]
    assert "eviction" not in json.dumps(rendered)
    assert "reclaim" not in json.dumps(rendered)
    assert "do-not-evict" not in json.dumps(rendered)
    enabled = helm.template({"reclaim": {"enabled": True, "cards": 2, "replicas": 3}})
    roles = [one for one in documents(enabled) if one["kind"] == "ClusterRole" and "eviction" in json.dumps(one)]
    assert [one["metadata"]["name"] for one in roles] == ["kerf-reclaimer"]
    (pod,) = (pod for name, pod in workloads(enabled) if name == "kerf-reclaimer")
    assert pod["serviceAccountName"] == "kerf-reclaimer"
    assert pod["containers"][0]["args"][:7] == [
        "controller",
        "--reclaim",
        "--reclaim-mode=Report",
        "--reclaim-cards=2",
        "--reclaim-node-cards=2",
        "--reclaim-evictions=200",
        "--reclaim-namespace-evictions=100",
    ]


def test_only_in_mode_act_the_reclaimer_may_write_maintenances_by_itself(helm: Helm) -> None:
    for mode, may_create in (("Off", False), ("Report", False), ("Act", True)):
        rendered = helm.template({"reclaim": {"enabled": True, "mode": mode}})
        [role] = [
            one
            for one in documents(rendered)
            if one["metadata"]["name"] == "kerf-reclaimer" and one["kind"] == "ClusterRole"
        ]
        verbs = {verb for rule in role["rules"] if rule["resources"] == ["cardmaintenances"] for verb in rule["verbs"]}
        assert ("create" in verbs) is may_create
        assert "delete" in verbs, "what it has written is given back"


def test_who_may_mark_pods_is_a_policy_of_its_own_with_or_without_the_reclaimer(helm: Helm) -> None:
    rendered = documents(helm.template({"reclaim": {"restrictDoNotEvict": True}}))
    kinds = [one["kind"] for one in rendered if one["metadata"]["name"] == "kerf-do-not-evict"]
    assert kinds == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]


def test_certificates_of_ones_own_are_in_secrets_that_the_chart_does_not_make(helm: Helm) -> None:
    rendered = helm.template({"extender": {"enabled": True, "createCertificates": False}})
    assert [one["kind"] for one in documents(rendered) if one["kind"] == "Secret"] == []
    assert CLIENT_SECRET not in rendered
    (pod,) = (pod for name, pod in workloads(rendered) if name == "kerf-controller")
    assert [one["secret"]["secretName"] for one in pod["volumes"]] == ["kerf-extender-server"]


def test_the_service_of_the_extender_leads_to_its_port_in_the_controller(helm: Helm) -> None:
    rendered = helm.template(EVERYTHING)
    (service,) = (one for one in documents(rendered) if one["metadata"]["name"] == SERVICE and one["kind"] == "Service")
    (pod,) = (pod for name, pod in workloads(rendered) if name == service["spec"]["selector"]["app.kubernetes.io/name"])
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert service["spec"]["clusterIP"] == "10.96.0.77"
    assert (
        f"--extender-address=$(POD_IP):{ports[service['spec']['ports'][0]['targetPort']]}"
        in (pod["containers"][0]["args"])
    )
    policies = [one for one in documents(rendered) if one["kind"] == "NetworkPolicy"]
    opened = {port["port"] for one in policies for rule in one["spec"]["ingress"] for port in rule["ports"]}
    assert opened == set(ports.values())

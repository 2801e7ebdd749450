"""``kerf why``, ``plan``, ``frag`` and ``gather`` from the command line, on dumps."""

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.claims import DeviceClassSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.options.cluster import Progress, with_exit_codes
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, pod, replace, request

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def written(state: ClusterState, file: Path) -> str:
    file.write_bytes(encode_dump(state, compress=file.suffix == ".gz"))
    return str(file)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """A full node, one claim that waits for it, and one that fits nowhere."""
    now = allocate_claims(gpu_cluster(), *(claim(f"c{index}", "1g-10gb") for index in range(7)))
    hopeless = claim("hopeless", request("gpu", "1g-10gb", count=8))
    now = replace(now, claims=(*now.claims, claim("big", "3g-40gb"), hopeless), pods=(pod("p", "big"),))
    return written(now, tmp_path / "dump.json.gz")


def test_why_tells_obstacles_holders_and_remedies(run: Run, dump: str) -> None:
    code, out, err = run("why", "pod", "p", "--from", dump)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "pod default/p: it does not fit on the only node"
    assert "1 node: node-1" in lines
    assert "  claim default/big, request r0: 2 devices match, but what they need is taken" in lines
    card = lines.index("    gpu-0 of gpu.kerf.dev/node-1/gpu: memory, multiprocessors, memory-slice-0…6,")
    assert lines[card + 1].startswith("      held by default/c0,")
    [remedy] = [line for line in lines if line.startswith("  on node-1: ")]
    assert remedy.count("(pod default/c") == 3
    assert "\x1b" not in out, "colors are for terminals"


def test_a_search_that_is_given_up_is_told_with_its_limit_and_what_to_do(run: Run, dump: str) -> None:
    code, out, _ = run("why", "claim", "big", "--from", dump, "--deadline", "0.000000001")
    assert code == 3
    assert "a longer --deadline may decide it" in " ".join(out.split())
    assert "no decision within 1e-09 seconds" in out


def test_why_prints_one_document_for_programs(run: Run, dump: str) -> None:
    code, out, _ = run("why", "claim", "big", "--from", dump, "-o", "json")
    assert code == 1
    document = json.loads(out)
    assert list(document) == [
        "subject",
        "verdict",
        "message",
        "causes",
        "scheduler_says",
        "claims",
        "nodes",
        "fitting_nodes",
        "groups",
        "remedies",
        "remedies_searched",
        "warnings",
        "notes",
    ]
    assert document["verdict"] == "does-not-fit"
    assert document["groups"][0]["reasons"][0]["obstacle"] == "counters"
    assert yaml.safe_load(run("why", "claim", "big", "--from", dump, "-o", "yaml")[1]) == document


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["why", "claim", "c0"], 0, ""),
        (["why", "claim", "hopeless"], 1, ""),
        (["why", "claim", "nope"], 2, "kerf: there is no ResourceClaim default/nope"),
        (["why", "claim", "c0", "-n", "other"], 2, "there is default/c0"),
        (["why", "pod", "nope"], 2, "there is no pod default/nope that requests devices and has not ended"),
        (["why", "node", "x"], 2, "'node' is not a kind that uses devices; there is pod, claim,"),
        (["why", "claim", "c0", "--context", "x"], 2, "--from reads a file"),
    ],
)
def test_exit_codes_tell_a_no_from_a_bad_question(
    run: Run, dump: str, arguments: list[str], code: int, message: str
) -> None:
    found, _, err = run(*arguments, "--from", dump)
    assert found == code
    assert message in err


MANIFESTS = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: small}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: 1g-10gb}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: small}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
"""


@pytest.fixture
def manifests(tmp_path: Path) -> str:
    file = tmp_path / "web.yaml"
    file.write_text(MANIFESTS)
    return str(file)


@pytest.fixture
def idle(tmp_path: Path) -> str:
    return written(gpu_cluster(2), tmp_path / "idle.json")


def test_plan_tells_devices_what_more_fits_and_what_is_left(run: Run, idle: str, manifests: str) -> None:
    code, out, err = run("plan", "-f", manifests, "--count", "2", "--from", idle)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[1][:-1] == ["Pod", "default/web", "1", "node-1", "(or", "1", "more)", "gpu", "gpu"]
    assert "all 2 copies would be placed" in out
    assert "12 more of Pod default/web would fit" in out
    assert ["h100-80gb-sxm", "1g.10gb", "14", "12"] in lines
    assert "passed over: Service web" in out


def test_plan_tells_why_something_would_wait(run: Run, dump: str, manifests: str) -> None:
    code, out, _ = run("plan", "-f", manifests, "--from", dump)
    assert code == 1
    assert "1 of 1 would wait" in out
    assert "7 devices match, but are in use" in out
    assert "it would fit if these claims ended:" in out


def test_a_directory_with_links_to_itself_is_read_once(run: Run, idle: str, manifests: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.yaml", "b.yaml"):
        (folder / name).symlink_to(folder)
    (folder / "pods.yaml").write_text(Path(manifests).read_text())
    assert run("plan", "-f", str(folder), "--from", idle) == run("plan", "-f", manifests, "--from", idle)


OTHERS = (("Service", "a"), ("ConfigMap", "b"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "gpu-*"], "--nodes: no node is called 'gpu-*'; there is node-1, node-2"),
        (["-n", "other", "-f", "EMPTY"], "asks for nothing: there is no pod, claim or claim template"),
        (["-f", "OTHER"], "there is no pod, claim or claim template; passed over: Service a, ConfigMap b"),
        (["-f", "TEXT"], "document 1: is a str, not an object"),
        (["-f", "BROKEN"], "is not YAML"),
        (["--count", "0"], "0 is not in the range"),
    ],
)
def test_a_bad_plan_is_told(
    run: Run, idle: str, manifests: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    other = "\n---\n".join(f"{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}}}}}" for kind, name in OTHERS)
    for name, text in (("EMPTY", ""), ("OTHER", other), ("TEXT", "hello"), ("BROKEN", "a: [")):
        (tmp_path / name).write_text(text)
    given = [str(tmp_path / each) if each.isupper() else each for each in arguments]
    files = [] if "-f" in given else ["-f", manifests]
    code, out, err = run("plan", *files, *given, "--from", idle)
    assert (code, out) == (2, "")
    assert message in err


def test_plan_and_frag_print_documents(run: Run, idle: str, manifests: str) -> None:
    _, out, _ = run("plan", "-f", manifests, "--from", idle, "-o", "json", "--nodes", "node-2")
    document = json.loads(out)
    about = ["passed_over", "unheeded", "warnings", "notes", "unjudged"]
    assert list(document) == ["fits", "placed", "unplaced", "more", "sizes", *about]
    assert document["placed"][0]["node"] == "node-2"
    _, out, _ = run("frag", "--from", idle, "-o", "yaml")
    document = yaml.safe_load(out)
    about = ["unknown_cards", "counter_sets", "whole_devices", "packing", "packed_sizes"]
    assert list(document) == ["cards", "sizes", "advice", "no_advice", *about]
    assert document["cards"][0]["free"]["1g.10gb"] == 7


def test_frag_tells_sizes_cards_and_advice(run: Run, tmp_path: Path) -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "1g-10gb"), on="node-1")
    now = allocate_claims(now, claim("b", "1g-10gb"), on="node-2")
    code, out, _ = run("frag", "--from", written(now, tmp_path / "d.json"), "--size", "7g.80gb")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["h100-80gb-sxm", "7g.80gb", "0", "2"] in lines
    assert ["node-1", "gpu-0", "h100-80gb-sxm", "1", "7/8"] in [line[:5] for line in lines]
    assert "recreate 1 claim; there is room for them elsewhere:" in " ".join(out.split())
    assert any(line[:2] == ["default/a", "default/a"] for line in lines)


def test_frag_draws_the_cards_of_which_something_is_in_use(run: Run, tmp_path: Path) -> None:
    now = allocate_claims(gpu_cluster(2, 2), *(claim(f"c{n}", "1g-10gb") for n in range(7)), on="node-2")
    now = allocate_claims(now, claim("large", "4g-40gb"), on="node-1")
    _, out, _ = run("frag", "--from", written(now, tmp_path / "d.json"))
    drawn = [line for line in out.splitlines() if "[ " in line]
    assert [line.split("  [ ")[0].split() for line in drawn] == [["node-1", "gpu-0"], ["node-2", "gpu-0"]]
    assert "[ a a a a . . . . ]" in drawn[0]
    assert "[ b c d e f g h - ]" in drawn[1]
    assert "- = stranded: free, nothing fits" in out
    assert {f"= default/c{n}" for n in range(7)} <= {*re.findall("= default/c[0-9]", out)}


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_drawn_cards_have_the_width_of_the_terminal(
    run: Run, tmp_path: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    now = allocate_claims(gpu_cluster(2, 2), *(claim(f"c{n}", "1g-10gb") for n in range(7)))
    _, out, _ = run("frag", "--from", written(now, tmp_path / "d.json"))
    [drawn] = [part.splitlines() for part in out.split("\n\n") if "[ " in part]
    assert len(drawn) >= 2
    assert max(map(len, drawn)) <= min(columns, 80)


def test_why_draws_the_cards_in_the_way_and_no_others(run: Run, tmp_path: Path) -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "4g-40gb"), claim("b", "1g-10gb"), on="node-1")
    now = allocate_claims(now, claim("c", "7g-80gb"), on="node-2")
    waiting = claim("large", "7g-80gb")
    now = replace(now, claims=(*now.claims, waiting), pods=(pod("large", "large"),))
    _, out, _ = run("why", "pod/large", "--from", written(now, tmp_path / "d.json"))
    drawn = [line for line in out.splitlines() if "[ " in line]
    assert [line.split("  [ ")[0].split() for line in drawn] == [["node-1", "gpu-0"], ["node-2", "gpu-0"]]
    assert "[ c c c c c c c c ]" in drawn[1]
    assert "c = default/c" in out


def test_why_draws_the_card_that_a_claim_has_something_of(run: Run, tmp_path: Path) -> None:
    now = allocate_claims(gpu_cluster(2, 2), claim("a", "4g-40gb"), on="node-2")
    _, out, _ = run("why", "claim/a", "--from", written(now, tmp_path / "d.json"))
    [drawn] = [line for line in out.splitlines() if "[ " in line]
    assert drawn.startswith("node-2  gpu-0  [ a a a a . . . . ]  a = default/a")


def test_plan_draws_what_would_be_placed_beside_what_is_there(run: Run, tmp_path: Path, manifests: str) -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "4g-40gb"), on="node-1")
    file = written(now, tmp_path / "d.json")
    _, out, _ = run("plan", "-f", manifests, "--from", file, "--nodes", "node-1", "--count", "2")
    [drawn] = [line for line in out.splitlines() if "[ " in line]
    assert drawn.startswith("node-1  gpu-0  [ a a a a ")
    assert "a = default/a" in out
    planned = re.findall(r"([b-z]) = planned: Pod default/web, copy ([12])", " ".join(out.split()))
    assert sorted(number for _, number in planned) == ["1", "2"]
    assert all(f" {letter} " in drawn for letter, _ in planned)


def test_a_file_that_is_no_dump_is_bad_input(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    code, out, err = run("why", "claim", "c", "--from", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}: is not a dump of a cluster")


def test_a_cluster_that_cannot_be_reached_is_no_answer(run: Run, tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    }
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config))
    code, out, err = run("why", "claim", "c", "--kubeconfig", str(file))
    assert (code, out) == (3, "")
    assert "127.0.0.1:1" in err


def test_lists_that_fail_together_are_no_answer_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    @with_exit_codes
    def command() -> int:
        raise ExceptionGroup("lists", [TransientError("pods: 503"), ExceptionGroup("", [TransientError("pods: 503")])])

    assert command() == 3
    assert capsys.readouterr().err == "kerf: pods: 503\n"


def test_a_defect_of_ours_keeps_its_traceback() -> None:
    @with_exit_codes
    def command() -> int:
        raise ExceptionGroup("lists", [ZeroDivisionError()])

    with pytest.raises(ExceptionGroup):
        command()


def test_a_long_answer_tells_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 0.5, 1.5, 1.6])
    progress = Progress(clock=lambda: next(seconds))
    assert list(progress("abc", "looking at nodes")) == ["a", "b", "c"]
    assert capsys.readouterr().err == "looking at nodes: 2 of 3\n"


def test_compressed_dumps_are_gzip(dump: str) -> None:
    data = Path(dump).read_bytes()
    assert decode_dump(gzip.decompress(data), dump) == decode_dump(data, dump)


def test_plan_names_file_document_and_field_of_every_problem_of_every_document(
    run: Run, dump: str, tmp_path: Path
) -> None:
    """A pod in the form of Kubernetes 1.30 was once answered by "there is no ResourceClaimTemplate default/"."""
    first, second = tmp_path / "class.yaml", tmp_path / "pods.yaml"
    first.write_text(
        "{apiVersion: kerf.dev/v1alpha1, kind: ResourceClass, metadata: {name: c}, "
        "spec: {device: gpu, profil: 1g.10gb, minimum: {mem: 10Gi}}}"
    )
    old = {"name": "gpu", "source": {"resourceClaimName": "n"}}
    second.write_text(
        yaml.safe_dump_all(
            [
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fine"}},
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"resourceClaims": [old]}},
            ]
        )
    )
    code, out, err = run("plan", "-f", str(first), "-f", str(second), "--from", dump)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f'{first}: document 1: ResourceClass c: spec.profil: unknown field; did you mean "profile"?',
        f'{first}: document 1: ResourceClass c: spec.minimum.mem: is not a size of device: gpu; did you mean "memory"?',
        (
            f"{second}: document 2: Pod p: spec.resourceClaims[0].source: unknown field; Kubernetes 1.31 and later "
            "have its fields in the entry itself: write resourceClaimName: n beside name"
        ),
    ]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_plan_reads_what_claim_prints_in_every_version(
    run: Run, dump: str, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    _, printed, _ = run("claim", "gpu", "--profile", "1g.10gb", "--class", "1g-10gb", "--api-version", version)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(printed.encode())))
    code, out, _ = run("plan", "-f", "-", "--from", dump)
    assert out.startswith("1 of 1 would wait"), "nothing is left of the card"
    assert "on node-1: default/c0" in out, "another partition of this size would have to go"
    assert code == 1


def test_plan_and_why_note_a_size_that_is_hardly_meant(run: Run, idle: str, tmp_path: Path) -> None:
    """20Gi took half a card, and nothing said that 19Gi takes a quarter."""
    _, printed, _ = run("claim", "gpu", "--memory", "20Gi", "--class", "any", "--kind", "claim", "--name", "c")
    file = tmp_path / "claim.yaml"
    any_device = "{selectors: [{cel: {expression: 'device.driver == \"gpu.kerf.dev\"'}}]}"
    kind = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: any}"
    file.write_text(f"{printed}---\n{kind}, spec: {any_device}}}\n")
    code, out, _ = run("plan", "-f", str(file), "--from", idle)
    flat = " ".join(out.split())
    assert code == 0
    assert "all 1 copy would be placed 3 more" in flat, "a note is no warning"
    said = "request gpu: 20Gi is 0.4 GiB more than a 1g.20gb of h100-80gb-sxm has: it {} a 3g.40gb. 19Gi or 20G take"
    assert f"note: ResourceClaim default/c: claim c, {said.format('takes')}" in flat
    assert max(map(len, out.splitlines()[2:])) <= 80
    above = 'device.capacity["gpu.kerf.dev"].memory.isGreaterThan(quantity("20Gi"))'
    waiting = replace(gpu_cluster(), claims=(claim("c", request("gpu", "gpu", above)),))
    classes = (*waiting.classes, replace(waiting.classes[0], metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec()))
    dump = written(replace(waiting, classes=classes), tmp_path / "waiting.json")
    code, out, _ = run("why", "claim", "c", "--from", dump)
    assert code == 0
    assert f"note: claim default/c, {said.format('needs')}" in " ".join(out.split())

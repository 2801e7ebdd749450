"""``kerf demo``: runs the demo's scenario on an embedded cluster."""

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Final

import anyio
import click

from kerf_dra.api.core.v1 import PODS
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.cli.cluster.why import render_report
from kerf_dra.driver.cli.options import BackendParameter, option
from kerf_dra.driver.cli.options.cluster import format_count
from kerf_dra.driver.cli.output import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    OutputFormat,
    output_option,
    print_document,
    print_text,
)
from kerf_dra.driver.cli.program_name import find_shell_command
from kerf_dra.driver.cli.terminal_pictures import find_color_depth
from kerf_dra.driver.demo.cluster_picture import Explanation
from kerf_dra.driver.demo.display import Display, TextDisplay
from kerf_dra.driver.demo.environment import (
    DemoCluster,
    DemoEnvironment,
    DemoSettings,
    find_packaged_folder,
    open_environment,
)
from kerf_dra.driver.demo.hardware import find_manifest_hardware
from kerf_dra.driver.demo.interruption import INTERRUPTED, Interruption, run_in_folder
from kerf_dra.driver.demo.manifests import CLASSIC_CHECKS, STANDARD_INPUT, BadManifestsError, Manifest, load_manifests
from kerf_dra.driver.demo.own_manifests import OwnManifests
from kerf_dra.driver.demo.report import Report, to_document
from kerf_dra.driver.demo.scenario import EXAMPLES, Scenario, close_cluster, show_kept_cluster
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.collector import collect_state
from kerf_dra.driver.diagnostics.dump import redact
from kerf_dra.driver.diagnostics.explain.report import Subject, Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_misfit, explain_pod
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import InvalidError
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell, shells
from kerf_dra.driver.runtime import logs
from kerf_dra.driver.runtime.boot import read_boot_id

_LOG_TAIL: Final = 15
"""Lines of each program's log that are shown when the demo fails."""
_PAUSES_S: Final = {"slow": 5.0, "normal": 1.0, "full": 0.0}
"""Seconds for which a drawing may be read. What is printed stays, so that one who reads slowly loses nothing."""
_WHY_S: Final = 2.0
"""Seconds that the search on one node may take for an answer of ``kerf why``."""
_FINAL: Final = frozenset(
    {
        Verdict.CANNOT_START,
        Verdict.DEVICES_FAILED,
        Verdict.DOES_NOT_FIT,
        Verdict.BLOCKED,
        Verdict.INVALID,
        Verdict.UNDECIDED,
    }
)
"""The answers that stay until the user acts."""


class _Geometry(click.ParamType[object]):
    """The name of a geometry in the catalog."""

    def __init__(self, name: str, find: Callable[[str], object]) -> None:
        self.name = name
        self._find = find

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._find(value)
        except UnknownModelError as error:
            self.fail(str(error), param, ctx)


@click.command(short_help="Show Kerf at work on an embedded cluster.")
@option(
    "-f",
    "--filename",
    "files",
    type=click.Path(allow_dash=True, path_type=Path),
    multiple=True,
    help="Your own manifests instead of the examples: a file, a directory, or standard input (-). Repeatable.",
)
@option("--nodes", type=click.IntRange(1, 50), default=2, help="How many nodes.")
@option(
    "--gpu-model",
    "model",
    type=_Geometry("MODEL", gpu_model),
    default="h100-80gb-sxm",
    shell_complete=lambda *words: [model.id for model in gpu_models() if model.id.startswith(words[-1])],
    help="GPU model; `kerf models` lists them.",
)
@option("--gpus", type=click.IntRange(0, 16), default=2, help="GPUs on each node.")
@option(
    "--fpga-shell",
    "fpga_shell",
    type=_Geometry("SHELL", shell),
    default="quad",
    shell_complete=lambda *words: [each.name for each in shells() if each.name.startswith(words[-1])],
    help="Shell of the FPGA on each node: an example such as quad, big-little or edge-3.",
)
@option(
    "--backend",
    "backends",
    type=BackendParameter(),
    multiple=True,
    help="A backend in place of simulated cards, for your own manifests. Each node gets a copy of CONFIG. Repeatable.",
)
@option(
    "--family",
    "families",
    multiple=True,
    help="A family to serve of those that the backend has. Repeatable. [default: all that have a chosen backend]",
)
@option("--classic", is_flag=True, help="Run Kubernetes 1.30 instead, in which Kerf's controller allocates.")
@option("--keep", is_flag=True, help="Stay up until Ctrl-C; kubectl works with the kubeconfig that is printed.")
@option(
    "--speed",
    type=click.Choice(["slow", "normal", "full"]),
    help="How long each drawing may be read before the next step. [default: normal on a terminal, else full]",
)
@output_option
@option("--verbose", is_flag=True, help="Also show the log files of Kerf's programs.")
def command(
    files: tuple[Path, ...],
    nodes: int,
    model: GpuModel,
    gpus: int,
    fpga_shell: Shell,
    backends: tuple[BackendChoice, ...],
    families: tuple[str, ...],
    classic: bool,
    keep: bool,
    speed: str | None,
    output: OutputFormat,
    verbose: bool,
) -> int:
    """Show Kerf at work on an embedded cluster, in a temporary folder, without root.

    Beside an API server, a scheduler and a kubelet stand-in for each node run the real `kerf controller` and one real
    `kerf kubelet-plugin` for each node; their hardware is simulated, or that of your own backends. No container is run.

    With -f your manifests run: pods, claims, classes, Deployments, StatefulSets, Jobs, ConfigMaps. Of a pod that cannot
    run, the answer of `kerf why` is shown as soon as it is known, and the others go on. Each node has an FPGA with each
    FpgaShell among them, for which the FpgaImages are, two stand-ins of Intel's GPUs if a manifest names their driver
    or family, and looks for the devices of DiscoveryConfigurations.

    Exit code 0: everything was observed, and nothing is left; 1: a pod of yours does not run, a class of yours is not
    ready, there is nothing to run, or something was wrong. What is legal and has no effect is a warning.
    """
    if backends and classic:
        raise click.UsageError("--backend does not go with --classic, whose steps need simulated GPUs")
    if backends and not files:
        raise click.UsageError("--backend needs your manifests (-f): the examples are for GPUs and FPGAs")
    if families and not backends:
        raise click.UsageError("--family needs --backend; --gpus 0 leaves out simulated GPUs")
    settings = DemoSettings(
        files=files,
        nodes=nodes,
        gpu_model=model,
        gpus=gpus,
        shell=fpga_shell,
        fpgas=1,
        keep=keep,
        verbose=verbose,
        backends=backends,
        families=families,
    )
    settings.hardware.find_families()  # raises for what is not installed, before anything starts
    read_boot_id()  # raises where there is none: on anything but Linux
    display = _display(output, speed)
    try:
        if classic:
            manifests = load_manifests(files, CLASSIC_CHECKS) if files else []
            return anyio.run(run_in_folder, _ClassicRun(settings, manifests, display, output))
        manifests = load_manifests(files or [find_packaged_folder("examples") / name for name in EXAMPLES])
    except BadManifestsError as error:
        for line in error.lines:
            print_text(line, err=True)
        if not all(file == STANDARD_INPUT or file.exists() for file in files):
            click.echo(f"Kerf's own examples are in {find_packaged_folder('examples')}", err=True)
        return EXIT_BAD_INPUT
    settings = replace(settings, of_manifests=find_manifest_hardware(manifest.body for manifest in manifests))
    code = anyio.run(run_in_folder, _DemoRun(settings, manifests, display, output))
    if code == INTERRUPTED and backends:
        print_text("what pods had on cards of --backend may still be there: kerf devices --backend shows it", err=True)
    return code


class _DemoRun:
    """One run of the scenario, or of a user's manifests."""

    def __init__(
        self, settings: DemoSettings, manifests: list[Manifest], display: Display, output: OutputFormat
    ) -> None:
        self._settings = settings
        self._manifests = manifests
        self._display = display
        self._output = output

    async def run(self, root: Path, interruption: Interruption) -> int:
        begin = time.monotonic()
        with _log_to(root / "cluster.log"):
            async with open_environment(self._settings, root) as environment:
                runner = self._runner(environment)
                try:
                    await runner.run()
                    if self._settings.keep:
                        await self._keep(runner, interruption)
                    await close_cluster(runner, self._manifests)
                except KerfError as error:
                    return self._fail(environment, error)
        return self._conclude(runner.report, time.monotonic() - begin)

    def _runner(self, environment: DemoEnvironment) -> "Scenario | OwnManifests":
        run = OwnManifests if self._settings.files else Scenario
        return run(environment=environment, display=self._display, explain=_explain, manifests=self._manifests)

    async def _keep(self, runner: "Scenario | OwnManifests", interruption: Interruption) -> None:
        if isinstance(runner, Scenario):
            await runner.rerun_examples()
        show_kept_cluster(self._display, runner.environment.cluster.kubeconfig, find_shell_command(in_any_folder=True))
        await interruption.pause()

    def _fail(self, cluster: DemoCluster, error: KerfError) -> int:
        if self._settings.files and isinstance(error, InvalidError):  # says all that there is to say
            self._display.verdict("FAILED The API server refuses a manifest.", is_good=False)
            print_text(f"kerf demo: {error}", err=True)
            return EXIT_FAILED
        self._display.verdict("FAILED See the error and the logs.", is_good=False)
        print_text(f"kerf demo: {error}", err=True)
        _show_logs(cluster)
        return EXIT_FAILED

    def _conclude(self, report: Report, took_s: float) -> int:
        pods = f"{len(report.pods)} pods" if len(report.pods) != 1 else "1 pod"
        if self._output != "text":
            print_document(to_document(report), self._output)
            for each in report.waiting:
                print_text("\n".join(each.why), err=True)
        if failures := [*self._find_failures(report)]:
            self._display.verdict(" ".join(["FAILED", *failures]), is_good=False)
            return EXIT_FAILED
        every = "got what it asked for" if len(report.pods) == 1 else "got what they asked for"
        warned = f", {format_count(len(report.warnings), 'warning')}" if report.warnings else ""
        text = f"OK {pods} {every}, and nothing is left, in {took_s:.0f} s{warned}."
        if not (self._settings.keep or self._settings.files):
            command = f"{find_shell_command()} demo"
            text += f" Next: {command} --keep, or {command} -f with your manifests."
        self._display.verdict(text, is_good=True)
        return 0

    def _find_failures(self, report: Report) -> Iterator[str]:
        """Yield a sentence for each reason why the manifests have not done what they are for."""
        if waiting := [waiting.pod for waiting in report.waiting]:
            yield f"{len(waiting)} of {len(waiting) + len(report.pods)} pods did not run: {', '.join(waiting)}."
        if report.refused_classes:
            yield f"Not ready: ResourceClass {list_names(sorted(report.refused_classes))}."
        has_result = report.pods or report.waiting or report.refused_classes
        if self._settings.files and not (has_result or self._settings.keep):
            yield "Nothing ran: there is no pod in your manifests."


class _ClassicRun(_DemoRun):
    """One run where drivers allocate."""

    async def run(self, root: Path, interruption: Interruption) -> int:
        from kerf_dra.driver.demo.classic_scenario import open_classic_scenario

        begin = time.monotonic()
        with _log_to(root / "cluster.log"):
            async with open_classic_scenario(
                self._settings, root, self._display, _explain, self._manifests
            ) as scenario:
                try:
                    await scenario.run()
                    if self._settings.keep:
                        show_kept_cluster(
                            self._display, scenario.cluster.kubeconfig, find_shell_command(in_any_folder=True)
                        )
                        await interruption.pause()
                    await scenario.finish()
                except KerfError as error:
                    return self._fail(scenario, error)
        return self._conclude(scenario.report, time.monotonic() - begin)


async def _explain(client: Client, pods: Sequence[ObjectRef], width: int) -> list[Explanation]:
    """Ask what ``kerf why`` says of pods."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    state = redact(await collect_state(client, lambda: now))
    cluster = ClusterIndex(state, Budget(seconds=_WHY_S, clock=time.monotonic))
    explanations = []
    for pod in pods:
        report = (
            explain_pod(cluster, pod) if pod in cluster.pods else await _explain_without_devices(client, cluster, pod)
        )
        if report is None:
            text = f"pod {pod} uses no devices; `kubectl describe pod {pod.name} -n {pod.namespace}` says more"
            explanations.append(Explanation(pod=pod, is_final=False, lines=tuple(wrap(text, width))))
            continue
        text = click.unstyle("\n".join(render_report(report, width)))
        lines = tuple(text.splitlines())
        explanations.append(Explanation(pod=pod, is_final=report.verdict in _FINAL, lines=lines))
    return explanations


async def _explain_without_devices(client: Client, cluster: ClusterIndex, ref: ObjectRef) -> WhyReport | None:
    """Return why a pod that uses no devices fits on no node, for CPU and the like; None: it may fit."""
    pod = await client.find(PODS, ref.name, ref.namespace)
    if pod is None or pod.spec.node_name:
        return None
    report = explain_misfit(cluster, Subject(kind="Pod", namespace=ref.namespace, name=ref.name), pod, ())
    return report if report.verdict is Verdict.DOES_NOT_FIT else None


def _display(output: OutputFormat, speed: str | None) -> Display:
    if output != "text":
        return Display()
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return TextDisplay(
        partial(click.echo, nl=False),
        columns=shutil.get_terminal_size().columns,
        pause_s=_PAUSES_S[speed or ("normal" if is_terminal else "full")],
        is_terminal=is_terminal and os.environ.get("TERM") != "dumb",
        depth=find_color_depth(os.environ),
    )


@contextmanager
def _log_to(file: Path) -> Iterator[None]:
    """Log the embedded cluster to a file, as Kerf's programs do: the terminal is for the scenario."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logs.TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


def _show_logs(cluster: DemoCluster) -> None:
    for running in cluster.programs:
        lines = running.log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
        click.echo(f"\nend of the log of {running.name}:", err=True)
        for line in lines:
            print_text(f"  {line}", err=True)

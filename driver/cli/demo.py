"""``kerf demo``: arguments to DemoSettings to a story on a stage."""

import logging
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import click
from anyio.abc import TaskStatus
from rich.console import Console

from api.errors import KerfError
from driver.cli.exit_codes import EXIT_BAD_INPUT, EXIT_FAILED
from driver.cli.options import option
from driver.cli.output import OutputFormat, output_option, print_document
from driver.demo.display import Display, LiveDisplay, PlainDisplay, SilentDisplay
from driver.demo.environment import Stage, open_stage
from driver.demo.manifests import BadManifestsError, Manifest, load
from driver.demo.report import as_document
from driver.demo.resources import packaged
from driver.demo.scenario import Story
from driver.demo.settings import DemoSettings
from driver.partitions.catalog import UnknownModelError, gpu_model, shell
from driver.partitions.geometry import GpuModel, Shell
from driver.runtime import logs

_LONGEST_ROOT: Final = 40
"""Characters of the temporary folder: with a node's name and a driver's the sockets in it stay below 107 bytes."""
_LOG_TAIL: Final = 15
"""Lines of each program's log that are shown when the story fails."""
_INTERRUPTED: Final = 128 + signal.SIGINT
"""What a shell reports for a program that Ctrl-C ended."""


class _Geometry(click.ParamType[object]):
    """A name that the catalogue knows."""

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


@click.command(short_help="Show the whole story on an embedded cluster.")
@option(
    "-f",
    "--filename",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Your own manifests instead of the story: a file or a directory. Repeatable.",
)
@option("--nodes", type=click.IntRange(1, 50), default=2, help="How many nodes.")
@option(
    "--gpu-model",
    "model",
    type=_Geometry("MODEL", gpu_model),
    default="h100-80gb-sxm",
    help="GPU model; `kerf models` lists them.",
)
@option("--gpus", type=click.IntRange(0, 16), default=2, help="GPUs on each node.")
@option(
    "--fpga-shell",
    "fpga_shell",
    type=_Geometry("SHELL", shell),
    default="quad",
    help="Shell of the FPGA on each node; `kerf models` lists them.",
)
@option("--classic", is_flag=True, help="A Kubernetes 1.30 instead, in which Kerf's controller allocates.")
@option("--keep", is_flag=True, help="Stay up until Ctrl-C; kubectl works with the kubeconfig that is printed.")
@output_option
@option("--verbose", is_flag=True, help="Also show the log files of Kerf's programs.")
def command(
    files: tuple[Path, ...],
    nodes: int,
    model: GpuModel,
    gpus: int,
    fpga_shell: Shell,
    classic: bool,
    keep: bool,
    output: OutputFormat,
    verbose: bool,
) -> int:
    """Show the whole story on an embedded cluster, in a temporary folder, without root.

    Beside an API server, a scheduler and a kubelet stand-in for each node run the real `kerf controller` and one real
    `kerf kubelet-plugin` for each node; their hardware is simulated. Exit code 0 says that all of it was observed and
    that nothing is left.
    """
    settings = DemoSettings(
        files=files,
        nodes=nodes,
        gpu_model=model,
        gpus=gpus,
        shell=fpga_shell,
        fpgas=1,
        keep=keep,
        verbose=verbose,
    )
    if classic:
        return anyio.run(_run_classic, settings)
    try:
        manifests = load(files or [packaged("examples")])
    except BadManifestsError as error:
        for line in error.lines:
            click.echo(line, err=True)
        return EXIT_BAD_INPUT
    return anyio.run(_run, settings, manifests, output)


async def _run(settings: DemoSettings, manifests: list[Manifest], output: OutputFormat) -> int:
    root = _temporary_folder()
    try:
        async with anyio.create_task_group() as tasks:
            telling = _Telling(settings, manifests, output)
            await tasks.start(telling.watch_signals)
            with telling.scope:
                await telling.tell(root)
            tasks.cancel_scope.cancel()
        return _INTERRUPTED if telling.scope.cancelled_caught else telling.code
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _run_classic(settings: DemoSettings) -> int:
    from driver.demo.classic_scenario import left_behind, open_classic

    root = _temporary_folder()
    _log_to(root / "cluster.log")
    try:
        async with open_classic(settings, root, click.echo) as story:
            await story.tell()
            if settings.keep:
                click.echo(f"the cluster stays up until Ctrl-C: kubectl --kubeconfig {story.cluster.kubeconfig}")
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    await anext(signals)
        if left := left_behind(settings, story.places, story.cluster):
            click.echo("kerf demo: left behind: " + "; ".join(left), err=True)
            return EXIT_FAILED
        click.echo("nothing is left: no partition, no CDI file, no record")
    except KerfError as error:
        click.echo(f"kerf demo: {error}", err=True)
        return EXIT_FAILED
    else:
        return 0
    finally:
        shutil.rmtree(root, ignore_errors=True)


class _Telling:
    """One run: the story, its display, and what Ctrl-C means at the moment."""

    def __init__(self, settings: DemoSettings, manifests: list[Manifest], output: OutputFormat) -> None:
        self._settings = settings
        self._manifests = manifests
        self._output = output
        self._kept = anyio.Event()
        self._is_keeping = False
        self.scope = anyio.CancelScope()
        self.code = EXIT_FAILED

    async def watch_signals(self, *, task_status: TaskStatus[None]) -> None:
        """Ctrl-C while the cluster is kept up ends that; at any other moment it ends the demo. Both clean up."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                if self._is_keeping:
                    self._kept.set()
                else:
                    self.scope.cancel()

    async def tell(self, root: Path) -> None:
        _log_to(root / "cluster.log")
        with _display(self._output) as display:
            async with open_stage(self._settings, root) as stage:
                story = Story(
                    stage=stage, display=display, manifests=self._manifests, is_own=bool(self._settings.files)
                )
                try:
                    await self._play(story)
                except KerfError as error:
                    click.echo(f"kerf demo: {error}", err=True)
                    _show_logs(stage)
                    return
        if self._output != "text":
            print_document(as_document(story.report), self._output)
        self.code = 0

    async def _play(self, story: Story) -> None:
        await story.tell()
        if self._settings.keep:
            await story.bring_back()
            story.display.say(
                f"\nthe cluster stays up until Ctrl-C: kubectl --kubeconfig {story.kubeconfig} get pods -A"
            )
            self._is_keeping = True
            await self._kept.wait()
            self._is_keeping = False
        await story.end()


def _display(output: OutputFormat) -> Display:
    if output != "text":
        return SilentDisplay()
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


def _log_to(file: Path) -> None:
    """Records of the embedded cluster go to a file like those of Kerf's programs: the story has the terminal."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logs.TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _show_logs(stage: Stage) -> None:
    for running in stage.programs:
        lines = running.log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
        click.echo(f"\nend of the log of {running.name}:", err=True)
        for line in lines:
            click.echo(f"  {line}", err=True)


def _temporary_folder() -> Path:
    """A private folder with a short path: unix sockets lie in it (sun_path has 108 bytes)."""
    root = Path(tempfile.mkdtemp(prefix="kerf-"))
    if len(str(root)) <= _LONGEST_ROOT:
        return root
    root.rmdir()
    return Path(tempfile.mkdtemp(prefix="kerf-", dir="/tmp"))

"""``kerf completion``: prints the shell code for completion. ``complete`` is what kubectl runs for `kubectl kerf`."""

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

_NAMES_ONLY: Final = 4
"""``ShellCompDirectiveNoFileComp`` of cobra: a shell offers no files beside the names."""
_FILES_TOO: Final = 0
"""``ShellCompDirectiveDefault``: where there are no names, a shell offers files."""


def complete(arguments: list[str] | None = None) -> int:
    """Print the completions of the last of ``arguments``, as kubectl wants them of ``kubectl_complete-kerf``.

    It prints a name with its description on each line, and at last the directive of cobra for what else the shell is to
    offer (https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).
    """
    from kerf_dra.driver.cli import kerf

    *before, incomplete = (sys.argv[1:] if arguments is None else arguments) or [""]
    found = ShellComplete(kerf, {}, "kerf", "_KERF_COMPLETE").get_completions(before, incomplete)
    names = [item for item in found if item.type == "plain"]
    for item in names:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_NAMES_ONLY if len(names) == len(found) else _FILES_TOO}")
    return 0


@click.command(short_help="Print the shell code that completes kerf's arguments.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the code that completes kerf's commands and options in SHELL.

    It completes names of pods, claims, nodes, namespaces, contexts and models, too. For `kubectl kerf` kubectl's own
    completion is enough.

    \b
    bash:  source <(kerf completion bash)
    zsh:   source <(kerf completion zsh)
    fish:  kerf completion fish | source
    """  # noqa: D301  (click wants the character, not the two)
    completion = get_completion_class(shell)
    assert completion is not None, "click.Choice admits only shells that click completes"
    click.echo(completion(click.get_current_context().find_root().command, {}, "kerf", "_KERF_COMPLETE").source())

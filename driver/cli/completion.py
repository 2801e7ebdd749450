"""``kerf completion``: prints the shell code for completion."""

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print the shell code that completes kerf's arguments.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the code that completes kerf's commands and options in SHELL.

    \b
    bash:  source <(kerf completion bash)
    zsh:   source <(kerf completion zsh)
    fish:  kerf completion fish | source
    """  # noqa: D301  (click reads the character itself)
    completion = get_completion_class(shell)
    assert completion is not None, "click.Choice admits only shells that click completes"
    click.echo(completion(click.get_current_context().find_root().command, {}, "kerf", "_KERF_COMPLETE").source())

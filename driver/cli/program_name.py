"""How a user calls this program: its name in usage lines, and the command that runs it in a shell."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

_NAME: Final = "kerf"
"""The program that the package installs."""
_PLUGIN: Final = "kubectl-kerf"
"""The same program by the name under which kubectl finds it as a plugin."""


def find_program_name() -> str:
    """Return how the user has called this program: kubectl runs its plugin for ``kubectl kerf``."""
    return "kubectl kerf" if Path(sys.argv[0]).stem == _PLUGIN else _NAME


def find_shell_command(*, in_any_folder: bool = False) -> str:
    """Return the command that runs this program in a shell, for a user to copy.

    It is the program's name if PATH leads to this installation, else the path of the program: ``make demo`` runs
    ``.venv/bin/kerf``, which is not on PATH. The path is relative to the present folder where the program is below it,
    unless the command is to work ``in_any_folder``.
    """
    name = find_program_name()
    started = Path(sys.argv[0])
    program = (started if started.name == _NAME else Path(sys.executable).with_name(_NAME)).absolute()
    on_path = shutil.which(_NAME)
    if name != _NAME or not program.is_file() or (on_path and program.samefile(on_path)):
        return name
    folder = Path.cwd()
    if not in_any_folder and program.is_relative_to(folder) and program.parent != folder:
        program = program.relative_to(folder)
    return shlex.quote(str(program))

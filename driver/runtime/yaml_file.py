"""YAML whose author may be somebody else than its reader: errors say where a file is broken, never what is in it.

Messages of PyYAML quote the text: of a kubeconfig a token, of a file that was named by mistake anything.
"""

from typing import Any

import yaml


class NotYamlError(ValueError):
    """A text is no YAML; the message says where."""


def parse_yaml(data: bytes) -> Any:  # noqa: ANN401  (whatever is in the file)
    """Return the one document in ``data``. Raises NotYamlError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(data, Loader=loader)  # noqa: S506  (both are safe)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise NotYamlError(f"is no YAML{place}") from None
    except yaml.reader.ReaderError as error:
        raise NotYamlError(f"is no YAML: character {error.position + 1} is no text") from None
    except RecursionError:
        raise NotYamlError("is no YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError):  # ValueError: a date or a number that is none
        raise NotYamlError("is no YAML: it has a value that is none") from None

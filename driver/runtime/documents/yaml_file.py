"""YAML that people write: the one place where programs parse it.

A key that occurs twice in one object is an error, as YAML 1.2.2 (section 3.2.1.1) has it; PyYAML takes the last one
without a word. Of a file whose author may be another than its reader (``parse_yaml``), errors say where it is broken,
never what is in it: messages of PyYAML quote the text, of a kubeconfig a token, of a file that was named by mistake
anything. Levels, values and numbers have limits (``documents.yaml_loader``), bytes those of the reader of the file
(``documents.input_file``).
"""

from itertools import islice
from typing import Any, Final

import msgspec
import yaml

from kerf_dra.driver.runtime.documents.yaml_loader import NotYamlError, RepeatedKeyError, load_documents

__all__ = ["NotYamlError", "RepeatedKeyError", "parse_manifests", "parse_request_body", "parse_yaml"]

_MAX_SETTINGS: Final = 100_000
"""The most values of one document of settings: a kubeconfig of 3,000 clusters; a program of 64 MB has room for them."""


def parse_yaml(data: bytes, *types: type[msgspec.Struct]) -> Any:  # noqa: ANN401  (whatever is in the file)
    """Return the one document in ``data``; errors quote nothing but fields of ``types``. Raises NotYamlError."""
    try:
        documents = list(islice(load_documents(data, max_values=_MAX_SETTINGS), 2))
    except RepeatedKeyError as error:
        is_field = any(error.key in each.__struct_encode_fields__ for each in types)
        raise RepeatedKeyError(error.key if is_field else None, error.first, error.second) from None
    except NotYamlError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise NotYamlError(f"is not YAML{place}") from None
    except yaml.reader.ReaderError as error:
        raise NotYamlError(f"is not YAML: character {error.position + 1} is not text") from None
    except (yaml.YAMLError, ValueError):  # ValueError: a date or a number that is none
        raise NotYamlError("is not YAML: it has a value that is not valid") from None
    if len(documents) > 1:
        raise NotYamlError("has more than one YAML document")
    return documents[0] if documents else None


def parse_manifests(text: str | bytes) -> list[Any]:
    """Return all documents of ``text``. Raises NotYamlError, whose message quotes the text."""
    try:
        return list(load_documents(text))
    except NotYamlError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise NotYamlError(f"is not YAML: {' '.join(str(error).split())}{_advise(text, error)}") from error


def _advise(text: str | bytes, error: Exception) -> str:
    """Return what to do where the character that cannot be read is a tab, which is no indentation in YAML."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    lines = text.splitlines() if mark is not None else []
    if mark is None or mark.line >= len(lines):
        return ""
    is_tab = lines[mark.line][mark.column : mark.column + 1] in ("\t", b"\t")
    return "; it is a tab: indent with spaces" if is_tab else ""


def parse_request_body(body: bytes) -> Any:  # noqa: ANN401  (whatever is in it)
    """Return the first document of a request, of a key twice the last, as kube-apiserver. Raises NotYamlError."""
    try:
        return next(load_documents(body, last_key_counts=True), None)
    except NotYamlError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise NotYamlError(f"is not YAML: {' '.join(str(error).split())}") from error

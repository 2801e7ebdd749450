"""YAML that people write: the one place where programs parse it.

A key that occurs twice in one object is an error, as YAML 1.2.2 (section 3.2.1.1) has it; PyYAML takes the last one
without a word. Of a file whose author may be somebody else than its reader (``parse_yaml``), errors say where it is
broken, never what is in it: messages of PyYAML quote the text, of a kubeconfig a token, of a file that was named by
mistake anything.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE: Final = "tag:yaml.org,2002:merge"


class NotYamlError(ValueError):
    """A text is not YAML; the message says where."""


class RepeatedKeyError(NotYamlError):
    """A key occurs twice in one object.

    ``first`` and ``second`` are its lines, from 1; a ``key`` that is None is not for the reader's eyes.
    """

    def __init__(self, key: str | None, first: int, second: int) -> None:
        self.key, self.first, self.second = key, first, second
        what = "a key" if key is None else f"key {key!r}"
        super().__init__(f"has {what} twice in one object, in line {first} and line {second}: remove one")


def parse_yaml(data: bytes, *types: type[msgspec.Struct]) -> Any:  # noqa: ANN401  (whatever is in the file)
    """Return the one document in ``data``; errors quote nothing but fields of ``types``. Raises NotYamlError."""
    try:
        documents = list(_parse(data))
    except RepeatedKeyError as error:
        is_field = any(error.key in each.__struct_encode_fields__ for each in types)
        raise RepeatedKeyError(error.key if is_field else None, error.first, error.second) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise NotYamlError(f"is not YAML{place}") from None
    except yaml.reader.ReaderError as error:
        raise NotYamlError(f"is not YAML: character {error.position + 1} is not text") from None
    except RecursionError:
        raise NotYamlError("is not YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError):  # ValueError: a date or a number that is none
        raise NotYamlError("is not YAML: it has a value that is not valid") from None
    if len(documents) > 1:
        raise NotYamlError("has more than one YAML document")
    return documents[0] if documents else None


def parse_manifests(text: str | bytes) -> list[Any]:
    """Return all documents of ``text``. Raises NotYamlError, whose message quotes the text."""
    try:
        return list(_parse(text))
    except NotYamlError:
        raise
    except RecursionError as error:
        raise NotYamlError("is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise NotYamlError(f"is not YAML: {' '.join(str(error).split())}") from error


def _parse(text: str | bytes) -> Iterator[Any]:
    loader = _LOADER(text)
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            _check_keys(node)
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _check_keys(root: yaml.Node) -> None:
    """Check the keys of every object below ``root``; merged ones may be overridden. Raises RepeatedKeyError."""
    waiting, seen = [root], {id(root)}  # an alias is its anchor's node, even inside of it
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            _check_object(node)
            children = [child for pair in node.value for child in pair]
        else:
            children = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        waiting += (child for child in children if id(child) not in seen)
        seen.update(map(id, children))


def _check_object(node: yaml.MappingNode) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):  # others are refused when the object is made
            line = key.start_mark.line + 1
            if key.value in lines and key.tag != _MERGE:
                raise RepeatedKeyError(key.value, lines[key.value], line)
            lines[key.value] = line

"""The configuration documents of backends, as values of their own types."""

from pathlib import Path
from typing import TypeVar

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.v1alpha1 import Strict
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_yaml

ConfigT = TypeVar("ConfigT", bound=Strict)


class SystemConfig(Strict):
    """What every configuration of a backend for real cards has."""

    system_root: str = "/"
    """The directory with ``sys``, ``proc`` and ``dev`` of the cards: another one than ``/`` for a stand-in only."""

    @property
    def is_for_stand_in(self) -> bool:
        """Whether the cards are a stand-in's."""
        return self.system_root != "/"


def read_config(path: Path | None, type_: type[ConfigT]) -> ConfigT:
    """Read a configuration all of whose fields have defaults; None: these.

    Raises InvalidDocumentError for an unknown field, a wrong value, and a file that cannot be read.
    """
    if path is None:
        return type_()
    try:
        return msgspec.convert(parse_yaml(read_file(path), type_) or {}, type=type_)
    except (OSError, NotYamlError, msgspec.ValidationError) as error:
        raise InvalidDocumentError(str(path), [Problem("", describe_read_error(error))]) from error

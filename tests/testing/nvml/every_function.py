"""A program that calls every function of NVML once, and prints the code that each returns, as JSON by name.

``symbols`` calls the functions of the library with NULL for every parameter; ``bindings`` calls those of nvidia-ml-py
with a card for a device, a buffer for what is given back, and so on. A function that ends the process prints nothing.
"""

import ctypes
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import pynvml

from tools.generate.nvml_functions import list_named

_PARAMETERS: Final = 8
"""More than any function of NVML has."""
_LAST: Final = ("nvmlShutdown",)
"""Functions after which no other answers."""
_WITHOUT_CODE: Final = ("nvmlErrorString",)
"""Functions that return no code."""
_BUFFER_BYTES: Final = 1 << 16


def call_symbols() -> Iterator[tuple[str, int]]:
    for name in sorted(list_named() - {*_LAST, *_WITHOUT_CODE}):
        yield name, getattr(pynvml.nvmlLib, name)(*[ctypes.c_void_p(None)] * _PARAMETERS)


def call_bindings() -> Iterator[tuple[str, int]]:
    """Call each function of the bindings that takes what is made here."""
    known: dict[str, Any] = {name: pynvml.nvmlDeviceGetHandleByIndex(0) for name in ("handle", "device", "migDevice")}
    known |= {name: pynvml.nvmlEventSetCreate() for name in ("eventSet", "setHandle")}
    known |= dict.fromkeys(("gpuInstance", "computeInstance", "unit", "gpmSample"))
    for name, function in inspect.getmembers(pynvml, inspect.isfunction):
        if not name.startswith("nvml") or name in _LAST or name.startswith("nvmlEventSetFree"):
            continue
        parameters = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
        try:
            function(*(known.get(one.name, _make(one.name)) for one in parameters))
        except pynvml.NVMLError as error:
            yield name, error.value
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, ctypes.ArgumentError):
            continue  # the bindings take something else, and have called nothing
        else:
            yield name, pynvml.NVML_SUCCESS


def _make(parameter: str) -> Any:
    """Return an argument for a parameter of this name: a buffer for what is given back, and 0 for all others."""
    is_given_back = parameter.endswith("Ref") or parameter.startswith("c_") or parameter in ("placement", "info")
    return ctypes.byref(ctypes.create_string_buffer(_BUFFER_BYTES)) if is_given_back else 0


if __name__ == "__main__":
    pynvml.nvmlInit()
    for function_name, code in {"symbols": call_symbols, "bindings": call_bindings}[sys.argv[1]]():
        print(json.dumps([function_name, code]), flush=True)
    pynvml.nvmlShutdown()

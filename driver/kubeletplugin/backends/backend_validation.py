"""Checks, when a backend is loaded, that its factory and its methods can be called as the protocol ``Backend`` says.

A fault is found before anything is published, and named; a type checker would have found it earlier.
"""

import inspect
from collections.abc import Callable
from typing import Any

from kerf_dra.driver.kubeletplugin.backends.base import Backend


def find_factory_fault(factory: object) -> str:
    """Return why ``factory`` cannot be called with a configuration file; empty: it can."""
    if not callable(factory):
        return f"it is not a function, but of type {type(factory).__name__}"
    if inspect.iscoroutinefunction(factory):
        return "it is a coroutine function; it must be a plain one"
    if not _can_be_called(factory, 1):
        return f"it takes {_parameters(factory)}; it must take (config), the path of its configuration or None"
    return ""


def find_protocol_fault(backend: object) -> str:
    """Return what is missing or wrong in a backend; empty: nothing."""
    if inspect.iscoroutine(backend):
        backend.close()
        return "its factory returned a coroutine; it must be a plain function"
    if not (isinstance(name := getattr(backend, "name", None), str) and name):
        return f"its attribute 'name' is {name!r}; it must be the name by which claims record it"
    for method, wanted in vars(Backend).items():
        if method.startswith("_") or not inspect.isfunction(wanted):
            continue
        found = getattr(backend, method, None)
        parameters = [*inspect.signature(wanted).parameters][1:]
        described = f"{method}({', '.join(parameters)})"
        if not callable(found):
            return f"it has no method {described}"
        if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
            return f"its method {method} is a coroutine function; {described} must block instead: it runs in a thread"
        if not _can_be_called(found, len(parameters)):
            return f"its method {method} takes {_parameters(found)}; it must be {described}"
    return ""


def _can_be_called(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*(None,) * arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature: the call will show it
        return True
    return True


def _parameters(function: Callable[..., Any]) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"

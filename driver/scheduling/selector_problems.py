"""Selectors in users' documents that are no CEL: found before the API server refuses the document.

Example: ``device.attributes["gpu.kerf.dev"].profile = "1g.10gb"`` has the problem ``spec.selectors[0].cel.expression:
does not compile: Syntax error: token recognition error at: '= ': compare with ==``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kerf_dra.api.errors import Problem
from kerf_dra.driver.cel.compile import ExpressionCompileError, UnsupportedExpressionError, compile_selector

_POSITION: Final = re.compile(r"<input>:\d+:\d+: ")
"""Where the compiler found a fault: in the text that it is given, which has more characters than the user's."""
_ADVICE: Final = (
    (re.compile(r"at: '= ?'"), "compare with =="),
    (re.compile(r"at: '& ?'|input 'and'"), "write && between conditions"),
    (re.compile(r"at: '\| ?'|input 'or'"), "write || between conditions"),
    (re.compile(r"input 'not'|extraneous input 'not'"), "write ! before the condition"),
    (re.compile(r"at: '[\"']"), "close the string with the quotation mark that it begins with"),
    (
        re.compile(r"overload for '_(?:[<>]=?|==)_'.*Quantity"),
        "compare amounts with compareTo(quantity(...)) >= 0 or isGreaterThan(quantity(...))",
    ),
    (re.compile(r"overload for '_(?:[<>]=?)_'.*Semver"), "compare versions with compareTo(semver(...)) >= 0"),
    (
        re.compile(r"undeclared reference"),
        "a selector knows device.driver, device.attributes, device.capacity and device.allowMultipleAllocations",
    ),
)
"""What to do about a fault, by the compiler's words for it; the first that is found counts."""
_ELSE: Final = 'correct it to a condition such as device.attributes["gpu.kerf.dev"].profile == "1g.10gb"'


def find_selector_problems(body: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each selector of a class, a claim or a template that does not compile."""
    for path, expression in _find_expressions(body.get("spec"), "spec"):
        try:
            compile_selector(expression)
        except ExpressionCompileError as error:
            reason = _POSITION.sub("", error.reason)
            advice = next((text for pattern, text in _ADVICE if pattern.search(reason)), _ELSE)
            yield Problem(path, f"does not compile: {reason}: {advice}")
        except UnsupportedExpressionError:
            continue  # Kubernetes may take it


def _find_expressions(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each CEL expression of a list ``selectors``."""
    if isinstance(value, Mapping):
        for name, held in value.items():
            if name == "cel" and "selectors[" in path and isinstance(held, Mapping):
                expression = held.get("expression")
                if isinstance(expression, str):
                    yield f"{path}.cel.expression", expression
            elif name != "config":
                yield from _find_expressions(held, f"{path}.{name}")
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _find_expressions(held, f"{path}[{index}]")

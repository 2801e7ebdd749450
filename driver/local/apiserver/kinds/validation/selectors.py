"""Whether a CEL expression can select devices: its length, its syntax, its types, its cost."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from driver.allocation import ExpressionCompileError, UnsupportedExpressionError, compile_selector
from driver.cel.cost import MOST_COST, most_cost
from driver.local.apiserver.meta.status_errors import FieldError, forbidden, invalid, too_long

MAX_EXPRESSION_BYTES: Final = 10 * 1024
"""``CELSelectorExpressionMaxLength`` of ``k8s.io/api/resource/v1``."""


def expression_errors(expression: str, path: str) -> Iterator[FieldError]:
    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        yield too_long(path, MAX_EXPRESSION_BYTES)
        return
    if said := syntax_error(expression):
        yield invalid(path, expression, f"compilation failed: {said}")
        return
    try:
        compile_selector(expression)
        if (most_cost(expression) or 0) > MOST_COST:
            yield forbidden(path, "too complex, exceeds cost limit")
    except UnsupportedExpressionError:
        pass  # Kubernetes has it; whoever evaluates it will say what is missing
    except ExpressionCompileError as error:
        yield invalid(path, expression, error.reason)


@lru_cache(maxsize=1)
def _environment() -> Any:  # noqa: ANN401  (the library has no types)
    # Imported when the first expression arrives: it maps 14 MB that most clusters of tests never need.
    from cel_expr_python import cel

    return cel.NewEnv()


@lru_cache(maxsize=1024)
def syntax_error(expression: str) -> str:
    """What the parser says; empty when the expression is well formed."""
    try:
        _environment().compile(expression, disable_check=True)
    except Exception as error:  # noqa: BLE001  (the library raises bare exceptions of several kinds)
        return str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    return ""

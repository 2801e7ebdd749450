"""CEL over plain JSON, on Google's cel-cpp, for the rules of custom resources and for admission policies.

The functions that Kubernetes adds to CEL (quantities, IP addresses, regular expressions, list functions) are missing:
an expression that uses one does not compile, rather than pass unchecked.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.cel.compile import UNSUPPORTED
from kerf_dra.driver.cel.inlining import inline_bindings
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue


class RuleError(KerfError):
    """An expression does not compile, or its evaluation fails."""


@lru_cache(maxsize=8)
def _environment(variables: tuple[str, ...]) -> Any:  # noqa: ANN401  (the library has no types)
    # Imported with the first expression, because it maps 14 MB.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    return cel.NewEnv(
        variables=dict.fromkeys(variables, cel.Type.DYN),
        extensions=[
            ext_strings.ExtStrings(),
            ext_optional.ExtOptional(),
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
        ],
    )


@lru_cache(maxsize=512)
def compile_expression(expression: str, variables: tuple[str, ...]) -> Any:  # noqa: ANN401  (the library has no types)
    """Compile the program of ``expression`` over ``variables``. Raises RuleError when it does not compile."""
    plain = inline_bindings(expression)  # cel-cpp resolves a bound variable wrongly after a loop that ended early
    try:
        program = _environment(variables).compile(expression)
        if plain not in (None, expression):
            program = _environment(variables).compile(plain)
    except Exception as error:
        message = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise RuleError(f"compilation failed: {message}") from error
    if plain is None:
        raise RuleError(f"cannot be evaluated here: {UNSUPPORTED['bind']} is not supported")
    return program


def evaluate(expression: str, variables: tuple[str, ...], data: Mapping[str, JsonValue]) -> JsonValue:
    """Evaluate ``expression`` with the variables of ``data``. Raises RuleError."""
    value = compile_expression(expression, variables).eval(data=data)
    if value.type().name() == "ERROR":
        raise RuleError(str(value.plain_value()))
    return value.plain_value()

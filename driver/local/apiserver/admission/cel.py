"""CEL over plain JSON, on Google's cel-cpp: for the rules of custom resources and for admission policies.

What Kubernetes adds to CEL (quantities, IP addresses, regular expression search, list functions) is not there: an
expression that uses it does not compile, instead of passing unchecked.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from api.errors import KerfError
from driver.cel.compile import UNSUPPORTED
from driver.cel.inlining import inlined


class RuleError(KerfError):
    """An expression does not compile, or fails when it is evaluated."""


@lru_cache(maxsize=8)
def _environment(variables: tuple[str, ...]) -> Any:  # noqa: ANN401  (the library has no types)
    # Imported with the first expression: it maps 14 MB that a cluster without any never needs.
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
    """``expression`` over the ``variables``. Raises RuleError."""
    plain = inlined(expression)  # the engine takes another value than the bound one after a loop that ended early
    try:
        program = _environment(variables).compile(expression)
        if plain not in (None, expression):
            program = _environment(variables).compile(plain)
    except Exception as error:
        said = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise RuleError(f"compilation failed: {said}") from error
    if plain is None:
        raise RuleError(f"cannot be evaluated here: {UNSUPPORTED['bind']} is not supported")
    return program


def evaluate(expression: str, variables: tuple[str, ...], data: Mapping[str, Any]) -> Any:  # noqa: ANN401  (any JSON)
    """What ``expression`` is where the variables are as in ``data``. Raises RuleError."""
    value = compile_expression(expression, variables).eval(data=data)
    if value.type().name() == "ERROR":
        raise RuleError(str(value.plain_value()))
    return value.plain_value()

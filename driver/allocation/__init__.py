"""The allocator of structured DRA: pure, from published slices and claims to allocation results.

Nothing in here does I/O, reads a clock or draws random numbers; what kube-scheduler's allocator
(``k8s.io/dynamic-resource-allocation/structured``) decides, this decides alike.
"""

from driver.allocation.cluster import ClusterAllocator, ClusterOutcome, NodeAllocation, NoFittingNode
from driver.allocation.pools.index import Inventory
from driver.allocation.search.backtracking import allocate
from driver.allocation.semantics.allocated_state import AllocatedState
from driver.allocation.semantics.matching import InvalidNodeSelectorError, node_matches
from driver.allocation.semantics.outcomes import (
    Budget,
    DoesNotFit,
    Failed,
    Features,
    Fits,
    NodeView,
    Obstacle,
    Outcome,
    Reason,
    Undecided,
)
from driver.cel.compile import (
    AttributeExpression,
    CompiledSelector,
    ExpressionCompileError,
    ExpressionRuntimeError,
    UnsupportedExpressionError,
    compile_attribute,
    compile_selector,
)
from driver.cel.environment import STORED, Dialect

__all__ = [
    "STORED",
    "AllocatedState",
    "AttributeExpression",
    "Budget",
    "ClusterAllocator",
    "ClusterOutcome",
    "CompiledSelector",
    "Dialect",
    "DoesNotFit",
    "ExpressionCompileError",
    "ExpressionRuntimeError",
    "Failed",
    "Features",
    "Fits",
    "InvalidNodeSelectorError",
    "Inventory",
    "NoFittingNode",
    "NodeAllocation",
    "NodeView",
    "Obstacle",
    "Outcome",
    "Reason",
    "Undecided",
    "UnsupportedExpressionError",
    "allocate",
    "compile_attribute",
    "compile_selector",
    "node_matches",
]

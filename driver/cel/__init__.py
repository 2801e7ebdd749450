"""CEL over devices, as Kubernetes evaluates it: class and request selectors, derived attributes. Pure.

Terms are those of the CEL specification (``github.com/google/cel-spec``), cel-go and ``k8s.io/apiserver/pkg/cel``:
*environment*, *overload*, *macro*, *checked expression*, *cost*.

Data flow: ``lexer`` makes tokens; ``inlining`` removes ``cel.bind``; ``attribute_references`` finds what an expression
reads and rewrites it; ``compile`` compiles it in the ``environment`` (``library`` on ``engine``, which binds cel-cpp),
applies the ``validators``, and evaluates it on devices. ``cost`` estimates the cost of a ``checked_ast`` by
``cost_functions``, as Kubernetes does, ``work_bound`` what that estimate does not see; ``compile`` refuses what exceeds
either. ``conjuncts`` splits a selector.

The package imports ``kerf_dra.api.model`` only: neither the allocator nor anything that does I/O.
"""

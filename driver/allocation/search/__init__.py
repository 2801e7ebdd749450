"""From claims and a node's devices to the first solution: problem, bounds, nogoods, backtracking, results."""

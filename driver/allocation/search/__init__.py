"""The search for the first solution of the claims on a node: problem, bounds, nogoods, backtracking, results."""

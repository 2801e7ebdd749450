"""Mutation testing: small changes of Kerf, one at a time, that some test should notice (``python -m tools.mutants``).

A *mutant* is one module with one change (``operators``, ``structural``). A *group* of ``groups.toml`` names the modules
that carry correctness and the test files that judge them. Its tests run once, to learn which of them execute each line
(``baseline``); then each mutant of a sample (``samples``) is tried with the tests that execute its line (``trials``).
A mutant is *killed* when one fails, and *survives* when all pass. One that no test can kill, because it changes nothing
that matters, is listed in ``equivalent.toml`` with the reason. Nothing is written into the working tree: everything
runs in copies of it.

The tools that exist do not fit: mutmut knows which tests call a function, not which execute a line, and neither takes
decorators or waits away nor has a sample; cosmic-ray changes files in place, and runs every test for every mutant.
"""

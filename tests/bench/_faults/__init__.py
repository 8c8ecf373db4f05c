"""Real faults on the test grid: the table of them, the work they strike, and what must be true afterwards.

Used by the bench `faults`, and by the tests of the grid, which load it from here: tests lie in no package.
"""

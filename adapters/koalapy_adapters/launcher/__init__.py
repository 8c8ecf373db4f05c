"""The Launcher: on one node, inside a batch job, it runs parameters of a sweep one after another (CCGrid 2009, 5.1).

The node agent starts it in place of a program. `machine` decides what to pull, keep and return, and `loop` does it.
A `slot` is a process that runs programs; `journal` records their results.
"""

from typing import List


def main(argv: List[str]) -> int:
    """Run the command `launcher ATTEMPT_DIRECTORY SOCKET HOST`."""
    from koalapy_adapters.launcher import run  # imported late, because the grid side uses `space` alone

    return run.main(argv)

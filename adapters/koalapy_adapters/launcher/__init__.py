"""The Launcher: on one node, inside a batch job, it runs parameters of a sweep one after another (CCGrid 2009, 5.1).

The node agent starts it in place of a program. `machine` decides what to pull, keep and give back; `loop` does; a
`slot` is a process that runs programs, and `journal` says what of them was done.
"""

from typing import List


def main(argv: List[str]) -> int:
    """`launcher ATTEMPT_DIRECTORY SOCKET HOST`."""
    from koalapy_adapters.launcher import run  # late: the grid side uses `space` alone

    return run.main(argv)

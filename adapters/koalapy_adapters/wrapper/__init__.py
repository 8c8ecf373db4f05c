"""The component wrapper, inside the batch job: claims the attempt, waits at its barrier, runs the program.

The wrapper runs on the first node. `machine` decides, `loop` does; on every node of the allocation an `agent` is the
parent of the program's processes.
"""

from typing import List


def main(argv: List[str]) -> int:
    """`wrapper ATTEMPT_DIRECTORY`. The exit status is the program's where it ran."""
    from koalapy_adapters.wrapper import start  # late: the node agents are part of this package, and need none of it

    return start.main(argv)

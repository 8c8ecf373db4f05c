"""The KCM, koalapy's agent on a cluster's head node: `kcm [CONFIG]`, with frames on its standard streams.

CONFIG is that of a lender, who starts the KCM of a lease for a borrower's koalad; see `confinement`.
"""

import asyncio
import sys
from typing import Any, List, Optional


def main(argv: List[str]) -> int:
    """Serve koalad until it closes the connection or falls silent. `argv` is empty, but on a lease."""
    from koalapy_adapters.kcm.koalad_streams import take_standard_streams

    try:
        lease = _lease(argv)
    except ValueError as error:
        sys.stderr.write("The KCM takes a lender's description of the cluster at most: %s.\n" % error)
        return 2
    streams = take_standard_streams()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        status = loop.run_until_complete(_serve(streams, sys.argv[0], lease))
        loop.run_until_complete(_end_tasks())
        return status
    finally:
        loop.close()


def _lease(argv: List[str]) -> Optional[Any]:
    """Return the bounds of a KCM on a lease; None elsewhere. Raises ValueError."""
    if not argv:
        return None
    from koalapy_adapters.kcm import confinement  # late: few KCMs need it

    if len(argv) > 1:
        raise ValueError("there are %d arguments" % len(argv))
    return confinement.read(argv[0])


async def _serve(streams: Any, pushed: str, lease: Optional[Any]) -> int:
    from koalapy_adapters.kcm.loop import Kcm

    return await Kcm(streams, pushed, lease=lease).run()


async def _end_tasks() -> None:
    """Cancel the tasks that still serve a wrapper or wait for a thread."""
    if sys.version_info >= (3, 7):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
    else:
        tasks = asyncio.Task.all_tasks() - {asyncio.Task.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

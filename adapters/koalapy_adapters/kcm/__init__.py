"""The KCM, koalapy's agent on a cluster's head node: `kcm`, with frames on its standard streams."""

import asyncio
import sys
from typing import Any, List


def main(argv: List[str]) -> int:
    """Serve koalad until it closes the connection or falls silent. `argv` is empty."""
    from koalapy_adapters.kcm.koalad_streams import take_standard_streams

    if argv:
        sys.stderr.write("The KCM takes no arguments: what it needs comes in koalad's Hello.\n")
        return 2
    streams = take_standard_streams()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        status = loop.run_until_complete(_serve(streams, sys.argv[0]))
        loop.run_until_complete(_end_tasks())
        return status
    finally:
        loop.close()


async def _serve(streams: Any, pushed: str) -> int:
    from koalapy_adapters.kcm.loop import Kcm

    return await Kcm(streams, pushed).run()


async def _end_tasks() -> None:
    """Cancel the tasks that still serve a wrapper or wait for a thread."""
    if sys.version_info >= (3, 7):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
    else:
        tasks = asyncio.Task.all_tasks() - {asyncio.Task.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

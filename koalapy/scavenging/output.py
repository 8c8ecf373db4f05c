"""What becomes of a sweep whose parameters are all done: its files are brought, then it is over."""

from koalapy.coallocation import stopping
from koalapy.core.core import Core
from koalapy.model.commands import CollectOutput, Of
from koalapy.model.job import Job, Outcome
from koalapy.model.units import Instant


def finish(core: Core, now: Instant, sweep: Job) -> None:
    """Its Launchers go meanwhile; the answer is treated as any job's is (coallocation.completion)."""
    request = sweep.request
    if not request.stage_out:
        stopping.stop(core, now, sweep, Outcome.DONE)
    elif not sweep.collecting:
        core.records.put(sweep.but(collecting=True))
        core.records.command(
            CollectOutput(
                job=sweep.id,
                sources=(),
                paths=request.stage_out,
                directory=request.directory,
                to=request.stage_out_to,
                of=Of.WELL,
            )
        )

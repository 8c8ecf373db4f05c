"""What becomes of a sweep whose parameters are all done: its files are brought, then it is over."""

from koalapy.coallocation import stopping
from koalapy.model.commands import CollectOutput, Of
from koalapy.model.job import Job, Outcome
from koalapy.model.records import Records
from koalapy.model.units import Instant


def finish(records: Records, now: Instant, sweep: Job) -> None:
    """Its Launchers go meanwhile; the answer is heard as any job's is (coallocation.finishing.collected)."""
    request = sweep.request
    if not request.stage_out:
        stopping.stop(records, now, sweep, Outcome.DONE)
    elif not sweep.collecting:
        records.put(sweep.but(collecting=True))
        records.command(
            CollectOutput(
                job=sweep.id,
                sources=(),
                paths=request.stage_out,
                directory=request.directory,
                to=request.stage_out_to,
                of=Of.WELL,
            )
        )

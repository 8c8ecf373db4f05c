"""A reader of the Grid Workloads Format (Iosup et al., The Grid Workloads Archive, FGCS 2008), with 29 columns."""

from collections import Counter
from pathlib import Path

from koalapy.experiments.workloads.reading import (
    LENIENT,
    Ended,
    Fields,
    TraceJob,
    TraceReader,
    needed,
    processors_of,
    whole,
)
from koalapy.experiments.workloads.swf import duration
from koalapy.model.units import Duration

COLUMNS = (
    "JobID", "SubmitTime", "WaitTime", "RunTime", "NProcs", "AverageCPUTimeUsed", "UsedMemory", "ReqNProcs", "ReqTime",
    "ReqMemory", "Status", "UserID", "GroupID", "ExecutableID", "QueueID", "PartitionID", "OrigSiteID",
    "LastRunSiteID", "JobStructure", "JobStructureParams", "UsedNetwork", "UsedLocalDiskSpace", "UsedResources",
    "ReqPlatform", "ReqNetwork", "ReqLocalDiskSpace", "ReqResources", "VOID", "ProjectID",
)  # fmt: skip
_NEEDED = COLUMNS.index("LastRunSiteID") + 1  # some archives leave out the last columns
_STATUS = {"0": Ended.FAILED, "1": Ended.COMPLETED, "5": Ended.CANCELLED}


def read_gwf(path: Path, lenient: bool = False, advice: str = LENIENT) -> TraceReader:
    return TraceReader(path, "#", _parse, lenient, advice)


def _parse(line: str, ignored: Counter[str]) -> TraceJob:
    line = line.strip()
    texts = [each.strip() for each in line.split("\t")] if "\t" in line else line.split()
    fields = Fields(texts, COLUMNS, _NEEDED, ignored)
    memory, processors, requested = fields.numbers("ReqMemory", "NProcs", "ReqNProcs")
    runtime, ended = duration(fields.number("RunTime")), _STATUS.get(fields.text("Status"), Ended.UNKNOWN)
    return TraceJob(
        number=int(needed("JobID", fields.number("JobID"))),
        submitted=duration(needed("SubmitTime", fields.number("SubmitTime"))) or Duration(0),
        processors=processors_of(whole("NProcs", processors), whole("ReqNProcs", requested), runtime, ended),
        runtime=runtime,
        waited=_waited(fields),
        requested=duration(fields.number("ReqTime")),
        memory_per_processor=None if memory is None else int(memory) * 1024,
        user=fields.text("UserID"),
        group=fields.text("GroupID"),
        queue=fields.text("QueueID"),
        site=fields.text("OrigSiteID") or fields.text("LastRunSiteID"),
        ended=ended,
    )


def _waited(fields: Fields) -> Duration | None:
    """Return the wait; None if it is negative, as for reservations (Grid'5000)."""
    return None if fields.text("WaitTime").startswith("-") else duration(fields.number("WaitTime"))

"""Details of a Done, by the request that it answers. A reader for each checks types and bounds."""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters.messages.fields import (
    Check,
    Count,
    Details,
    Flag,
    Instant,
    Json,
    Line,
    LongName,
    MessageError,
    Name,
    Processors,
    Rows,
    Words,
    many,
    number,
    reader,
    row,
    shown,
    whole,
)
from koalapy_adapters.messages.kcm import FailureFields

MOST_SECONDS = 1e12
MOST_BYTES = 1 << 63

if TYPE_CHECKING:
    Queued = Rows
    Lacking = Rows
    Spans = Rows
    Seconds = float
    Bytes = int
    Port = int
else:
    Queued = many(row(LongName, Name, Name))  # a batch job's name, id and state
    Lacking = many(row(Count, Count))  # index, and bytes that are there
    Spans = many(row(LongName, Instant, Instant, Processors))  # tag, began at, ended at, processors
    Seconds = number(0, MOST_SECONDS)
    Bytes = whole(0, MOST_BYTES)
    Port = whole(0, 65535)


class Listed(NamedTuple):
    """Answers Tags."""

    queue: Queued
    directories: List[LongName]
    more: Flag


class Examined(NamedTuple):
    """State of one attempt's directory. Answers Examine, by tag."""

    start_lock: Name
    ended: Flag
    age_s: Optional[Seconds]
    heartbeat_age_s: Optional[Seconds]


class Accounted(NamedTuple):
    """Answers Account, by the head node's clock. `has_accounting`: whether accounting is asked here at all."""

    has_accounting: Flag
    clock: Instant
    spans: Spans = []


class Wanted(NamedTuple):
    """Answers Want."""

    missing: Lacking
    free: Optional[Bytes] = None
    total: Optional[Bytes] = None


class Used(NamedTuple):
    """Answers DiskUse."""

    bytes: Bytes
    attempts: Count
    staged_bytes: Bytes
    whole: Flag


# ---- answers to Diagnose, by the name of the check


class Failed(NamedTuple):
    """A failed check on the head node. `value`: the value that the grid file should have instead."""

    failure: FailureFields
    value: LongName = ""


class Head(NamedTuple):
    """The interpreter of the head node's agent."""

    python: LongName
    host: Line = ""


class Shared(NamedTuple):
    """The shared directory, and the room in it."""

    path: LongName
    free_bytes: Bytes
    free_files: Optional[Bytes]


class Batch(NamedTuple):
    """The batch system's command, None if it is not found."""

    version: Line
    command: Optional[LongName]
    features: List[Name] = []


class Queue(NamedTuple):
    """A queue as the batch system's examiner describes it; see examination.protocol.Queue."""

    name: Name
    default: Flag
    closed: Line
    walltime_s: Optional[Count]
    nodes: Optional[Processors]
    processors: Optional[Processors]
    environments: List[Name] = []


class Processing(NamedTuple):
    """Processors that replace a Queue if the batch system has no queues."""

    processors: Processors
    idle: Processors


class Library(NamedTuple):
    """The DRMAA library; None if the head node has none."""

    library: Optional[LongName]


class Relay(NamedTuple):
    """Where the KCM listens for compute nodes."""

    kind: Name
    addresses: List[Name]
    port: Port


class Environment(NamedTuple):
    """The parallel environment of sweeps; see examination.launchers."""

    environment: Optional[Name]
    named: Flag
    loose: Optional[Name]


class Lowest(NamedTuple):
    """The lowest priority that a job can have; see examination.protocol.Lowest."""

    is_last: Flag
    words: Words
    advice: Line = ""


class SpanOptions(NamedTuple):
    """Batch options that spread a job over two nodes."""

    processors: Processors
    processors_per_node: Optional[Processors] = None


class Probed(NamedTuple):
    """Findings that a probe job has written on its node; see examination.probe_program."""

    wrong: Count
    node: Name
    python: Name
    clock: Instant
    reached: Name
    errors: Details


def plain(kind: Any) -> Check:
    """A JSON object that has the fields of this NamedTuple; without those that are unknown, or None by default."""
    read = reader(kind)
    defaults = kind._field_defaults

    def check(value: Any) -> Any:
        found = read(value)._asdict()
        return {name: each for name, each in found.items() if each is not None or name not in defaults}

    return check


if TYPE_CHECKING:
    PlainEnvironment = Json
    PlainLowest = Json
    PlainSpanOptions = Json
else:
    PlainEnvironment, PlainLowest, PlainSpanOptions = plain(Environment), plain(Lowest), plain(SpanOptions)


class Access(NamedTuple):
    """The batch system's answer to a job that it would accept. `words`: None if it cannot be asked."""

    words: Optional[Words]
    launchers: Optional[PlainEnvironment]


class LowestPriority(NamedTuple):
    """How a job gets the lowest priority. `lowest`: None if that is unknown."""

    lowest: Optional[PlainLowest]


class Span(NamedTuple):
    """Batch options for a job on two nodes. `options`: None if no options can do that."""

    options: Optional[PlainSpanOptions]


listed: Callable[[Any], Listed] = reader(Listed)
accounted: Callable[[Any], Accounted] = reader(Accounted)
wanted: Callable[[Any], Wanted] = reader(Wanted)
_examined: Callable[[Any], Examined] = reader(Examined)
disk_used: Callable[[Any], Used] = reader(Used)
probed: Callable[[Any], Json] = plain(Probed)
_failed, _queue, _processing = plain(Failed), plain(Queue), plain(Processing)


def examined(value: Json) -> Dict[str, Examined]:
    """Read the details of Examine, by tag. Raises MessageError."""
    found = {}
    for tag, each in value.items():
        try:
            found[tag] = _examined(each)
        except MessageError as error:
            raise error.inside("[%s]" % shown(tag)) from None
    return found


def diagnosed(check: str, value: Json) -> Json:
    """Read the findings of a check on the head node, as a JSON object. Raises MessageError."""
    found: Json = (_failed if "failure" in value else _DIAGNOSED[check])(value)
    return found


_DIAGNOSED: Dict[str, Check] = {
    "head": plain(Head),
    "shared": plain(Shared),
    "batch": plain(Batch),
    "queue": lambda value: _queue(value) if "name" in value else _processing(value),
    "access": plain(Access),
    "lowest": plain(LowestPriority),
    "span": plain(Span),
    "drmaa": plain(Library),
    "relay": plain(Relay),
}

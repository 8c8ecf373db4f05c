"""A parameter sweep: its parameters, how far its CS-Runner is, and what became of each parameter (CCGrid 2009, 5.1)."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from koalapy.model.fast_frozen import replacer
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The values of one or several names that take the same value. One of the three is given.

    `loop`: first, last (included) and step as decimal numbers, without exponent; `without` what they leave out of it.
    `values`: as they are. `file`: where it lies in the program's directory; each of its `lines` lines is a value, or,
    where `column` (from 0) is not -1, that cell of each line after its first, which has the names.
    """

    names: tuple[str, ...]
    loop: tuple[str, str, str] | None = None
    without: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    file: str = ""
    column: int = -1
    lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Sources of equally many values, which vary together (`--zip`; several assignments of one sweep in GFD.149)."""

    sources: tuple[Source, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Every value of each axis with every one of the others; the last axis varies fastest.

    Its parameters are numbered from 1 as they are written. Never written out: what a number stands for is computed
    where it runs (koalapy_adapters.launcher.space).
    """

    axes: tuple[Axis, ...]

    @property
    def count(self) -> int:
        product = 1
        for axis in self.axes:
            product *= axis.count
        return product


class ParameterResult(NamedTuple):
    """What became of one parameter. Instants are koalad's clock.

    `ending`: exited, killed (by a signal from outside or its own), walltime, output (it wrote more than it may) or
    failed (it could not be started). `slot` of the Launcher's slots ran it; what it wrote lies in the slot's files
    from `output_at`, `output_size` bytes, and from `errors_at`, `errors_size` bytes.
    """

    number: int
    exit_status: int
    ending: str
    host: str
    slot: int
    started_at: int
    ended_at: int
    output_at: int
    output_size: int
    errors_at: int
    errors_size: int

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.ending == "exited" and self.exit_status == 0


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """Results that one Launcher reported together; committed with the change that counts them."""

    sweep: JobId
    cluster: str
    attempt: AttemptId
    results: tuple[ParameterResult, ...]

    def only(self, number: int) -> "ResultBatch | None":
        """With this parameter's result alone; None if it is not among them."""
        found = next((each for each in self.results if each.number == number), None)
        return found and replace(self, results=(found,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """The CS-Runner's record. A parameter is in its pool unless it is done or out on a cluster.

    `done`: recorded, whatever became of it; `failed` of them did not end with 0. `out`: with each cluster, where its
    KCM or a Launcher has it. `returned`: came back unfinished, from each cluster. `owed`: nodes on each cluster that
    were taken from it for others' jobs, and that -All gives back (CCGrid 2009, 5.3). `charged`: processor-microseconds
    of its Launchers' allocations so far, those that run left out. `left_out`: (cluster, host) of black holes.
    """

    count: int
    done: Intervals = NONE
    failed: Intervals = NONE
    returned: tuple[tuple[str, Intervals], ...] = ()
    out: tuple[tuple[str, Intervals], ...] = ()
    owed: tuple[tuple[str, int], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    preempted: int = 0
    charged: int = 0
    admitted_at: Instant | None = None

    @property
    def pool(self) -> Intervals:
        """What may be fed: neither done nor out."""
        taken = self.done
        for _, numbers in self.out:
            taken |= numbers
        return Intervals.of(((1, self.count),)) - taken

    @property
    def left(self) -> int:
        """Parameters that are not done."""
        return self.count - len(self.done)

    def out_on(self, cluster: str) -> Intervals:
        return dict(self.out).get(cluster, NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What a Launcher's job knows beyond other jobs: whose it is, and why it was asked to go ('' it was not).

    `stop_reason`: preempted (for others' jobs), shrunk (for another runner), withdrawn (it had not started in time),
    idle (nothing was left for it), black_hole, over (its sweep is). `suspended` by its batch system: now, or before (''
    it never was), as the sweep's story tells it; what is out of reach stays what it was.
    """

    sweep: JobId
    stop_reason: str = ""
    suspended: str = ""


replace_runner = replacer(Runner)

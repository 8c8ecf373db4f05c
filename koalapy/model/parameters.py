"""The parameters of a sweep, which are never written out, and their results (CCGrid 2009, 5.1)."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from koalapy.model.identity import AttemptId, JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The values of one or several names that take the same value, from one of `loop`, `values` and `file`.

    `loop`: first, last (included) and step as decimal numbers, without exponent; `without`: the values to leave out of
    it. `values`: the values as they are. `file`: its place in the program's directory; each of its `lines` lines is a
    value. If `column` (from 0) is not -1, the first line has the names, and that cell of each further line is a value.
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
    """All combinations of the axes' values; the last axis varies fastest.

    The parameters are numbered from 1 in this order. They are never written out: the values of a number are computed
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
    """The result of one parameter. Instants are of koalad's clock.

    `ending`: exited, killed (by a signal from outside or its own), walltime, output (it wrote more than it may) or
    failed (it could not be started). `slot`: the Launcher's slot that ran it. Its output lies in the slot's files:
    `output_size` bytes from `output_at`, and `errors_size` bytes from `errors_at`.
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
        """Return whether the parameter's program ended by itself, with 0."""
        return self.ending == "exited" and self.exit_status == 0


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """Results that one Launcher reported together; they are committed with the change that counts them."""

    sweep: JobId
    cluster: str
    attempt: AttemptId
    results: tuple[ParameterResult, ...]

    def only(self, number: int) -> "ResultBatch | None":
        """Return the batch with this parameter's result alone; None if it is not among them."""
        found = next((each for each in self.results if each.number == number), None)
        return found and replace(self, results=(found,))

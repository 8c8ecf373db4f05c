"""The log of all parameters in the simulated world: which attempt began, finished or broke off each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from koalapy.model.units import Instant


@dataclass(eq=False, slots=True)
class Try:
    """One start of a parameter's program. `done`: it ended by itself, and its result was recorded."""

    sweep: int
    number: int
    tag: str
    began: Instant
    ended: Instant | None = None
    done: bool = False


@dataclass
class ParameterLog:
    """All starts, in order."""

    tries: list[Try] = field(default_factory=list)
    _open: dict[tuple[int, int, str], Try] = field(default_factory=dict)
    _subscribers: list[Callable[[Try], None]] = field(default_factory=list)

    def subscribe(self, notify: Callable[[Try], None]) -> None:
        """Call `notify` with every start."""
        self._subscribers.append(notify)

    def began(self, sweep: int, number: int, tag: str, at: Instant) -> None:
        self._open[sweep, number, tag] = attempt = Try(sweep, number, tag, at)
        self.tries.append(attempt)
        for notify in self._subscribers:
            notify(attempt)

    def ended(self, sweep: int, number: int, tag: str, at: Instant) -> None:
        self._open[sweep, number, tag].ended = at

    def done(self, sweep: int, number: int, tag: str) -> None:
        self._open[sweep, number, tag].done = True

    def clear(self) -> None:
        """Forget all starts. Called only while no parameter runs."""
        self.tries.clear()
        self._open.clear()

    def of(self, sweep: int) -> list[Try]:
        return [each for each in self.tries if each.sweep == sweep]

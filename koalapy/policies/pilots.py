"""When koalapy opens a pilot by itself: bounded, one at a time, and ever more rarely while pilots are of no use."""

from collections.abc import Mapping
from dataclasses import dataclass

from koalapy.model.identity import JobId
from koalapy.model.pilot import PilotRule
from koalapy.model.units import HOUR, MINUTE, Duration, Instant

FIRST_PAUSE, LONGEST_PAUSE = Duration(MINUTE), Duration(HOUR)


@dataclass(frozen=True, slots=True)
class OwnPilots:
    """A pilot of a rule that is not over. `bound`: it is a cluster. `used`: something of a job is there now."""

    bound: bool
    used: bool


class PilotKeeper:
    """Decides for one cluster. The caller opens what `step` returns, and names it in the next call.

    A pilot on which nothing ever ran was of no use. After n of them in a row nothing is opened for a minute times
    2^(n-1), an hour at most. A pilot that was of use ends the series.
    """

    def __init__(self) -> None:
        self._used: dict[JobId, bool] = {}  # the pilots of the call before
        self._useless = 0  # in a row
        self._paused_until: Instant | None = None

    @property
    def paused_until(self) -> Instant | None:
        """The instant before which nothing is opened, after pilots that were of no use."""
        return self._paused_until

    def step(self, now: Instant, rule: PilotRule, kept: Mapping[JobId, OwnPilots], waits_since: Instant | None) -> int:
        """Return how many pilots to open now: none or one.

        `kept`: the rule's pilots that have not ended. `waits_since`: since when the oldest job waits that a pilot could
        run; None if there is none.
        """
        for pilot, used in self._used.items():
            if pilot not in kept:
                self._note_end(now, used)
        self._used = {pilot: each.used or self._used.get(pilot, False) for pilot, each in kept.items()}
        if any(self._used.values()):
            self._useless, self._paused_until = 0, None
        if len(kept) >= rule.most or any(not each.bound for each in kept.values()):
            return 0
        if self._paused_until is not None and now < self._paused_until:
            return 0
        wanted = waits_since is not None and now - waits_since >= rule.waiting
        return int(len(kept) < rule.least or wanted)

    def _note_end(self, now: Instant, used: bool) -> None:
        if used:
            return
        self._useless += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._useless - 1, 16))
        self._paused_until = Instant(now + pause)

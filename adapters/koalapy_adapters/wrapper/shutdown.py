"""From an attempt's end until its wrapper has gone: the end is recorded, then reported, and then the wrapper leaves.

A record that cannot be written (a full disk, a hung one) delays the report by seconds, and the wrapper by a minute.
"""

from typing import Any, List, Optional

from koalapy_adapters.clock import SECOND
from koalapy_adapters.messages.kcm import Report
from koalapy_adapters.wrapper import events as e

_RECORD_AGAIN, _RECORD_PATIENCE = SECOND, 60 * SECOND
_RECORD_HANGS = 5 * SECOND  # after which the end is reported without it
_RELAY_PATIENCE = SECOND  # how long a relay that is not connected is waited for
_RELAY_PATIENCE_OF_SECOND = 5 * SECOND  # the same, of a second start: nobody else will report it


class Shutdown:
    """The shutdown of an attempt that ended at `began` with `report`. It answers with commands, as the machine does.

    `second`: this is the attempt's second start, which has claimed nothing, and whose record must not replace the
    first one's. `recorded`: that first one's record is reported here.
    """

    def __init__(self, report: Report, began: int, second: bool, recorded: bool = False) -> None:
        self.report = report
        self.is_settled = recorded  # the end may be reported
        self._began, self._second, self._recorded = began, second, recorded
        self._write_at: Optional[int] = None
        self._patience = _RELAY_PATIENCE_OF_SECOND if second else _RELAY_PATIENCE

    def write(self) -> List[Any]:
        self._write_at = None
        return [e.WriteRecord(self.report, self._second)]

    def written(self, relay: bool) -> List[Any]:
        """`relay`: whether it is connected."""
        if self._recorded:
            return []
        self._recorded, self._write_at = True, None
        return self._settle(relay)

    def not_written(self, now: int, relay: bool) -> List[Any]:
        if self._recorded:
            return []
        self._write_at = now + _RECORD_AGAIN
        return self._settle(relay)

    def leave(self, now: int, relay: bool) -> List[Any]:
        """Return the commands to leave; none as long as there is anything to stay for."""
        reported = self.is_settled and relay
        done = self._recorded and (reported or now >= self._began + self._patience)
        if not done and now < self._began + _RECORD_PATIENCE:
            return []
        reports = [e.SendReport(self.report)] if reported and self._second else []
        return [*reports, e.Leave(self._exit_status())]

    def next_wakeup(self) -> int:
        due = [self._began + (self._patience if self._recorded else _RECORD_PATIENCE)]
        if self._write_at is not None:
            due.append(self._write_at)
        if not self.is_settled:
            due.append(self._began + _RECORD_HANGS)
        return min(due)

    def overdue(self, now: int, relay: bool) -> List[Any]:
        """The commands that are due by `now`."""
        commands: List[Any] = []
        if self._write_at is not None and self._write_at <= now:
            commands += self.write()
        if now >= self._began + _RECORD_HANGS:
            commands += self._settle(relay)
        return commands

    def _settle(self, relay: bool) -> List[Any]:
        """Allow the report of the end. It is sent now if the relay is there, else once it is."""
        if self.is_settled:
            return []
        self.is_settled = True
        return [e.SendReport(self.report)] if relay and not self._second else []

    def _exit_status(self) -> int:
        status = self.report.exit_status
        if self._second or status is None or self.report.ending != "exited":
            return 1
        return status

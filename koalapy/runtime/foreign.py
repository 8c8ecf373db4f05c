"""What clusters say of what is not on them, in the log: at most once a minute of each, as a count."""

from collections.abc import Mapping

import structlog

from koalapy.coallocation.speaking import Foreign
from koalapy.model.units import SECOND, Duration, Instant

EVERY = Duration(60 * SECOND)

_LOG = structlog.get_logger()


class ForeignSpeech:
    """Looks at the counts after each step; called by one thread."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[Instant, int]] = {}  # when, and up to which count

    def log(self, now: Instant, foreign: Mapping[str, Foreign]) -> None:
        """Tell of each cluster what it has said since it was told last, unless that is less than a minute ago."""
        for cluster, said in foreign.items():
            at, count = self._logged.get(cluster, (Instant(now - EVERY), 0))
            if said.count > count and now - at >= EVERY:
                self._logged[cluster] = now, said.count
                _LOG.warning("foreign_speech", cluster=cluster, count=said.count - count, last=said.last)

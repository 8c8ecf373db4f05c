"""Lines of koalad's log about the measurements of one cluster: when they begin to fail, why, and when they are back."""

from collections.abc import Iterable

import structlog

from koalapy.model.errors import Reason
from koalapy.model.events import ClusterMeasured, Event, MeasurementFailed

_LOG = structlog.get_logger()
_LONGEST = 1000  # characters of a text that comes from the cluster


class MeasurementLog:
    """The memory of what was logged last of one cluster. Only one thread at a time may call it."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._failing: Reason | None = None

    def log(self, events: Iterable[Event]) -> None:
        """Log the first failure of a kind, and the first measurement after failures. All others are left out."""
        for event in events:
            if isinstance(event, MeasurementFailed):
                self._failed(event.reason)
            elif isinstance(event, ClusterMeasured) and self._failing is not None:
                _LOG.info("cluster_measured", cluster=self._cluster, after=self._failing.code)
                self._failing = None

    def _failed(self, reason: Reason) -> None:
        before, self._failing = self._failing, reason
        if before is not None and (before.code, before.command) == (reason.code, reason.command):
            return
        _LOG.warning(
            "cluster_unmeasured",
            cluster=self._cluster,
            code=reason.code,
            reason=str(reason)[:_LONGEST],
            command=reason.command[:_LONGEST],
            exit_status=reason.exit_status,
            output=reason.words[:_LONGEST],
        )

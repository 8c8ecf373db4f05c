"""What a link knows of its cluster, and how patient it is."""

from dataclasses import dataclass, field
from typing import Any

from koalapy.model.identity import InstanceId
from koalapy.model.settings import GRACE
from koalapy.model.units import Duration

_DISK = 10_000_000  # bytes a second that a shared directory is worth at least


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds. A session whose other side says nothing for `silence` is given up; `welcome` is what its start may
    take. `retry_first` and `retry_max` bound the wait before the next try to connect, which does not pass `retry_soon`
    while it has been out of reach for seconds only; a cluster's fault (a wrong key, no Python) gets `retry_cluster`. A
    session that lasted `settled` is followed by a quick try. Files of which nothing has come for `stalled` seconds,
    though the session lives, are asked for again later."""

    ping: float = 5.0
    silence: float = 15.0
    welcome: float = 60.0
    retry_first: float = 0.3
    retry_soon: float = 1.5
    retry_max: float = 30.0
    retry_cluster: float = 120.0
    settled: float = 10.0
    stalled: float = 60.0

    def stalled_after(self, size: int) -> float:
        """Seconds without a byte, where the other side has so many bytes to read or to write before it can answer."""
        return self.stalled + size / _DISK


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a link must know of its cluster. `config` are the fields of the message ClusterConfig."""

    name: str
    instance: InstanceId
    config: dict[str, Any]
    grace: Duration = GRACE
    timing: Timing = field(default_factory=Timing)

"""The settings of a link: its cluster, and its time-outs."""

from dataclasses import dataclass, field
from typing import Any

from koalapy.model.identity import InstanceId
from koalapy.model.settings import GRACE
from koalapy.model.units import Duration

_DISK = 10_000_000  # bytes a second that a shared directory is worth at least


@dataclass(frozen=True, slots=True)
class Timing:
    """Time-outs and waits of a link, in seconds.

    A session whose other side is silent for `silence` is given up; `welcome` is the limit for its start. `retry_first`
    and `retry_max` bound the wait before the next try to connect. The wait does not exceed `retry_soon` while the
    cluster has been out of reach for seconds only. A fault of the cluster (a wrong key, no Python) has `retry_cluster`
    instead. A session that lasted `settled` is followed by a quick try. Files are asked for again later if none of
    their bytes has come for `stalled` seconds, though the session lives.
    """

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
        """Return the seconds to wait for a byte if the other side has to read or write `size` bytes first."""
        return self.stalled + size / _DISK


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The settings of a link's cluster. `config`: the fields of the message ClusterConfig."""

    name: str
    instance: InstanceId
    config: dict[str, Any]
    grace: Duration = GRACE
    timing: Timing = field(default_factory=Timing)

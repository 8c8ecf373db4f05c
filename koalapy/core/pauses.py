"""Pauses: clusters on which no Launcher is started for a while."""

from dataclasses import dataclass, field

from koalapy.model.units import MINUTE, SECOND, Duration, Instant

_FIRST_PAUSE, _LONGEST_PAUSE = Duration(30 * SECOND), Duration(10 * MINUTE)


@dataclass(slots=True)
class Pauses:
    """The pauses of clusters whose batch systems did not start a Launcher in time.

    Each pause of a cluster is twice as long as the one before, up to ten minutes. `until`: by cluster, its end.
    """

    until: dict[str, Instant] = field(default_factory=dict)
    _since: dict[str, Instant] = field(default_factory=dict)
    _length: dict[str, Duration] = field(default_factory=dict)

    def begin(self, now: Instant, cluster: str) -> None:
        if self.active(now, cluster):
            return  # Launchers that were submitted together count as one
        length = Duration(min(2 * self._length.get(cluster, _FIRST_PAUSE // 2), _LONGEST_PAUSE))
        self._length[cluster], self._since[cluster] = length, now
        self.until[cluster] = Instant(now + length)

    def started(self, cluster: str, at: Instant) -> None:
        """End the pause of a cluster if a Launcher has started there after the pause began."""
        if at > self._since.get(cluster, at):
            self.forget_cluster(cluster)

    def forget_cluster(self, cluster: str) -> None:
        for each in (self.until, self._since, self._length):
            each.pop(cluster, None)

    def active(self, now: Instant, cluster: str) -> bool:
        return now < self.until.get(cluster, now)

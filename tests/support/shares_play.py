"""Runners that share clusters, as a story describes them: who comes, what is taken, what comes back, who is done."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from koalapy.policies.shares import ClusterShare, FairShare, RunnerShare, reclaim_error, share_error

PLENTY = 1_000


@dataclass
class Play:
    """`free`: nodes on each cluster that nobody has. Every runner is a user of its own, and wants all it can get."""

    policy: FairShare
    free: dict[str, int]
    holds: dict[str, dict[str, int]] = field(default_factory=dict)
    reclaimed: dict[str, dict[str, int]] = field(default_factory=dict)

    def happens(self, event: str) -> None:
        """`A comes`, `3 nodes of vu are taken`, `3 nodes of vu come back` or `A is done`."""
        for pattern, deed in _EVENTS.items():
            if match := re.fullmatch(pattern, event):
                return deed(self, *match.groups())
        raise ValueError(f"nobody knows what {event!r} means")

    def comes(self, runner: str) -> None:
        self.holds[runner], self.reclaimed[runner] = {}, {}
        self._share(anew=True)

    def is_done(self, runner: str) -> None:
        for cluster, nodes in self.holds.pop(runner).items():
            self.free[cluster] += nodes
        self._share(anew=True)

    def are_taken(self, nodes: str, cluster: str) -> None:
        """Take the nodes that are free first, the rest from the runners."""
        lacking = max(0, int(nodes) - self.free[cluster])
        self.free[cluster] -= int(nodes) - lacking
        claimants = self._claimants()
        answer = self.policy.reclaim(claimants, cluster, lacking)
        assert reclaim_error(answer, claimants, cluster, lacking) == ""
        for runner, claimant in zip(self.holds, claimants, strict=True):
            taken = answer.get(claimant.sweep, 0)
            self.holds[runner][cluster] = self.holds[runner].get(cluster, 0) - taken
            self.reclaimed[runner][cluster] = self.reclaimed[runner].get(cluster, 0) + taken

    def come_back(self, nodes: str, cluster: str) -> None:
        self.free[cluster] += int(nodes)
        self._share(anew=False)

    def _share(self, anew: bool) -> None:
        claimants = self._claimants()
        there = [ClusterShare(cluster=cluster, idle=idle) for cluster, idle in self.free.items()]
        answer = self.policy.share(claimants, there, anew)
        assert share_error(answer, claimants, there, anew) == ""
        for runner, claimant in zip(self.holds, claimants, strict=True):
            self._settle(runner, answer.get(claimant.sweep, {}), anew)

    def _settle(self, runner: str, nodes: Mapping[str, int], anew: bool) -> None:
        for cluster in self.free:
            grown = nodes.get(cluster, 0) - self.holds[runner].get(cluster, 0)
            self.free[cluster] -= grown
            self.reclaimed[runner][cluster] = (
                0 if anew else max(0, self.reclaimed[runner].get(cluster, 0) - max(0, grown))
            )
        self.holds[runner] = dict(nodes)

    def _claimants(self) -> list[RunnerShare]:
        """In the order in which they came."""
        return [
            RunnerShare(sweep=number, user=runner, wants=PLENTY, holds=holds, reclaimed=self.reclaimed[runner])
            for number, (runner, holds) in enumerate(self.holds.items(), 1)
        ]


_EVENTS: dict[str, Callable[..., None]] = {
    r"(\w+) comes": Play.comes,
    r"(\w+) is done": Play.is_done,
    r"(\d+) nodes? of (\w+) (?:are|is) taken": Play.are_taken,
    r"(\d+) nodes? of (\w+) comes? back": Play.come_back,
}

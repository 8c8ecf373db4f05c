"""Observers of a simulated cluster: they are called as things happen there, and change nothing."""

from typing import Protocol

from koalapy.model.units import Instant


class ClusterObserver(Protocol):
    """The calls of a cluster's observer. `start` names one start of a batch job, `tag` an attempt of any store."""

    def dialed(self, outcome: str) -> None:
        """koalad has tried to log in at the head node. `outcome` is `accepted`, `refused` or `unreachable`."""
        ...

    def entered(self, name: str, batch_id: str) -> None:
        """A batch job has entered the queue."""
        ...

    def looking(self, kcm: object, tag: str) -> None:
        """A KCM looks for batch jobs of this name."""
        ...

    def submitting(self, kcm: object, tag: str) -> None:
        """A KCM begins to submit."""
        ...

    def touched(self, verb: str, batch_id: str, name: str) -> None:
        """A KCM has had this done to the batch job of that name."""
        ...

    def took_start_lock(self, tag: str, start: str) -> None:
        """A wrapper has taken the attempt's start lock."""
        ...

    def reached_barrier(self, tag: str, start: str, deadline: Instant) -> None:
        """A wrapper is at its barrier, and leaves it by `deadline` unless it is released."""
        ...

    def left_barrier(self, tag: str, start: str) -> None:
        """The wrapper has left its barrier."""
        ...

    def cleaned_up(self, tag: str) -> None:
        """A KCM has reported the attempt as cleaned up."""
        ...


class NoClusterObserver:
    """An observer that ignores every call."""

    def dialed(self, outcome: str) -> None: ...

    def entered(self, name: str, batch_id: str) -> None: ...

    def looking(self, kcm: object, tag: str) -> None: ...

    def submitting(self, kcm: object, tag: str) -> None: ...

    def touched(self, verb: str, batch_id: str, name: str) -> None: ...

    def took_start_lock(self, tag: str, start: str) -> None: ...

    def reached_barrier(self, tag: str, start: str, deadline: Instant) -> None: ...

    def left_barrier(self, tag: str, start: str) -> None: ...

    def cleaned_up(self, tag: str) -> None: ...

"""Observers of a simulated cluster: they are called as things happen there, and change nothing."""

from typing import Protocol

from koalapy.model.units import Instant


class ClusterObserver(Protocol):
    """`start` names one start of a batch job, `tag` an attempt of any store."""

    def dialed(self, outcome: str) -> None:
        """koalad has tried to log in at the head node: `let_in`, `refused` or `unreachable`."""
        ...

    def entered(self, name: str, batch_id: str) -> None:
        """A batch job stands in the queue."""
        ...

    def looking(self, kcm: object, tag: str) -> None:
        """A KCM looks for batch jobs of this name."""
        ...

    def submitting(self, kcm: object, tag: str) -> None:
        """A KCM begins to submit."""
        ...

    def touched(self, verb: str, batch_id: str, name: str) -> None:
        """A KCM has asked for this to be done to the batch job of that name."""
        ...

    def claimed(self, tag: str, start: str) -> None:
        """A wrapper is to run the attempt."""
        ...

    def came(self, tag: str, start: str, deadline: Instant) -> None:
        """A wrapper stands at its barrier, and leaves it by then unless it is released."""
        ...

    def went(self, tag: str, start: str) -> None:
        """It stands there no more."""
        ...

    def gone(self, tag: str) -> None:
        """A KCM says that nothing of the attempt is left, and that nothing comes."""
        ...


class NoClusterObserver:
    """Watches nothing."""

    def dialed(self, outcome: str) -> None: ...

    def entered(self, name: str, batch_id: str) -> None: ...

    def looking(self, kcm: object, tag: str) -> None: ...

    def submitting(self, kcm: object, tag: str) -> None: ...

    def touched(self, verb: str, batch_id: str, name: str) -> None: ...

    def claimed(self, tag: str, start: str) -> None: ...

    def came(self, tag: str, start: str, deadline: Instant) -> None: ...

    def went(self, tag: str, start: str) -> None: ...

    def gone(self, tag: str) -> None: ...

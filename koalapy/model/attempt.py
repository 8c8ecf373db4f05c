"""An attempt: one try to run a component, which is one batch job on one cluster, from the claim to cleaned up."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from koalapy.model.cluster import Node
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import caster, fast_frozen, replacer, row_class
from koalapy.model.identity import AttemptId
from koalapy.model.request import ComponentRequest
from koalapy.model.states import AttemptState, Ending
from koalapy.model.units import Instant


class OwnerKind(StrEnum):
    """The kinds of owners of attempts."""

    JOB = "job"
    SWEEP = "sweep"


_OF_A_JOB = OwnerKind.JOB


class Owner(NamedTuple):
    """The owner of an attempt. `id` is unique among the owners of one kind."""

    kind: OwnerKind
    id: int


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherFields:
    """The fields that only a Launcher has: an attempt that holds nodes for an owner that is not a job.

    `stop_reason`: why it was ordered to stop; '' if it was not. One of a sweep is preempted (for others' jobs), shrunk
    (for another runner), withdrawn (it had not started in time) or black_hole. Otherwise it is idle (nothing was left
    for it), or no longer needed. `failure`: why it was ordered to stop, if that counts as its failure. `forced`:
    nobody waits until its program has ended. `suspended`: whether its batch system suspends it now, or did before; ''
    if never. While its cluster is unreachable, the last value stays.
    """

    owner: Owner
    claimed_at: Instant
    stop_reason: str = ""
    failure: Reason | None = None
    forced: bool = False
    suspended: str = ""


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt. All instants are of koalad's clock.

    `ending`: set once it has ended. `began_at`: when its batch job began, as its wrapper reports; `allocated_at`: when
    koalad learned that. `cancelling`: its cluster was ordered to end it. `stuck`: why its batch system does not end it.
    `unknown_since`: since when it is missing. `silent_since`: since when its wrapper has given no sign, though it is
    not known to have ended. `detached_at`: since when its owner no longer waits for it. `superseded`: its job is beyond
    this try, has no record any more, or held a lease, so its output is not needed. `launcher`: set if its owner is no
    job. `host_cluster`: the cluster whose processors its cluster, a pilot, holds; '' if its cluster is none. Its
    directory lies there. `candidate`: another attempt is its component's present one; it is in a queue beside that one,
    or has lost to it (see `koalapy.coallocation.race`).
    """

    id: AttemptId
    cluster: str
    request: ComponentRequest
    state: AttemptState = AttemptState.SUBMITTING
    ending: Ending | None = None
    batch_id: str = ""
    nodes: tuple[Node, ...] = ()
    exit_status: int | None = None
    queued_at: Instant | None = None
    allocated_at: Instant | None = None
    began_at: Instant | None = None
    at_barrier_at: Instant | None = None
    released_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    pending_reason: str = ""
    unknown_since: Instant | None = None
    reason: Reason | None = None
    cancelling: bool = False
    stuck: Reason | None = None
    silent_since: Instant | None = None
    detached_at: Instant | None = None
    superseded: bool = False
    launcher: LauncherFields | None = None
    host_cluster: str = ""
    candidate: bool = False

    @property
    def owner(self) -> Owner:
        return Owner(OwnerKind.JOB, self.id.job) if self.launcher is None else self.launcher.owner

    @property
    def owner_kind(self) -> OwnerKind:
        return _OF_A_JOB if self.launcher is None else self.launcher.owner.kind

    @property
    def processors(self) -> int:
        return self.request.processors

    @property
    def cleaned_up(self) -> bool:
        return self.state.cleaned_up

    @property
    def let_go(self) -> bool:
        """Return whether the owner waits for nothing of the attempt any more: it is cleaned up or detached."""
        return self.state.cleaned_up or self.detached_at is not None

    @property
    def is_pending_cancel(self) -> bool:
        """Return whether the attempt is detached, and something of it may be left on its cluster."""
        return self.detached_at is not None and not self.state.cleaned_up

    @property
    def is_obsolete(self) -> bool:
        """Return whether nothing needs its record any more: it is superseded, and nothing of it is left."""
        return self.superseded and self.state.cleaned_up

    @property
    def is_silent(self) -> bool:
        """Return whether the wrapper has given no sign for a while, and it is not known to have ended."""
        return self.silent_since is not None and not self.state.ended


def fields_of(attempt: Attempt) -> LauncherFields:
    """Return the fields that only a Launcher has, of an attempt that is one."""
    assert attempt.launcher is not None
    return attempt.launcher


replace_launcher_fields = replacer(LauncherFields)
AttemptRow = row_class(Attempt)
attempt_row, attempt_value = caster(Attempt, AttemptRow), caster(AttemptRow, Attempt)

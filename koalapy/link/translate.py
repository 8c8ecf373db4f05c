"""Translation between wire and core: commands to messages, messages to events. Pure."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

from koalapy_adapters.errors import BatchError
from koalapy_adapters.messages import kcm, koalad

from koalapy.model.cluster import ClusterState, Node
from koalapy.model.commands import (
    CancelAttempt,
    ClusterHint,
    FeedSweep,
    ForgetAttempt,
    LauncherWork,
    RecallParameters,
    ReleaseAttempt,
    SetSuspended,
    SubmitAttempt,
    TrustLauncher,
    WatchCluster,
)
from koalapy.model.errors import Reason, Whose
from koalapy.model.events import BatchStatusSeen, ClusterMeasured, MeasurementFailed, WrapperReported
from koalapy.model.identity import AttemptId, InstanceId, Tag, attempt_of, tag_of
from koalapy.model.states import BatchState, ReportedEnding, WrapperPhase
from koalapy.model.units import SECOND, Duration, Instant

Mapped = Callable[[int], Instant]  # an instant of the KCM's clock to koalad's
_WHOSE = ("transient", "cluster", "request", "ours")
_BATCH_FIELDS = (
    "processors_per_node",
    "memory_per_processor",
    "gpus",
    "exclusive",
    "queue",
    "account",
    "qos",
    "constraint",
)


# ---- to the wire


def submit(
    instance: InstanceId, number: int, command: SubmitAttempt, staged: list[list[Any]], doubt: bool, grace: Duration
) -> koalad.Submit:
    """Return the message of a SubmitAttempt. `staged`: [path in the working directory, content hash, mode]."""
    tag = tag_of(instance, command.attempt)
    return koalad.Submit(number, tag, _batch(command), program(command, grace)._asdict(), staged, doubt)


def _batch(command: SubmitAttempt) -> dict[str, Any]:
    """Return the component's batch options; those that it does not have are left to the grid file."""
    request = command.request
    options = {name: getattr(request, name) for name in _BATCH_FIELDS if getattr(request, name)}
    native = {"native": list(request.native)} if request.native else {}
    manners = {"lowest": True} if command.lowest else {}
    avoid = {"avoid": list(command.avoid)} if command.avoid else {}
    walltime_s = -(-command.walltime // SECOND)
    return {"processors": request.processors, "walltime_s": walltime_s, **options, **native, **manners, **avoid}


def program(command: SubmitAttempt, grace: Duration) -> koalad.Program:
    request, attempt, work = command.request, command.attempt, command.launcher
    return koalad.Program(
        job=attempt.job,
        component=attempt.component,
        components=command.components,
        attempt=attempt.number,
        executable=request.executable,
        arguments=list(request.arguments),
        environment=[[name, value] for name, value in request.environment],
        setup=list(request.setup),
        launch=str(request.launch),
        processors=request.processors,
        threads=request.threads_per_process,
        walltime=request.walltime / SECOND,
        barrier_timeout=command.barrier_timeout / SECOND,
        grace=(work.grace if work is not None else grace) / SECOND,
        optional=request.optional,
        sweep=_sweep(work) if work is not None else None,
        mpi=None if request.mpi is None else str(request.mpi),
        terminal=str(command.interactive or ""),
    )


def _sweep(work: LauncherWork) -> dict[str, Any]:
    return {
        "sweep": work.sweep,
        "space": asdict(work.space),
        "slots": work.slots,
        "limit_s": work.limit / SECOND,
        "output_limit": None,
        "drain_s": None,
    }


def release(instance: InstanceId, number: int, command: ReleaseAttempt) -> koalad.Release:
    hosts: list[list[Any]] = [list(host) for host in command.hosts]
    return koalad.Release(number, tag_of(instance, command.attempt), command.first_rank, hosts)


def cancel(instance: InstanceId, number: int, command: CancelAttempt) -> koalad.Cancel:
    return koalad.Cancel(number, tag_of(instance, command.attempt), command.batch_id, command.force)


def hint_message(
    instance: InstanceId, hint: ClusterHint
) -> koalad.WatchCluster | koalad.FeedSweep | koalad.RecallParameters | koalad.TrustLauncher | koalad.SetSuspended:
    match hint:
        case WatchCluster():
            return koalad.WatchCluster(hint.urgent)
        case FeedSweep():
            ranges = [list(pair) for pair in hint.numbers.pairs]
            return koalad.FeedSweep(hint.sweep, ranges, hint.anew, [tag_of(instance, each) for each in hint.launchers])
        case RecallParameters():
            return koalad.RecallParameters(hint.sweep, hint.most)
        case TrustLauncher():
            return koalad.TrustLauncher(tag_of(instance, hint.attempt))
        case SetSuspended():
            return koalad.SetSuspended(tag_of(instance, hint.attempt), hint.suspended)


def forget(instance: InstanceId, number: int, command: ForgetAttempt) -> koalad.Forget:
    return koalad.Forget(number, tag_of(instance, command.attempt))


# ---- from the wire


def own_attempt(instance: InstanceId, tag: str) -> AttemptId | None:
    """Return the attempt of a tag; None for a tag of another store, or a text that is no tag."""
    try:
        theirs, attempt = attempt_of(Tag(tag))
    except ValueError:
        return None
    return attempt if theirs == instance else None


def reason_of(error: dict[str, Any]) -> Reason:
    """Return the reason of a Failure on the wire; koalapy is to blame for a broken one (`ours`)."""
    whose = error.get("whose")
    status = error.get("exit_status")
    return Reason(
        code=str(error.get("code") or "unknown"),
        whose=cast(Whose, whose) if whose in _WHOSE else "ours",
        message=str(error.get("message") or "The KCM names no reason."),
        advice=str(error.get("advice") or ""),
        command=str(error.get("command") or ""),
        exit_status=status if isinstance(status, int) else None,
        words=str(error.get("words") or ""),
    )


def reason_of_error(error: BatchError) -> Reason:
    whose = cast(Whose, error.whose)
    if error.result is None:
        return Reason(error.code, whose, error.message, error.advice)
    command = " ".join(error.result.argv)
    words, status = error.result.words, error.result.exit_status
    return Reason(error.code, whose, error.message, error.advice, command, status, words)


def measured(instance: InstanceId, cluster: str, message: kcm.Measured, mapped: Mapped) -> ClusterMeasured:
    """Return the event of a measurement.

    Its numbers count all that this user runs there by koalapy, its tags only this store's.
    """
    state = ClusterState(
        measured_at=mapped(message.measured_at),
        total=message.total,
        idle=message.idle,
        ours=message.ours,
        others=message.others,
        waiting_local=message.waiting_local,
        allocated=_own_tags(instance, message.allocated),
        pending=_own_tags(instance, message.pending),
        free_nodes=tuple((free, nodes) for free, nodes in message.free_nodes),
        unit=message.unit,
        largest=message.largest,
        largest_idle=message.largest_idle,
        wanted_local=message.wanted_local,
        others_hidden=message.others_hidden,
        whole_nodes=tuple((processors, nodes) for processors, nodes in message.whole_nodes),
        memory=message.memory,
        walltime_limit=None if message.walltime_limit_s is None else Duration(message.walltime_limit_s * SECOND),
    )
    return ClusterMeasured(cluster=cluster, state=state)


def _own_tags(instance: InstanceId, tags: list[str]) -> tuple[Tag, ...]:
    return tuple(Tag(tag) for tag in tags if own_attempt(instance, tag) is not None)


def measure_failed(cluster: str, message: kcm.MeasureFailed) -> MeasurementFailed:
    return MeasurementFailed(cluster=cluster, reason=reason_of(message.error))


def seen(cluster: str, attempt: AttemptId, message: kcm.BatchStatus, mapped: Mapped) -> BatchStatusSeen:
    return BatchStatusSeen(
        cluster=cluster,
        attempt=attempt,
        batch_id=message.batch_id,
        at=mapped(message.at),
        state=BatchState(message.state),
        words=message.reason,
        stuck=message.stuck,
        exit_status=message.exit_status,
        ending=ReportedEnding(message.ending),
        silent_since=None if message.silent_since is None else mapped(message.silent_since),
    )


def reported(cluster: str, attempt: AttemptId, message: kcm.Report, mapped: Mapped) -> WrapperReported:
    def ours(instant: int | None) -> Instant | None:
        return None if instant is None else mapped(instant)

    return WrapperReported(
        cluster=cluster,
        attempt=attempt,
        batch_id=message.batch_id,
        phase=WrapperPhase(message.phase),
        nodes=tuple(Node(name, address, processes) for name, address, processes in message.nodes),
        at_barrier_at=ours(message.at_barrier_at),
        released_at=ours(message.released_at),
        started_at=ours(message.started_at),
        ended_at=ours(message.ended_at),
        exit_status=message.exit_status,
        ending=ReportedEnding(message.ending),
        reason=None if message.error is None else reason_of(message.error),
        began_at=ours(message.began_at),
    )

"""Random jobs of the users of a simulated grid: some of every kind, most of them valid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from koalapy.model.notification import ENDS, Mail, Notify, NotifyOn, Webhook
from koalapy.model.request import ComponentRequest, Moment, Request, RetryOn, WhenBusy
from koalapy.model.units import SECOND, Duration
from koalapy.world.behaviour import EXECUTABLE, MISSING, Behaviour, arguments_of
from koalapy.world.koalad.file_operations import MISSING_FILE
from koalapy.world.koalad.matchmaker import RANKS, REQUIREMENTS
from koalapy.world.random_streams import between

FITS_EVERYWHERE = 4  # processors that every simulated cluster has
_RUNS = (Duration(SECOND), Duration(40 * SECOND))
_WALLTIME = Duration(60 * SECOND)
_LONG_RUNS, _LONG = (Duration(60 * SECOND), Duration(400 * SECOND)), Duration(480 * SECOND)
_SHORT = Duration(15 * SECOND)  # a walltime that some programs exceed
_RETRY_ON = (
    (RetryOn.LOST, RetryOn.KILLED),
    (RetryOn.LOST, RetryOn.KILLED),
    (),
    (RetryOn.LOST, RetryOn.KILLED, RetryOn.EXIT),
)


_RECIPIENTS = Webhook(url="https://hooks.example/a"), Mail(address="me@example.org")


@dataclass(frozen=True, slots=True)
class Habits:
    """Probabilities of users' uncommon requests."""

    exit_status: float = 0.08
    walltime: float = 0.04
    executable: float = 0.03
    stage_in: float = 0.03
    stage_out: float = 0.05
    deaf: float = 0.1
    long: float = 0.15  # neither this
    optional: float = 0.35  # nor this is a fault, but both go through what others do not
    notify: float = 0  # nor this; drawn only if it is greater
    matching: float = 0  # nor this, in the same way: requirements, ranks, and groups of clusters
    urgent: float = 0  # nor this, in the same way: priority 0
    begin: float = 0  # nor this, in the same way: jobs that are to begin later
    expires: float = 0  # nor this, in the same way: jobs that do not wait for ever
    held_limit: float = 0  # nor this, in the same way: jobs that may hold little at their barriers
    queue: float = 0  # nor this, in the same way: jobs that enter the queues of busy clusters
    race: float = 0  # nor this, in the same way: those that enter several queues at once
    ranges: float = 0  # nor this, in the same way: components that allow fewer processors than they want


def draw_request(rng: Random, sizes: Mapping[str, int], habits: Habits | None = None) -> Request:
    """Draw a job for clusters of these sizes. Each component fits one of them; the whole job may fit no grid."""
    habits = habits or Habits()
    count = rng.choice((1, 1, 1, 2, 2, 3, 4))
    files = rng.choice(((), (), ("result",)))
    request = Request(
        name="job",
        components=tuple(_component(rng, sizes, habits, index, files) for index in range(count)),
        priority=rng.choice((5, 10, 10, 10)),
        when_busy=rng.choice((WhenBusy.WAIT, WhenBusy.WAIT, WhenBusy.QUEUE)),
        retry_on=rng.choice(_RETRY_ON),
        communication=rng.random() < 0.8,
        stage_in=(MISSING_FILE,) if rng.random() < habits.stage_in else rng.choice(((), (), ("data",))),
        stage_out=(*files, "never-written") if files and rng.random() < habits.stage_out else files,
        notify=_notify(rng, habits),
    )
    if habits.urgent and rng.random() < habits.urgent:
        request = replace(request, priority=0)
    if habits.queue and rng.random() < habits.queue:
        request = replace(request, when_busy=WhenBusy.QUEUE)
    if habits.race and request.when_busy is WhenBusy.QUEUE and rng.random() < habits.race:
        request = replace(request, race=rng.choice((2, 3, 4)))
    if habits.expires and rng.random() < habits.expires:
        request = replace(request, expires=_after(rng, (30, 120, 600)))
    if habits.begin and rng.random() < habits.begin:
        early = rng.choice((None, Duration(10 * SECOND), Duration(60 * SECOND)))
        request = replace(request, begin=_after(rng, (5, 20, 100)), claim_before=early)
    if habits.held_limit and rng.random() < habits.held_limit:
        request = replace(request, held_limit=rng.choice((1, 40, 400)) * SECOND)
    if habits.matching and rng.random() < habits.matching:
        request = _matching(rng, request, sizes)
    return with_ranges(rng, request) if habits.ranges and rng.random() < habits.ranges else request


def _after(rng: Random, seconds: Sequence[int]) -> Moment:
    return Moment(after=Duration(rng.choice(seconds) * SECOND))


def _matching(rng: Random, request: Request, sizes: Mapping[str, int]) -> Request:
    """Give the components requirements and ranks that some cluster meets, or spread the one component over a group."""
    rank = rng.choice(list(RANKS))
    if len(request.components) == 1 and rng.random() < 0.5:
        most = max(2, sum(sizes.values()) // 2)
        spread = replace(request.components[0], cluster=None, processors=rng.randint(2, most), rank=rank, spread=True)
        return replace(request, components=(spread,), when_busy=WhenBusy.WAIT)
    wanted = rng.choice(list(REQUIREMENTS))
    suited = [
        replace(each, cluster=None, processors=min(each.processors, FITS_EVERYWHERE), requirements=wanted, rank=rank)
        for each in request.components
    ]
    return replace(request, components=tuple(suited))


def with_ranges(rng: Random, request: Request) -> Request:
    """Let most components want up to twice their processors, and do with fewer."""
    components = [_with_range(rng, each) if rng.random() < 0.8 else each for each in request.components]
    return replace(request, components=tuple(components))


def _with_range(rng: Random, component: ComponentRequest) -> ComponentRequest:
    wanted = rng.randint(component.processors, 2 * component.processors)
    return replace(component, processors=wanted, most=wanted, least=rng.randint(1, component.processors))


def _notify(rng: Random, habits: Habits) -> tuple[Notify, ...]:
    if not habits.notify or rng.random() >= habits.notify:
        return ()
    changes = rng.choice(((NotifyOn.STARTED, *ENDS), ENDS, (NotifyOn.FAILED,)))
    return tuple(Notify(to=to, on=changes) for to in _RECIPIENTS[: rng.randint(1, len(_RECIPIENTS))])


def _component(
    rng: Random, sizes: Mapping[str, int], habits: Habits, index: int, files: tuple[str, ...]
) -> ComponentRequest:
    cluster = rng.choice((None, None, None, *sizes))
    most = max(1, (max(sizes.values()) if cluster is None else sizes[cluster]) // 2)
    long = rng.random() < habits.long
    behaviour = Behaviour(
        runs=between(rng, *(_LONG_RUNS if long else _RUNS)),
        exit_status=rng.choice((1, 3, 127)) if rng.random() < habits.exit_status else 0,
        deaf=rng.random() < habits.deaf,
        files=files,
    )
    return ComponentRequest(
        processors=rng.randint(1, rng.randint(1, most)),
        executable=MISSING if rng.random() < habits.executable else EXECUTABLE,
        arguments=arguments_of(behaviour),
        cluster=cluster,
        walltime=_SHORT if rng.random() < habits.walltime else _LONG if long else _WALLTIME,
        optional=index > 0 and rng.random() < habits.optional,
    )

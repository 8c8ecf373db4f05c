"""Actions in a world of several sites: users with jobs that are larger than their site, links that fail, and people
who end leases."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from random import Random
from types import MappingProxyType

from koalapy.chaos import faults, user_actions
from koalapy.chaos.plan import Action, draw_actions, plan
from koalapy.model.commands import EndLease, ReturnLease
from koalapy.model.errors import Reason
from koalapy.model.events import LeaseEndRequested
from koalapy.model.identity import tag_of
from koalapy.model.lease import holds_lease, lease_of_cluster
from koalapy.model.request import ComponentRequest, Request, RetryOn
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.views.leases import leases
from koalapy.world.behaviour import AT_HOME, EXECUTABLE, Behaviour, arguments_of
from koalapy.world.koalad.host import SimKoalad
from koalapy.world.random_streams import between, stream
from koalapy.world.random_sweeps import draw_sweep
from koalapy.world.sites import SimSites
from koalapy.world.world import World

_SPREAD = 8  # several sites have many events that are nobody's action
GAP = 400  # mean number of events between two actions beside the plan
_RANGED = 0.2  # of the large jobs do with fewer processors
LARGEST = 24  # processors that a site with wide nodes has at least, and may lend

Act = Callable[[SimSites, Random], None]

_RUNS = (Duration(2 * SECOND), Duration(2 * MINUTE))
_SHORT, _LONG = (SECOND, Duration(40 * SECOND)), (MINUTE, Duration(8 * MINUTE))
_OTHER_USERS = {"submit": 3, "cancel": 1, "hold": 1, "release": 2, "local_job": 2, "job_of_another_store": 1}
_ENDED = Reason("lease_ended", "request", "Its lender has taken it back.", "")


def _submit_large(sites: SimSites, rng: Random) -> None:
    """Submit a job that is larger than its site, if it may borrow so much, or else a small one."""
    sizes = {name: max(_sizes(world), default=1) for name, world in sites.worlds.items()}
    name, own = rng.choices(list(sizes.items()), [4 if size < LARGEST else 1 for size in sizes.values()])[0]
    processors = rng.randint(own + 1, LARGEST) if own < LARGEST else rng.randint(1, own // 4)
    program = Behaviour(runs=between(rng, *_RUNS), deaf=rng.random() < 0.1)
    component = ComponentRequest(
        processors=processors, executable=EXECUTABLE, arguments=arguments_of(program), walltime=Duration(3 * MINUTE)
    )
    if rng.random() < _RANGED:
        component = replace(component, most=processors, least=rng.randint(1, processors))
    retry_on = (RetryOn.LOST, RetryOn.KILLED)
    sites.worlds[name].koalad.submit(Request(name="large", components=(component,), retry_on=retry_on))


def _submit_mixed(sites: SimSites, rng: Random) -> None:
    """Submit a job of several components, of which its site has processors for some; one may name its cluster."""
    world = rng.choice(list(sites.worlds.values()))
    own = {name: size for name, size in world.sizes.items() if lease_of_cluster(name) is None}
    cluster, size = rng.choice(list(own.items()))
    kept = [rng.randint(1, min(size, LARGEST // 3)) for _ in range(rng.choice((1, 1, 2)))]
    borrowed = rng.randint(1, LARGEST - sum(kept))
    program = arguments_of(Behaviour(runs=between(rng, *_RUNS), deaf=rng.random() < 0.1))
    named = rng.random() < 0.3
    components = [
        ComponentRequest(
            processors=processors, executable=EXECUTABLE, arguments=program, walltime=Duration(3 * MINUTE),
            cluster=cluster if named and not index else None,
        )
        for index, processors in enumerate([*kept, borrowed])
    ]  # fmt: skip
    retry_on = (RetryOn.LOST, RetryOn.KILLED)
    world.koalad.submit(
        Request(name="mixed", components=tuple(components), retry_on=retry_on, communication=rng.random() < 0.5)
    )


def _submit_at_home(sites: SimSites, rng: Random) -> None:
    """Submit two jobs that take a whole cluster each, and whose programs no lease has: the second one has to wait."""
    sizes = {name: max(_sizes(world), default=1) for name, world in sites.worlds.items()}
    name, own = min(sizes.items(), key=lambda each: (each[1] >= LARGEST, rng.random()))
    program = arguments_of(Behaviour(runs=between(rng, *_RUNS)))
    component = ComponentRequest(
        processors=min(own, LARGEST), executable=AT_HOME, arguments=program, walltime=Duration(3 * MINUTE)
    )
    for _ in range(2):
        request = Request(name="at home", components=(component,), retry_on=(RetryOn.LOST, RetryOn.KILLED))
        sites.worlds[name].koalad.submit(request)


def _submit_sweep(sites: SimSites, rng: Random) -> None:
    """Submit a sweep at a site that borrows for sweeps, if there is one."""
    worlds = [each for each in sites.worlds.values() if each.settings.borrow and each.settings.borrow.sweeps]
    if worlds:
        rng.choice(worlds).koalad.submit(draw_sweep(rng))


def _sizes(world: World) -> list[int]:
    return [size for name, size in world.sizes.items() if lease_of_cluster(name) is None]


def _end_lease(sites: SimSites, rng: Random) -> None:
    """Let a person end a lease, at any of its sites."""
    world = rng.choice(list(sites.worlds.values()))
    engine = world.koalad.engine
    found = [] if engine is None else leases(engine)
    if found:
        view = rng.choice(found)
        ended = LeaseEndRequested(
            neighbour=view.lease.neighbour, lease=view.lease.number, lent=view.lease.lent, reason=_ENDED,
            at_once=rng.random() < 0.5,
        )  # fmt: skip
        world.koalad.request(ended)


def _kill_pilot(sites: SimSites, rng: Random) -> None:
    """Kill the batch job of a lease's pilot, as an administrator of the lender does."""
    world = rng.choice(list(sites.worlds.values()))
    engine = world.koalad.engine
    held = [] if engine is None else [job for job in engine.records.jobs.values() if holds_lease(job.request)]
    attempts = [attempt for job in held for attempt in job.present]
    if attempts:
        attempt = rng.choice(attempts)
        batch = world.clusters[attempt.cluster].batch
        for job in [each for each in batch.listed() if each.name == tag_of(world.instance, attempt.id)]:
            batch.kill(job)


def _forge_end(sites: SimSites, rng: Random) -> None:
    """Let a site report the end of a lease that it never lent, or has reported already, at a charge of its own.

    Or let it return a lease that it never had.
    """
    pair = rng.choice(sites.pairs)
    forger, victim = rng.choice(((pair.one, pair.other), (pair.other, pair.one)))
    forging, deceived = sites.worlds[forger].koalad.engine, sites.worlds[victim].koalad.engine
    record = None if deceived is None else deceived.core.neighbours.records.get(forger)
    if forging is None or deceived is None or record is None or victim not in forging.core.neighbours.records:
        return
    known = {each.number for each in (*deceived.core.leases.borrowed_of(forger), *record.given_up)}
    number = rng.choice((rng.randint(1, max(1, record.next_lease - 1)), record.next_lease + rng.randint(1000, 9999)))
    there = forging.core.leases.lent.get((victim, number))
    if rng.random() < 0.3:
        forging.core.records.command(ReturnLease(neighbour=victim, lease=number + 100_000))
    elif number not in known and there is None:
        forging.core.records.command(
            EndLease(neighbour=victim, lease=number, charge=rng.getrandbits(53), reason=_ENDED)
        )
        sites.forged[victim, forger] += 1


def _link_cut(sites: SimSites, rng: Random) -> None:
    pair = rng.choice(sites.pairs)
    sites.network.cut(pair.one, pair.other, between(rng, *rng.choice((_SHORT, _LONG))))


def _link_stalls(sites: SimSites, rng: Random) -> None:
    pair = rng.choice(sites.pairs)
    sites.network.stall(pair.one, pair.other, between(rng, *_SHORT))


def _neighbour_changes(sites: SimSites, rng: Random) -> None:
    """Change the settings of a neighbour at one site, whatever its link is doing."""
    pair = rng.choice(sites.pairs)
    name, other = rng.sample((pair.one, pair.other), 2)
    koalad = sites.worlds[name].koalad
    if (process := koalad.process) is not None and koalad.takes_requests and (links := process.sites) is not None:
        process.enter(lambda: links.change(other))


def _logins_hang(sites: SimSites, rng: Random) -> None:
    """Let logins at one cluster hang for a while, and change its settings: its link ends during such a login."""
    world = rng.choice(list(sites.worlds.values()))
    cluster = rng.choice(list(world.clusters.values()))
    cluster.logins_hang_until = Instant(sites.agenda.now + between(rng, *_SHORT))
    koalad = world.koalad
    for later in (Duration(0), Duration(SECOND)):
        sites.agenda.after(later, lambda: _renew(koalad, cluster.name))


def _renew(koalad: SimKoalad, cluster: str) -> None:
    if (process := koalad.process) is not None and koalad.takes_requests and cluster in process.links:
        process.enter(lambda: process.renew(cluster, koalad.link(cluster)))


def _site_is_alone(sites: SimSites, rng: Random) -> None:
    """Cut all links of a site."""
    name, duration = rng.choice(list(sites.worlds)), between(rng, *rng.choice((_SHORT, _LONG)))
    for pair in sites.pairs:
        if name in (pair.one, pair.other):
            sites.network.cut(pair.one, pair.other, duration)


def _at_one_site(act: Callable[[World, Random], None]) -> Act:
    return lambda sites, rng: act(rng.choice(list(sites.worlds.values())), rng)


USERS: dict[str, tuple[Act, int]] = {
    "submit_large": (_submit_large, 14),
    "end_lease": (_end_lease, 1),
    **{name: (_at_one_site(user_actions.ALL[name][0]), weight) for name, weight in _OTHER_USERS.items()},
}
BESIDE: dict[str, tuple[Act, int]] = {
    "submit_mixed": (_submit_mixed, 2),
    "submit_sweep": (_submit_sweep, 1),
    "submit_at_home": (_submit_at_home, 2),
    "forge_end": (_forge_end, 1),
    "neighbour_changes": (_neighbour_changes, 2),
    "logins_hang": (_logins_hang, 1),
}
LINKS: dict[str, tuple[Act, int]] = {
    "link_cut": (_link_cut, 12),
    "link_stalls": (_link_stalls, 6),
    "site_is_alone": (_site_is_alone, 3),
    "pilot_killed": (_kill_pilot, 4),
}
FAULTS: dict[str, tuple[Act, int]] = {
    **LINKS,
    **{name: (_at_one_site(act), weight) for name, (act, weight) in faults.ALL.items()},
}
_ACTS = {name: act for name, (act, _) in (USERS | BESIDE | FAULTS).items()}


def schedule_of_sites(
    seed: int, events: int, chosen: tuple[str, ...] = (), more: Mapping[str, int] = MappingProxyType({})
) -> list[Action]:
    """Return the actions of a run of several sites. `chosen`: only these faults, with their usual weights.

    `more`: weights of users' actions in place of their usual ones.
    """
    users = {name: weight for name, (_, weight) in USERS.items()} | dict(more)
    weights = {name: weight for name, (_, weight) in FAULTS.items() if not chosen or name in chosen}
    planned = plan(seed, events, users, weights, mixed=not chosen, spread=_SPREAD)
    return sorted([*planned, *_beside(seed, events)], key=attrgetter("at"))


def _beside(seed: int, events: int) -> Iterator[Action]:
    """Draw the actions beside the plan from a stream of their own, so that the other draws do not change."""
    weights = {name: weight for name, (_, weight) in BESIDE.items()}
    return draw_actions(stream(seed, "chaos/beside"), events, GAP, weights)


def perform_at_sites(sites: SimSites, action: Action) -> None:
    """Perform an action. Nothing happens if it has no target."""
    _ACTS[action.kind](sites, Random(action.seed))

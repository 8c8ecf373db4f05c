"""`dmm`: a real site manager (koalapy.sites) at every site; the network between them is perfect (assumption 1)."""

from collections.abc import Callable, Mapping
from typing import Any

from koalapy.common.registry import load
from koalapy.experiments.interop.architectures.simulation import Simulation
from koalapy.experiments.interop.site_manager import messages
from koalapy.experiments.interop.site_manager.manager import SiteManager
from koalapy.experiments.interop.site_manager.site import SiteSettings
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import Kind
from koalapy.model.units import Duration, Instant

_ARRIVES_AS: Mapping[type, Callable[..., messages.Event]] = {
    messages.DelegateRequest: messages.RequestDelegated,
    messages.RejectRequest: messages.RequestRejected,
    messages.OfferLease: messages.LeaseOffered,
    messages.AcceptLease: messages.LeaseAccepted,
    messages.ReturnLease: messages.LeaseReturned,
    messages.CancelRequest: messages.RequestCancelled,
    messages.ReportFree: messages.FreeReported,
}


def dmm(simulation: Simulation) -> None:
    _Sites(simulation).run()


class _Sites:
    """The site managers, their job managers, and the links between them."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._delegation_policy = load("koalapy.delegation", simulation.options.delegation)
        self._target_policy = load("koalapy.targets", simulation.options.targets)
        self._managers = {name: self._manager(name) for name in simulation.system.parents}
        self._due: dict[str, Instant | None] = dict.fromkeys(self._managers)
        self._jobs: dict[messages.RequestId, GridJob] = {}
        self._messages: list[tuple[str, messages.Event]] = []

    def run(self) -> None:
        self._simulation.arrived, self._simulation.ended = self._submit, self._release
        for name in self._managers:
            self._deliver(name)
        self._simulation.run()

    def _manager(self, name: str) -> SiteManager:
        simulation, options = self._simulation, self._simulation.options
        settings = SiteSettings(
            name=name,
            processors=simulation.system.processors[name],
            neighbours=simulation.system.neighbours(name),
            threshold=options.threshold,
            delegation_interval=options.delegation_interval,
            matchmaking_interval=options.matchmaking_interval,
            dttl=options.dttl,
            max_passes=options.max_passes,
            reports=options.reports,
        )
        offset = Duration(simulation.rng.randrange(options.matchmaking_interval))
        return SiteManager(settings, self._delegation_policy, self._target_policy, offset)

    def _submit(self, job: GridJob) -> None:
        identity = messages.RequestId(job.home, job.number)
        self._jobs[identity] = job
        request = messages.ResourceRequest(identity, job.user, job.processors, self._simulation.options.dttl)
        self._deliver(job.home, messages.RequestSubmitted(request))

    def _release(self, job: GridJob, _: str) -> None:
        identity = messages.RequestId(job.home, job.number)
        del self._jobs[identity]
        self._deliver(job.home, messages.LeaseReturned(None, identity))

    def _deliver(self, site: str, *events: messages.Event) -> None:
        """Hand the events to the site, then its messages to their receivers, until there are none left."""
        self._handle(site, events)
        while self._messages:
            arrived, self._messages = self._messages, []
            for to, event in arrived:
                self._handle(to, (event,))

    def _handle(self, site: str, events: tuple[messages.Event, ...]) -> None:
        manager = self._managers[site]
        for command in manager.handle(self._simulation.now, events):
            if isinstance(command, messages.GrantLease):
                self._start(command.lease)
            else:
                kind = Kind.REPORT if isinstance(command, messages.ReportFree) else Kind.DMM
                self._simulation.tally.messages[kind] += 1
                made: Any = _ARRIVES_AS[type(command)](site, *command[1:])
                self._messages.append((command.to, made))
        due = manager.next_wakeup()
        if due is not None and due != self._due[site]:
            self._simulation.at(due, lambda: self._wake(site, due))
        self._due[site] = due

    def _wake(self, site: str, due: Instant) -> None:
        if self._due[site] == due:
            self._due[site] = None
            self._simulation.tally.messages[Kind.NEGOTIATE] += 2 * self._managers[site].waiting
            self._deliver(site)

    def _start(self, lease: messages.Lease) -> None:
        simulation, job = self._simulation, self._jobs[lease.id]
        simulation.free[lease.source] -= job.processors
        least, most = simulation.options.binding
        bind = Duration(simulation.rng.randint(least, most) if lease.length else 0)
        simulation.start(job, lease.source, lease.length, bind)

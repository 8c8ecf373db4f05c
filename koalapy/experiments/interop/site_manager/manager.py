"""A site manager as a state machine: events in, commands out.

It never blocks, reads no clock and draws no random number.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from koalapy.experiments.interop.site_manager import delegation, leases, matchmaking, messages
from koalapy.experiments.interop.site_manager.site import Site, SiteSettings, Usage, on_free_reported
from koalapy.model.units import Duration, Instant
from koalapy.policies.delegation import DelegationPolicy, TargetPolicy


class SiteManager:
    """One site of a network of sites (SC'07, section 4).

    `offset`: how long after full intervals its cycles begin.
    """

    def __init__(
        self,
        settings: SiteSettings,
        delegation_policy: DelegationPolicy,
        target_policy: TargetPolicy,
        offset: Duration = Duration(0),
    ) -> None:
        self._site = Site(settings, delegation_policy, target_policy)
        self._offset = offset
        self._delegate_at: Instant | None = None
        self._match_at: Instant | None = None

    def handle(self, now: Instant, events: Sequence[messages.Event]) -> list[messages.Command]:
        """Handle a batch of events in their order, run the cycles that are due, and return the commands."""
        site = self._site
        for event in events:
            _HANDLERS[type(event)](site, now, event)
        if self._delegate_at is not None and self._delegate_at <= now:
            self._delegate_at = None
            delegation.cycle(site, now)
        if self._match_at is not None and self._match_at <= now:
            self._match_at, site.match_needed = None, False
            matchmaking.cycle(site, now)
        self._schedule_cycles(now)
        commands, site.commands = site.commands, []
        return commands

    def next_wakeup(self) -> Instant | None:
        """Return the instant of the next cycle; None: not before the next event."""
        if self._delegate_at is None or self._match_at is None:
            return self._delegate_at if self._match_at is None else self._match_at
        return min(self._delegate_at, self._match_at)

    @property
    def free(self) -> int:
        """This site's processors that are not in use, neither by its own users nor by borrowers."""
        return self._site.free

    @property
    def waiting(self) -> int:
        """The number of requests that wait for this site's processors."""
        return len(self._site.waiting)

    @property
    def load(self) -> float:
        return self._site.load

    @property
    def usage(self) -> Usage:
        return self._site.usage

    def _schedule_cycles(self, now: Instant) -> None:
        """Schedule each cycle that may have an effect."""
        site, settings = self._site, self._site.settings
        if self._match_at is None and site.match_needed:
            self._match_at = self._next(now, settings.matchmaking_interval)
        if self._delegate_at is None and delegation.is_due(site):
            self._delegate_at = self._next(now, settings.delegation_interval)

    def _next(self, now: Instant, interval: Duration) -> Instant:
        """Return the next full interval after now."""
        return Instant(((now - self._offset) // interval + 1) * interval + self._offset)


def _on_processors_changed(site: Site, now: Instant, event: messages.ProcessorsChanged) -> None:
    site.resize(event.processors)


_HANDLERS: Mapping[type, Callable[[Site, Instant, Any], None]] = {
    messages.RequestSubmitted: matchmaking.on_request_submitted,
    messages.RequestDelegated: matchmaking.on_request_delegated,
    messages.RequestRejected: delegation.on_request_rejected,
    messages.LeaseOffered: leases.on_lease_offered,
    messages.LeaseAccepted: leases.on_lease_accepted,
    messages.LeaseReturned: leases.on_lease_returned,
    messages.RequestCancelled: leases.on_request_cancelled,
    messages.FreeReported: on_free_reported,
    messages.ProcessorsChanged: _on_processors_changed,
}

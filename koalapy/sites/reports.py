"""What neighbours tell each other of free processors, so that targets can be ordered by it (section 4.4).

A request is served by one site, so each is told of the site with most to spare among those that can be had through this
one without going back: a child of what lies below, beside and above, all others of what lies below. What is told may be
old by a matchmaking cycle a link.
"""

from koalapy.model.units import Instant
from koalapy.sites.messages import FreeReported, ReportFree
from koalapy.sites.site import Site


def on_free_reported(site: Site, now: Instant, event: FreeReported) -> None:
    if not site.settings.reports:
        return
    if event.sender in site.settings.neighbours and site.reported.get(event.sender) != event.processors:
        site.reported[event.sender] = event.processors
        site.match_needed |= site.connects  # others are told of it


def report_free(site: Site) -> None:
    """Whoever was told something else before."""
    if not site.settings.reports:
        return
    for name in site.settings.neighbours:
        free = free_through(site, name)
        if site.last_reported.get(name) != free:
            site.last_reported[name] = free
            site.commands.append(ReportFree(name, free))


def free_through(site: Site, name: str) -> int:
    """The most that this neighbour could have of one site, this one or one behind it."""
    most, reported = site.available, site.reported
    for each in site.reachable_through.get(name, ()):
        free = reported.get(each, 0)
        if free > most:
            most = free
    return most

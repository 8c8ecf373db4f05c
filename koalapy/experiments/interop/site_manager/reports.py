"""The reports of free processors between neighbours, which order the targets of delegation (section 4.4).

One site serves a request. A site therefore reports the most that one site can give through it, without the way back. A
child gets reports of the sites below, beside and above; all others get reports of the sites below. A report may be out
of date by one matchmaking cycle per link.
"""

from koalapy.experiments.interop.site_manager.messages import FreeReported, ReportFree
from koalapy.experiments.interop.site_manager.site import Site
from koalapy.model.units import Instant


def on_free_reported(site: Site, now: Instant, event: FreeReported) -> None:
    """Note a neighbour's report."""
    if not site.settings.reports:
        return
    if event.sender in site.settings.neighbours and site.reported.get(event.sender) != event.processors:
        site.reported[event.sender] = event.processors
        site.match_needed |= site.connects  # to report it to others


def report_free(site: Site) -> None:
    """Report to each neighbour whose last report is no longer correct."""
    if not site.settings.reports:
        return
    for name in site.settings.neighbours:
        free = free_through(site, name)
        if site.last_reported.get(name) != free:
            site.last_reported[name] = free
            site.commands.append(ReportFree(name, free))


def free_through(site: Site, name: str) -> int:
    """Return the most processors that one site, this one or one behind it, could give to the neighbour."""
    most, reported = site.available, site.reported
    for each in site.reachable_through.get(name, ()):
        free = reported.get(each, 0)
        if free > most:
            most = free
    return most

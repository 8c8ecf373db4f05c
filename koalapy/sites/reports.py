"""What neighbours tell each other of free processors, so that targets can be ordered by it (section 4.4).

A request is served by one site, so each is told of the site with most to spare among those that can be had through this
one without going back: a child of what lies below, beside and above, all others of what lies below. What is told may be
old by a matchmaking cycle a link.
"""

from koalapy.model.units import Instant
from koalapy.sites.network import Relation
from koalapy.sites.site import Site
from koalapy.sites.words import FreeReported, ReportFree


def reported(site: Site, now: Instant, event: FreeReported) -> None:
    if event.sender in site.settings.neighbours and site.reported.get(event.sender) != event.processors:
        site.reported[event.sender] = event.processors
        site.stirred |= _passes_on(site, event.sender)


def tell(site: Site) -> None:
    """Whoever was told something else before."""
    for name in site.settings.neighbours:
        free = through(site, name)
        if site.told.get(name) != free:
            site.told[name] = free
            site.commands.append(ReportFree(name, free))


def through(site: Site, name: str) -> int:
    """The most that this neighbour could have of one site, this one or one behind it."""
    up = name in site.settings.neighbours and _is(site, name, Relation.CHILD)
    behind = [each for each in site.settings.neighbours if each != name and (up or _is(site, each, Relation.CHILD))]
    return max(0, site.spare, *(site.reported.get(each, 0) for each in behind))


def _passes_on(site: Site, name: str) -> bool:
    """Whether what it says changes what others are told."""
    return _is(site, name, Relation.CHILD) or Relation.CHILD in site.settings.neighbours.values()


def _is(site: Site, name: str, relation: Relation) -> bool:
    return site.settings.neighbours[name] is relation

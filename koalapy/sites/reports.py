"""What neighbours tell each other of free processors, so that targets can be ordered by it (section 4.4).

Each is told what could be had through this site without going back to itself: of a parent, what lies below and beside
and above; of a sibling and of a child, what lies below. What is told may be old by a matchmaking cycle a link.
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
    for name, relation in site.settings.neighbours.items():
        free = _through(site, name, relation)
        if site.told.get(name, 0) != free:
            site.told[name] = free
            site.commands.append(ReportFree(name, free))


def _through(site: Site, name: str, relation: Relation) -> int:
    below = site.free + sum(_said(site, each) for each in site.settings.neighbours if _is(site, each, Relation.CHILD))
    if relation is not Relation.CHILD:
        return below
    beside = sum(_said(site, each) for each in site.settings.neighbours if not _is(site, each, Relation.CHILD))
    return below - _said(site, name) + beside


def _passes_on(site: Site, name: str) -> bool:
    """Whether what it says changes what others are told."""
    return _is(site, name, Relation.CHILD) or Relation.CHILD in site.settings.neighbours.values()


def _said(site: Site, name: str) -> int:
    return site.reported.get(name, 0)


def _is(site: Site, name: str, relation: Relation) -> bool:
    return site.settings.neighbours[name] is relation

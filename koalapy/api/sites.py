"""This site of the HTTP API: its neighbours, the lines by which sites become neighbours, and its key."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query

from koalapy.answers.koalad import KoaladFacts
from koalapy.answers.sites import (
    LineAnswer,
    LinesAnswer,
    NeighbourSite,
    Requests,
    SiteCheckAnswer,
    SiteLine,
    SitesAnswer,
)
from koalapy.api.bodies import JoinBody
from koalapy.config.site import Invitation
from koalapy.model.errors import RequestError
from koalapy.model.neighbour import LinkCounts, Relation, RequestCounts
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.views.fields import optional_instant, reason

if TYPE_CHECKING:
    from koalapy.runtime.sites.changes import SiteChanges
    from koalapy.runtime.sites.links import NeighbourState
    from koalapy.runtime.sites.streams import Measured

Facts = Callable[[], KoaladFacts]


def add_sites(app: FastAPI, changes: "SiteChanges | None", facts: Facts) -> None:
    """Add the endpoints of neighbouring sites. `changes`: None for a grid that is no site."""

    def own() -> "SiteChanges":
        if changes is None:
            message = f"This grid is no site: {facts()['grid_file']} has no section `site`."
            advice = "Write `site: {name: NAME}` there, run `koala sites init`, and start koalad anew."
            raise RequestError("no_site", message, advice)
        return changes

    @app.get("/v1/sites")
    def sites() -> SitesAnswer:
        """List the neighbours, and the connections that were refused."""
        return _sites(own())

    @app.get("/v1/sites/invitation")
    def invitation(neighbour: str, relation: Relation = Relation.SIBLING, url: str | None = None) -> LineAnswer:
        """Make the line with which a site joins this one. `relation`: what it is to this site."""
        return _line_answer(own().invitation(neighbour, relation, url))

    @app.post("/v1/sites/neighbours")
    def join(body: JoinBody) -> LineAnswer:
        """Make a site a neighbour by its line, and return the line to answer with. It is kept over restarts."""
        return _line_answer(own().join(body.line, body.replace))

    @app.delete("/v1/sites/neighbours/{neighbour}")
    def remove(neighbour: str) -> SitesAnswer:
        """End the link with a neighbour, and forget what is known of it."""
        own().remove(neighbour)
        return _sites(own())

    @app.post("/v1/sites/neighbours/{neighbour}/check")
    def check(neighbour: str, size: Annotated[int, Query(ge=1, le=1 << 34)] = 16 << 20) -> SiteCheckAnswer:
        """Send this many bytes to a connected neighbour, and measure the link."""
        return _site_check(neighbour, own().links.measure(neighbour, size))

    @app.post("/v1/sites/key")
    def rotate() -> LinesAnswer:
        """Replace this site's key, and return the line that each neighbour has to join then."""
        return {"schema": "koala.site_lines/1", "lines": [_line(each) for each in own().rotate()]}


def _sites(changes: "SiteChanges") -> SitesAnswer:
    links = changes.links
    identity = links.identity()
    expires_at = Instant(round(identity.certificate.not_valid_after_utc.timestamp()) * SECOND)
    return {
        "schema": "koala.sites/1",
        "site": {
            "name": links.site.name,
            "pin": identity.pin,
            "port": links.port,
            "expires_at": format_instant(expires_at),
        },
        "neighbours": [_neighbour(each, changes.is_of_file(each.name)) for each in links.states()],
        "refused": [
            {
                "kind": each.kind,
                "count": each.count,
                "last_address": each.address,
                "last_at": format_instant(each.at),
                "sentence": each.sentence,
            }
            for each in links.refused()
        ],
    }


def _neighbour(found: "NeighbourState", of_file: bool) -> NeighbourSite:
    record, status = found.record, found.status
    counts = LinkCounts() if record is None else record.counts
    return {
        "name": found.name,
        "relation": found.relation.value,
        "url": found.address.url,
        "pin": found.address.pins[0],
        "state": status.state,
        "reason": None if status.reason is None else reason(status.reason),
        "version": status.version,
        "free": None if record is None else record.free,
        "reported_at": None if record is None else optional_instant(record.reported_at),
        "sent_free": None if record is None else record.sent_free,
        "lent": found.lent,
        "borrowed": found.borrowed,
        "ours": _requests(counts.ours),
        "theirs": _requests(counts.theirs),
        "misbehaved": dict(counts.misbehaved),
        "added_by_command": not of_file,
    }


def _requests(found: RequestCounts) -> Requests:
    return {
        "asked": found.asked,
        "granted": found.granted,
        "refused": dict(found.refused),
        "last_refusal": None if found.last_refusal is None else reason(found.last_refusal),
    }


def _line_answer(invitation: Invitation) -> LineAnswer:
    return {"schema": "koala.site_line/1", "invitation": _line(invitation)}


def _line(invitation: Invitation) -> SiteLine:
    return {"site": invitation.site, "neighbour": invitation.guest, "line": invitation.line}


def _site_check(neighbour: str, found: "Measured") -> SiteCheckAnswer:
    return {
        "schema": "koala.site_check/1",
        "neighbour": neighbour,
        "round_trip_s": round(found.round_trip_s, 6),
        "busy_round_trip_s": round(found.busy_round_trip_s, 6),
        "bytes": found.size,
        "seconds": round(found.seconds, 6),
    }

"""Documents of this site, its neighbours, and the lines by which sites become neighbours."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from koalapy import answers
from koalapy.config.site import Invitation
from koalapy.model.neighbour import LinkCounts, RequestCounts
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.views.fields import optional_instant, reason

if TYPE_CHECKING:
    from koalapy.runtime.sites.changes import SiteChanges
    from koalapy.runtime.sites.links import NeighbourState
    from koalapy.runtime.sites.streams import Measured


def sites(changes: "SiteChanges") -> answers.SitesAnswer:
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
        "neighbours": [_neighbour(each, changes.is_of_file(each.name)) for each in links.neighbours()],
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


def _neighbour(found: "NeighbourState", of_file: bool) -> answers.NeighbourSite:
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


def _requests(found: RequestCounts) -> answers.Requests:
    return {
        "asked": found.asked,
        "granted": found.granted,
        "refused": dict(found.refused),
        "last_refusal": None if found.last_refusal is None else reason(found.last_refusal),
    }


def line(invitation: Invitation) -> answers.LineAnswer:
    return {"schema": "koala.site_line/1", "invitation": _line(invitation)}


def lines(invitations: Iterable[Invitation]) -> answers.LinesAnswer:
    return {"schema": "koala.site_lines/1", "lines": [_line(each) for each in invitations]}


def _line(invitation: Invitation) -> answers.SiteLine:
    return {"site": invitation.site, "neighbour": invitation.guest, "line": invitation.line}


def site_check(neighbour: str, found: "Measured") -> answers.SiteCheckAnswer:
    return {
        "schema": "koala.site_check/1",
        "neighbour": neighbour,
        "round_trip_s": round(found.round_trip_s, 6),
        "busy_round_trip_s": round(found.busy_round_trip_s, 6),
        "bytes": found.size,
        "seconds": round(found.seconds, 6),
    }

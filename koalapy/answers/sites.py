"""This site, its neighbours, and the lines by which sites become neighbours."""

from typing import Literal

from typing_extensions import TypedDict

from koalapy.answers.errors import Reason
from koalapy.answers.fields import Instant


class OwnSite(TypedDict):
    """This site, as its neighbours know it."""

    name: str
    pin: str
    """Of its key."""
    port: int | None
    """On which it listens; null if it only dials."""
    expires_at: Instant
    """The end of its certificate, which koalad renews."""


class Requests(TypedDict):
    """Requests for leases in one direction, since the neighbour joined."""

    asked: int
    granted: int
    refused: dict[str, int]
    """By the code of the reason."""
    last_refusal: Reason | None


class NeighbourSite(TypedDict):
    """A neighbour. Numbers are processors."""

    name: str
    relation: Literal["parent", "child", "sibling"]
    """What it is to this site."""
    url: str | None
    """Null if it has to dial."""
    pin: str
    state: Literal["connected", "connecting", "unreachable"]
    reason: Reason | None
    """Why it is not connected."""
    version: str
    """Of koalapy there; empty while it is not connected."""
    free: int | None
    """The most processors that could be had there, as it has reported last; null before its first report."""
    reported_at: Instant | None
    sent_free: int | None
    """The most processors that it could have here, as this site has reported last."""
    lent: int
    """Processors that it has of this site now."""
    borrowed: int
    """Processors that this site has of it now."""
    ours: Requests
    """Of this site to the neighbour."""
    theirs: Requests
    """Of the neighbour here."""
    misbehaved: dict[str, int]
    """What it should not have done, since it joined, by kind."""
    added_by_command: bool
    """The grid file does not have it."""


class RefusedConnections(TypedDict):
    """The connections that were refused for one reason since koalad's start."""

    kind: str
    count: int
    last_address: str
    last_at: Instant
    sentence: str
    """Why the last one was refused."""


class SitesAnswer(TypedDict):
    """This site with its neighbours."""

    schema: Literal["koala.sites/1"]
    site: OwnSite
    neighbours: list[NeighbourSite]
    refused: list[RefusedConnections]


class SiteLine(TypedDict):
    """The line with which a site joins another one. It has no secret in it."""

    site: str
    """The site that it is of."""
    neighbour: str
    """The site that it is for."""
    line: str


class LineAnswer(TypedDict):
    """A line for one neighbour."""

    schema: Literal["koala.site_line/1"]
    invitation: SiteLine


class LinesAnswer(TypedDict):
    """A line for each neighbour."""

    schema: Literal["koala.site_lines/1"]
    lines: list[SiteLine]


class SiteCheckAnswer(TypedDict):
    """The figures of a link to a neighbour."""

    schema: Literal["koala.site_check/1"]
    neighbour: str
    round_trip_s: float
    """Of a message, while nothing else was sent."""
    busy_round_trip_s: float
    """Of a message amid the bytes."""
    bytes: int
    """That were sent there."""
    seconds: float
    """Until the neighbour had consumed them all."""

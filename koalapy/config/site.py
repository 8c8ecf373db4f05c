"""The grid file's section `site`, and the line by which two people make their sites neighbours."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from koalapy.config.hours import parse_hours
from koalapy.config.maintenance import never
from koalapy.config.scavenging import Hours
from koalapy.config.values import File, GridName, VisibleDirectory, check_names_differ, is_name, registered_word
from koalapy.model.errors import RequestError
from koalapy.model.lease import (
    ASK_AGAIN,
    BORROW_AFTER,
    DTTL,
    LEASE_IDLE,
    LONGEST_LEASE,
    LOST_AFTER,
    MOST_LINKS,
    PILOT,
    REQUESTS_PER_MINUTE,
    REVOKE_GRACE,
    SHORTEST_LEASE,
    RevokeFor,
)
from koalapy.model.neighbour import Relation
from koalapy.model.request import DEFAULT_PRIORITY, LOWEST_PRIORITY, Isolate
from koalapy.model.sent import MOST_RECEIVED, RunOption
from koalapy.model.textfile.document import Document, Plain
from koalapy.model.textfile.fields import (
    Between,
    Flag,
    Line,
    Number,
    Positive,
    Section,
    Size,
    Span,
    as_line,
    as_list,
    as_mapping,
    lasting,
    one_of,
    wrong,
)
from koalapy.model.textfile.validation import validate
from koalapy.model.textfile.words import shown
from koalapy.model.units import SECOND, Duration

SITE_POLICIES = ("delegation", "targets", "dispatching")  # the groups of their entry points
_NAME = WithJsonSchema({"type": "string"})  # of a registered policy
_PIN = re.compile(r"sha256:[0-9a-f]{64}")
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9.-]+)):(?P<port>\d{1,5})", re.ASCII)
_LINE = "koala-site/1"
_HIGHEST_PORT = 65535


class Isolation(StrEnum):
    """How this account is hidden from the programs of jobs that neighbours send."""

    NONE = "none"


class HostPort(NamedTuple):
    host: str
    port: int


def host_port(address: str) -> HostPort | None:
    """Return the parts of `HOST:PORT` or `[ADDRESS]:PORT`; None for another text. Port 0 is any free one."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > _HIGHEST_PORT:
        return None
    return HostPort(match["six"] or match["host"], int(match["port"]))


def _listen(text: str) -> str:
    if host_port(text) is None:
        raise wrong(f"is {shown(text)}, no address to listen on", 'Write one such as "0.0.0.0:7443".')
    return text


def _url(text: str) -> str:
    address = text.removeprefix("https://").rstrip("/")
    found = host_port(address)
    if not text.startswith("https://") or found is None or not found.port:
        raise wrong(f"is {shown(text)}, no address of a site", "Write one such as https://lyon.example:7443.")
    return f"https://{address}"


def _pin(value: object) -> str:
    text = as_line(value)
    if not _PIN.fullmatch(text):
        what = f"is {shown(text)}, no pin"
        raise wrong(what, "Write sha256: and 64 hexadecimal digits, as `koala sites invite` prints them.", "bad_pin")
    return text


Url = Annotated[Line, AfterValidator(_url)]
Pin = Annotated[str, BeforeValidator(_pin), WithJsonSchema({"type": "string", "pattern": f"^{_PIN.pattern}$"})]


def _one_or_more(value: object) -> object:
    """Return a list: that of the file, or one of the single text that it has."""
    return as_list([value] if isinstance(value, str) else value)


def _some_time(hours: tuple[str, ...]) -> tuple[str, ...]:
    for each in hours:
        if never(parse_hours(each)):
            raise wrong(f"has {shown(each)}, which no month has", "Write a day that its months have.")
    return hours


_HOURS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
LendingHours = Annotated[
    tuple[Hours, ...],
    Field(strict=False),
    BeforeValidator(_one_or_more),
    AfterValidator(_some_time),
    WithJsonSchema(_HOURS),
]


class Lending(Section):
    """The processors that this site lends to neighbours."""

    to: Annotated[tuple[GridName, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        description="the neighbours that may borrow; others get nothing"
    )
    processors: Positive = Field(description="lent at a time at most")
    clusters: Annotated[tuple[GridName, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        default=(), description="whose processors; those of all clusters"
    )
    walltime: Annotated[Span, lasting(SHORTEST_LEASE)] = Field(default=LONGEST_LEASE, description="the longest lease")
    lost_after: Annotated[Span, lasting(SHORTEST_LEASE)] = Field(
        default=LOST_AFTER, description="a lease ends once its borrower was out of reach for so long"
    )
    pass_on: Flag = Field(
        default=False, description="requests that cannot be served here go on to the other neighbours"
    )
    strangers: Flag = Field(
        default=False, description="requests that a neighbour passes on for another site are served too"
    )
    requests_per_minute: Positive = Field(
        default=REQUESTS_PER_MINUTE, description="of one neighbour; it rejects those beyond that"
    )
    isolation: Annotated[Isolate, one_of(Isolate)] = Field(
        default=Isolate.AUTO,
        description="how this account is hidden from borrowers' programs; none: they may do what you may",
    )
    visible: Annotated[tuple[VisibleDirectory, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        default=(), description="directories that they see read-only, beside those of the system"
    )
    revoke_for: Annotated[RevokeFor, one_of(RevokeFor)] = Field(
        default=RevokeFor.OWN,
        description="the waiting jobs for which leases are taken back; local: others' jobs on these clusters too",
    )
    grace: Span = Field(default=REVOKE_GRACE, description="the notice that the borrower is given then")
    hours: LendingHours = Field(default=(), description="cron fields of the minutes in which leases may last; always")
    disk: Size | None = Field(default=None, description="what a lease may write on its cluster; with more it ends")


class Running(Section):
    """The neighbours whose jobs this site runs, and on which terms."""

    sites: Annotated[tuple[GridName, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        description="the neighbours that may send jobs; those of others are refused"
    )
    processors: Positive = Field(description="of a component at most")
    isolation: Annotated[Isolation, one_of(Isolation)] = Field(
        description="how this account is hidden from their programs; none: they may do what you may"
    )
    walltime: Annotated[Span, lasting(SHORTEST_LEASE)] = Field(
        default=LONGEST_LEASE, description="how long a program may run"
    )
    jobs: Positive = Field(default=MOST_RECEIVED, description="how many are run at a time, those of flows too")
    priority: Annotated[Number, Between(0, LOWEST_PRIORITY)] = Field(
        default=DEFAULT_PRIORITY, description="no such job goes before this priority; lower goes first"
    )
    options: Annotated[
        tuple[Annotated[RunOption, one_of(RunOption)], ...], Field(strict=False), BeforeValidator(as_list)
    ] = Field(default=(), description="further keys that their components may have, as `gpus`; others are refused")


class Borrowing(Section):
    """When neighbours are asked for processors."""

    after: Span = Field(default=BORROW_AFTER, description="a job that does not fit has waited for so long")
    processors: Positive | None = Field(default=None, description="borrowed at a time at most")
    idle: Span = Field(default=LEASE_IDLE, description="a lease is returned once nothing ran on it for so long")
    again: Annotated[Span, lasting(SECOND)] = Field(
        default=ASK_AGAIN, description="a neighbour that refused a job is asked again after so long"
    )
    networks: Annotated[dict[GridName, GridName], BeforeValidator(as_mapping)] = Field(
        default_factory=dict,
        description="by neighbour the network of this grid whose nodes reach that neighbour's, and are reached by them",
    )
    sweeps: Flag = Field(default=False, description="for sweeps that find no idle nodes too, after all jobs")


class Delegating(Section):
    """How requests go from site to site."""

    policy: Annotated[str, registered_word("delegation", "delegation policy"), _NAME] = Field(
        default="fcfs", description="whose request goes first"
    )
    targets: Annotated[str, registered_word("targets", "target policy"), _NAME] = Field(
        default="nearest", description="which neighbour is asked first"
    )
    dttl: Annotated[Number, Between(1, MOST_LINKS)] = Field(
        default=DTTL, description="over how many links a request may go"
    )


class Matchmaking(Section):
    """How neighbours' requests are served."""

    policy: Annotated[str, registered_word("dispatching", "dispatching policy"), _NAME] = Field(
        default="fcfs", description="whose request is served first"
    )
    interval: Span = Field(default=Duration(0), description="requests are collected for so long before they are served")


class Neighbour(Section):
    """A site that this one is linked with."""

    relation: Annotated[Relation, one_of(Relation)] = Field(description="what it is to this site")
    url: Url | None = Field(default=None, description="where it listens; without one it has to dial")
    pin: Pin = Field(description="of its key, as its `koala sites invite` prints it")


def _neighbours(neighbours: Mapping[str, Neighbour]) -> Mapping[str, Neighbour]:
    check_names_differ(neighbours)
    seen: dict[str, str] = {}
    for name, neighbour in neighbours.items():
        if name.casefold() == PILOT:
            raise wrong("is what clusters of pilots are called", "Agree on another name.", at=(name,))
        if (other := seen.setdefault(neighbour.pin, name)) != name:
            raise wrong(f"has the pin of {other}", "Each site has a key of its own.", "duplicate_pin", at=(name, "pin"))
    return neighbours


class Site(Section):
    """A site: a koalad that is linked with those of other people."""

    name: GridName = Field(description="this site's name, which its neighbours know")
    listen: Annotated[Line, AfterValidator(_listen)] | None = Field(
        default=None, description="address for neighbours that dial; a site without one only dials"
    )
    certificate: File | None = Field(
        default=None, description="file with its key and certificate; site.pem in koalad's state directory"
    )
    neighbours: Annotated[dict[GridName, Neighbour], BeforeValidator(as_mapping), AfterValidator(_neighbours)] = Field(
        default_factory=dict, description="the neighbours, by name; `koala sites join` adds others"
    )

    lend: Lending | None = Field(default=None, description="what neighbours may borrow; without it nothing is lent")
    borrow: Borrowing | None = Field(default=None, description="when neighbours are asked; without it never")
    run: Running | None = Field(default=None, description="whose jobs are run here; without it nobody's")
    delegation: Delegating = Delegating()
    matchmaking: Matchmaking = Matchmaking()

    @model_validator(mode="after")
    def _check_neighbours(self) -> Self:
        if self.name.casefold() == PILOT:
            raise wrong("is what clusters of pilots are called", "Choose another name.", at=("name",))
        for name, neighbour in self.neighbours.items():
            if name.casefold() == self.name.casefold():
                raise wrong("is this site's own name", "A site is no neighbour of its own.", at=("neighbours", name))
            if neighbour.url is None and self.listen is None:
                what = "has no url, and this site has no listen: neither could dial the other"
                raise wrong(what, "Give one of the two.", at=("neighbours", name))
        return self

    @property
    def listens_on(self) -> HostPort | None:
        return None if self.listen is None else host_port(self.listen)


def with_neighbours(site: Site, values: Mapping[str, Mapping[str, str]], source: str) -> Site:
    """Return the site with these neighbours too, each with its values by key, as a grid file has them.

    Raises RequestError, which names `source`.
    """
    written: dict[str, Any] = {"name": Plain(site.name)}
    if site.listen is not None:
        written["listen"] = site.listen
    known = {name: each.model_dump(mode="json", exclude_none=True) for name, each in site.neighbours.items()}
    added = {name: dict(each) for name, each in values.items() if name not in known}
    found = validate(Site, Document(source, {**written, "neighbours": {**known, **added}}), {})
    return site.model_copy(update={"neighbours": found.neighbours})


class Invitation(NamedTuple):
    """The facts by which another site makes this one its neighbour. None of them is a secret.

    `site`, `url`, `pin`: the inviting site's. `guest`: the name that it knows the other site by. `relation`: what the
    inviting site is to the other one.
    """

    site: str
    guest: str
    relation: Relation
    pin: str
    url: str | None

    @property
    def line(self) -> str:
        """The invitation as one word, which no shell changes."""
        parts = [_LINE, f"site={self.site}", f"for={self.guest}", f"relation={self.relation}", f"pin={self.pin}"]
        return ",".join([*parts, f"url={self.url}"] if self.url else parts)

    @property
    def values(self) -> dict[str, str]:
        """The inviting site's values by key, as the section `neighbours` of the other site's grid file has them."""
        known = {"relation": str(self.relation), "pin": self.pin}
        return known | {"url": self.url} if self.url else known


def read_invitation(line: str) -> Invitation:
    """Return the invitation of a line. Raises RequestError for a line that is none, or that was cut."""
    first, *pairs = line.strip().split(",")
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    relation = found.get("relation", "")
    names = found.get("site", ""), found.get("for", "")
    whole = len(found) == len(pairs) and {"site", "for", "relation", "pin"} <= found.keys() <= _KEYS
    if first != _LINE or not whole or relation not in list(Relation) or not all(map(is_name, names)):
        advice = "Copy the whole line that `koala sites invite` or `koala sites join` prints at the other site."
        raise RequestError("bad_invitation", f"{shown(line[:120])} is no line of a site.", advice)
    return Invitation(names[0], names[1], Relation(relation), found["pin"], found.get("url"))


_KEYS = frozenset({"site", "for", "relation", "pin", "url"})

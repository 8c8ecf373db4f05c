"""`koala sites`: this site's key, its neighbours, and the lines by which two people link their sites."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json, table
from koalapy.cli.times import shown
from koalapy.client import Grid

if TYPE_CHECKING:
    from koalapy.answers.sites import NeighbourSite, Requests, SiteLine, SitesAnswer

app = typer.Typer()
sites = options.group(
    app, "sites", "Show the neighbours of this site, link it with others, or replace its key.", alone=True
)

_COLUMNS = ("NEIGHBOUR", "RELATION", "STATE", "FREE THERE", "SENT", "LENT", "BORROWED", "ADDRESS", "REASON")
Neighbour = Annotated[str, typer.Argument(metavar="NAME", help="A neighbouring site.")]


@sites.callback()
def show(ctx: typer.Context, grid: options.Grid = None, json: options.Json = False) -> None:
    """Show this site and its neighbours: state, processors to be had each way, and refused connections."""
    if ctx.invoked_subcommand is not None:
        return
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.sites()
    if json:
        print_json(found)
    else:
        _print_sites(found)


@sites.command("init", short_help="Make this site's key.")
def init(grid: options.Grid = None, json: options.Json = False) -> None:
    """Make this site's key and a certificate for it, and print the pin by which neighbours know it.

    The grid file names the site: `site: {name: NAME}`. koalad need not run.
    """
    with errors_reported():
        document = _make_key(grid)
    if json:
        return print_json(document)
    out.print(f"The key of site {document['site']} is in {document['certificate']}; keep it to yourself.")
    out.print(f"Its pin is {document['pin']}")
    out.print("Next: `koala up`, then `koala sites invite NEIGHBOUR`.")
    return None


def _make_key(grid: str | None) -> dict[str, Any]:
    """Make the key, and return the document koala.site_key/1. Raises KoalaError."""
    from koalapy.common.extras import need_extra
    from koalapy.common.locations import Locations, certificate_of
    from koalapy.koalad.gridfile import read_grid_file
    from koalapy.model.errors import RequestError

    need_extra("sites", "A site")
    from koalapy.runtime.sites.certificate import make_identity, write_identity

    locations = Locations.of(grid)
    path = locations.grid_file
    if path is None:
        message = f"There is no grid file {locations.grid}."
        raise RequestError("no_grid_file", message, "Give the path of one with --grid.")
    site = read_grid_file(path).site
    if site is None:
        raise RequestError("no_site", f"{path} has no section `site`.", "Write `site: {name: NAME}` there.")
    locations.make()
    certificate, identity = certificate_of(site.certificate, locations.state), make_identity(site.name)
    write_identity(certificate, identity)
    return {
        "schema": "koala.site_key/1",
        "site": site.name,
        "certificate": str(certificate),
        "pin": identity.pin,
    }


@sites.command("invite", short_help="Print the line with which another site joins this one.")
def invite(
    name: Annotated[str, typer.Argument(metavar="NEIGHBOUR", help="The name of the site that is to join this one.")],
    relation: Annotated[
        str, typer.Option("--relation", metavar="KIND", help="What it is to this site: sibling, parent or child.")
    ] = "sibling",
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="URL", help="Where this site is reached, such as https://delft.example:7443."
        ),
    ] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Print the line with which the people of another site join this one. It has no secret in it.

    Send it by a way on which nobody can change it unnoticed.
    """
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.invite_site(name, relation=relation, url=address)
    if json:
        return print_json(found)
    out.print(f"At {name}: koala sites join {found['invitation']['line']}")
    out.print("Then join the line that it answers with here.")
    return None


@sites.command("join", short_help="Make another site a neighbour.")
def join(
    line: Annotated[str, typer.Argument(metavar="LINE", help="What `koala sites invite` printed at the other site.")],
    replace: Annotated[bool, typer.Option("--replace", help="Take its key in place of the one that is known.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Make another site a neighbour of this one, and print the line that it has to join in turn."""
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.join_site(line, replace=replace)
    if json:
        return print_json(found)
    other = found["invitation"]["neighbour"]
    out.print(f"{other} is a neighbour now; `koala sites remove {other}` ends it.")
    _print_line(found["invitation"])
    return None


@sites.command("remove", short_help="End the link with a neighbour.")
def remove(name: Neighbour, grid: options.Grid = None, json: options.Json = False) -> None:
    """End the link with a neighbour, and forget what is known of it. Its people see that it does not connect."""
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.remove_site(name)
    if json:
        return print_json(found)
    out.print(f"{name} is no neighbour any more.")
    return None


@sites.command("check", short_help="Measure the link to a neighbour.")
def check(
    name: Neighbour,
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="Bytes to send, such as 16M or 1G.")] = "16M",
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Send bytes to a connected neighbour, which drops them, and show the round trip and the rate of the link."""
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.check_site(name, size=_bytes(size))
    if json:
        return print_json(found)
    rate = found["bytes"] / found["seconds"] / 1e6
    out.print(f"A message to {name} and back takes {1e3 * found['round_trip_s']:.1f} ms.")
    out.print(
        f"{found['bytes']} bytes took {found['seconds']:.2f} s, which is {rate:.1f} MB/s; "
        f"a message amid them took {1e3 * found['busy_round_trip_s']:.1f} ms."
    )
    return None


def _bytes(text: str) -> int:
    """Return the bytes of a size such as 16M. Raises RequestError."""
    from koalapy.model.errors import RequestError
    from koalapy.model.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise RequestError("bad_size", f"--size {text} is no size.", "Write one such as 512K, 16M or 1G.") from error


@sites.command("rotate", short_help="Replace this site's key.")
def rotate(grid: options.Grid = None, json: options.Json = False) -> None:
    """Replace this site's key at once, and print the line that each neighbour has to join with --replace.

    A neighbour that has not done so yet does not connect; no message is lost meanwhile.
    """
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.rotate_site()
    if json:
        return print_json(found)
    out.print("This site has a new key.")
    for each in found["lines"]:
        _print_line(each, "--replace ")
    return None


def _print_line(line: "SiteLine", option: str = "") -> None:
    out.print(f"At {line['neighbour']}, if it has not: koala sites join {option}{line['line']}")


def _print_sites(found: "SitesAnswer") -> None:
    own = found["site"]
    where = "only dials" if own["port"] is None else f"listens on port {own['port']}"
    out.print(f"site {own['name']} {where}; pin {own['pin']}")
    if not found["neighbours"]:
        out.print("It has no neighbours; `koala sites invite NAME` prints a line for one.")
    else:
        rows = [
            [
                each["name"],
                each["relation"],
                each["state"],
                "" if each["free"] is None else str(each["free"]),
                "" if each["sent_free"] is None else str(each["sent_free"]),
                each["lent"],
                each["borrowed"],
                each["url"] or "it dials",
                "" if each["reason"] is None else each["reason"]["message"],
            ]
            for each in found["neighbours"]
        ]
        table(_COLUMNS, rows)
        for each in found["neighbours"]:
            _print_counts(each)
    for refused in found["refused"]:
        last = f"last at {shown(refused['last_at'])} from {refused['last_address']}"
        out.print(f"refused {refused['count']} ({refused['kind']}), {last}: {refused['sentence']}")


def _print_counts(neighbour: "NeighbourSite") -> None:
    """Print the requests both ways, and what the neighbour should not have done; nothing if there was none."""
    name = neighbour["name"]
    for words, requests in ((f"{name} was asked", neighbour["ours"]), (f"{name} has asked", neighbour["theirs"])):
        if requests["asked"]:
            times = "once" if requests["asked"] == 1 else f"{requests['asked']} times"
            out.print(f"{words} {times}: {requests['granted']} granted, {_refusals(requests)}")
    if neighbour["misbehaved"]:
        out.print(f"{name} misbehaved: {_counted(neighbour['misbehaved'])}")


def _refusals(requests: "Requests") -> str:
    refused, last = requests["refused"], requests["last_refusal"]
    if not refused or last is None:
        return "0 refused"
    return f"{sum(refused.values())} refused ({_counted(refused)}); the last: {last['message']}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())

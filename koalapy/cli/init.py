"""`koala init`: writes a grid file from a person's answers and from an examination of the head nodes."""

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from koalapy_adapters.connections.ssh_config import NO_FILE

from koalapy.cli.login import AtTerminal
from koalapy.cli.options import Json
from koalapy.cli.output import FAILED, errors, errors_reported, print_error, print_json, print_message
from koalapy.common.locations import default_grid_file
from koalapy.common.registry import registered
from koalapy.config import GridFile, read_grid
from koalapy.config.connect import ConnectError, parse_connect
from koalapy.config.schema import Cluster
from koalapy.config.values import LONGEST_NAME, is_name
from koalapy.init.choosing import Entry, entry, proposed_name
from koalapy.init.ssh_hosts import ssh_hosts
from koalapy.init.survey import HeadSurvey, survey_head
from koalapy.init.writing import text, write
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import visible
from koalapy.runtime.cluster_link.connect import connection_of

app = typer.Typer()
Answer = TypeVar("Answer")

_HERE = "local:"
_AT_A_TIME = 16

GridFileOption = Annotated[Path | None, typer.Option("--grid", "-g", metavar="FILE", help="The file to write.")]
Clusters = Annotated[
    list[str] | None,
    typer.Option("--cluster", metavar="NAME=CONNECT", help="A cluster, such as vu=ssh://fs0. May be repeated."),
]
GridName = Annotated[str | None, typer.Option("--name", help="The grid's name; by default that of its file.")]
Identity = Annotated[str | None, typer.Option(metavar="FILE", help="Private key for all ssh:// clusters.")]
KnownHosts = Annotated[str | None, typer.Option(metavar="FILE", help="Host keys of all ssh:// clusters.")]
SshConfig = Annotated[
    str | None,
    typer.Option("--ssh-config", metavar="FILE", help="SSH configuration for all ssh:// clusters, as of ssh -F."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; without --cluster, this machine alone.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """A cluster that the person named. `given`: its keys for the grid file."""

    name: str
    connect: str
    given: dict[str, str]


@app.command()
def init(
    grid: GridFileOption = None,
    cluster: Clusters = None,
    name: GridName = None,
    identity: Identity = None,
    known_hosts: KnownHosts = None,
    ssh_config: SshConfig = None,
    yes: Yes = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a grid file: ask for the clusters, and look for the batch systems and queues of their head nodes."""
    with errors_reported(), _interruption_reported():
        path = grid or default_grid_file()
        _check_askable(yes, json, path, force)
        name = name or _grid_name(path, ask=not yes and not cluster)
        _check_name("grid", name)
        keys = {"identity": identity, "known_hosts": known_hosts, "ssh_config": _config_file(ssh_config)}
        given = {key: value for key, value in keys.items() if value}
        inputs = _inputs(cluster or [], given) if cluster or yes else _asked(given)
        surveys = _survey_all(inputs)
        content = _content(name, inputs, surveys)
        written = content is not None and (yes or _confirmed(path, content, force))
        if written and content is not None:
            write(path, content)
    if json:
        print_json(_document(path, written, content, inputs, surveys))
    else:
        _conclude(path, written, content)
    if content is None or any(seen.reason for seen in surveys):
        raise typer.Exit(FAILED)


@contextmanager
def _interruption_reported() -> Iterator[None]:
    """Report that nothing is written if a person interrupts the command, at a question or between two."""
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        print_message("\nNothing is written.")
        raise


# ---- what is wanted


def _check_askable(yes: bool, as_json: bool, path: Path, force: bool) -> None:
    if not yes and (as_json or not sys.stdin.isatty()):
        message = "Standard input is not a terminal."
        raise RequestError("not_a_terminal", message, "Give --yes, and each cluster as --cluster NAME=CONNECT.")
    if yes and path.exists() and not force:
        raise RequestError("file_exists", f"There is a file {path} already.", "Give --force to write over it.")


def _config_file(named: str | None) -> str | None:
    """Return the path as the grid file needs it: absolute. Raises RequestError if there is no such file."""
    if named in (None, NO_FILE):
        return named
    path = Path(str(named)).expanduser().absolute()
    if not path.is_file():
        raise RequestError("no_ssh_config", f"There is no file {path}.", "Give --ssh-config a file, or `none`.")
    return str(path)


def _inputs(clusters: Sequence[str], given: dict[str, str]) -> list[ClusterInput]:
    """Return the clusters of the command line. Raises RequestError for one without a valid connection."""
    inputs: list[ClusterInput] = []
    for named in clusters or [f"here={_HERE}"]:
        name, separator, connect = named.partition("=")
        if not separator:
            name, connect = proposed_name(named, [each.name for each in inputs]), named
        inputs.append(_input(name, connect, given, inputs))
    return inputs


def _input(name: str, connect: str, given: dict[str, str], others: Sequence[ClusterInput]) -> ClusterInput:
    """Return one cluster. Raises RequestError, before any login, also if its name is invalid or taken."""
    kind = _check_connect(connect)
    _check_name("cluster", name)
    if any(name.casefold() == other.name.casefold() for other in others):
        raise RequestError("duplicate_key", f"Two clusters are named {name}.", "Give each a name of its own.")
    return ClusterInput(name, connect, given if kind == "ssh" else {})


def _check_connect(connect: str) -> str:
    """Return the kind of the connection. Raises RequestError if the connection is invalid."""
    try:
        return parse_connect(connect).kind
    except ConnectError as error:
        raise RequestError("bad_connect", f"{connect!r} {error.what}.", error.advice) from error


def _grid_name(path: Path, ask: bool) -> str:
    """Return the grid's name, by default that of the file, since a user's grids need distinct names.

    The default for grid.yaml is `mine`.
    """
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).lstrip("-_")[:LONGEST_NAME]
    proposed = stem if stem and stem != "grid" else "mine"

    def named(name: str) -> str:
        _check_name("grid", name)
        return name

    return _ask("A name for the grid", proposed, named) if ask else proposed


def _ask(question: str, default: str, read: Callable[[str], Answer]) -> Answer:
    """Ask until `read` accepts the answer, and print the error of each answer that it refuses."""
    while True:
        try:
            return read(typer.prompt(question, default=default, err=True))
        except RequestError as error:
            print_error(error)


def _check_name(what: str, name: str) -> None:
    if not is_name(name):
        advice = f"Use letters, digits, - and _, begin with a letter or digit, and have {LONGEST_NAME} or fewer."
        raise RequestError("bad_name", f"{name!r} is not a valid name for a {what}.", advice)


def _asked(given: dict[str, str]) -> list[ClusterInput]:
    """Ask for the head nodes: hosts of the ssh configuration by number, or connections as typed."""
    config = given.get("ssh_config")
    hosts = ssh_hosts(Path(config) if config else None) if config != NO_FILE else []
    for number, host in enumerate(hosts, 1):
        print_message(f"  {number:3} {host}")
    if hosts:
        print_message("These are the hosts of your ssh configuration.")
    print_message(
        "Name the head nodes of your clusters by number, as a host, or as ssh://…, command:… or local: (this machine)."
    )
    print_message("Put blanks between several.")
    inputs: list[ClusterInput] = []
    for connect in _ask("Head nodes", _HERE, lambda line: _connections(line, hosts)):
        name = proposed_name(connect, [each.name for each in inputs])
        read = functools.partial(_input, connect=connect, given=given, others=inputs)
        inputs.append(_ask(f"A name for {visible(connect)}", name, read))
    return inputs


def _connections(line: str, hosts: Sequence[str]) -> list[str]:
    """Return the connections that a line names. Raises RequestError for an invalid word."""
    words = line.replace(",", " ").split() if not line.startswith("command:") else [line]
    found = [_connect(word, hosts) for word in words]
    for connect in found:
        _check_connect(connect)
    return found


def _connect(word: str, hosts: Sequence[str]) -> str:
    if word.isdigit() and 1 <= int(word) <= len(hosts):
        return f"ssh://{hosts[int(word) - 1]}"
    return word if ":" in word else f"ssh://{word}"


# ---- surveys


def _survey_all(inputs: Sequence[ClusterInput]) -> list[HeadSurvey]:
    """Examine the head nodes, several at a time. The messages of their start keep the order of `inputs`."""
    for named in inputs:
        print_message(f"Looking at {named.name} ({named.connect})…")
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        return list(threads.map(_survey_of, inputs))


def _survey_of(named: ClusterInput) -> HeadSurvey:
    seen = survey_head(connection_of(_cluster(named), AtTerminal()))
    if seen.reason is not None:
        print_message(f"{named.name}: {seen.reason}")
    return seen


def _cluster(named: ClusterInput) -> Cluster:
    """Return the cluster with the settings that a login needs."""
    described = {"batch": "local", "connect": named.connect, **named.given}
    grid = {"grid": "survey", "clusters": {named.name: described}}
    return _read(json.dumps(grid)).clusters[named.name]


def _content(grid: str, inputs: Sequence[ClusterInput], surveys: Sequence[HeadSurvey]) -> str | None:
    """Return the grid file's text, which was checked; None if no cluster could be examined."""
    pairs = list(zip(inputs, surveys, strict=True))
    entries: list[Entry] = [
        entry(named.name, named.connect, named.given, seen) for named, seen in pairs if seen.reason is None
    ]
    if not entries:
        return None
    missing = [
        (named.name, {"connect": named.connect, **named.given}, str(seen.reason))
        for named, seen in pairs
        if seen.reason is not None
    ]
    content = text(grid, entries, missing)
    _read(content)
    return content


def _read(content: str) -> GridFile:
    """Parse the text of a grid file. Raises RequestError for invalid names and other errors."""
    return read_grid(content, "the new grid file", list(registered("koalapy.batch_systems")))


# ---- the end


def _confirmed(path: Path, content: str, force: bool) -> bool:
    errors.print(f"\n{content}")
    if path.exists() and not force:
        return typer.confirm(f"Write it over {visible(str(path))}, which is there already?", default=False, err=True)
    return typer.confirm(f"Write it to {visible(str(path))}?", default=True, err=True)


def _conclude(path: Path, written: bool, content: str | None) -> None:
    if written:
        print_message(f"{path} is written. Now see whether all works: koala doctor --grid {path}")
    elif content is None:
        print_message("Nothing is written: no cluster could be looked at.")
    else:
        print_message("Nothing is written.")


def _document(
    path: Path, written: bool, content: str | None, inputs: Sequence[ClusterInput], surveys: Sequence[HeadSurvey]
) -> dict[str, Any]:
    return {
        "schema": "koala.init/1",
        "grid_file": str(path),
        "written": written,
        "text": content,
        "clusters": [
            {
                "cluster": named.name,
                "connect": named.connect,
                "found": seen.survey or None,
                "error": asdict(seen.reason) if seen.reason is not None else None,
            }
            for named, seen in zip(inputs, surveys, strict=True)
        ],
    }

"""Options that several commands share, their completion in a shell, and groups of commands."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from koalapy.client import Grid as Client
    from koalapy.model.units import Instant

GRID_HELP = "Grid file, or the name of a grid whose koalad runs. Default: $KOALA_GRID, else ~/.config/koala/grid.yaml."
_json = False
Answer = TypeVar("Answer")
_LONGEST_KEY = 160  # koalad takes 200, and several files have a suffix each
_COMPLETED_S = 2.0  # a person waits for the completion
_COMPLETED = 200  # the newest jobs
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDS = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the ids of jobs that begin with `incomplete`, the newest first, each with name and state."""
    found = _asked(ctx, lambda koalad: koalad.jobs())
    texts = [(str(job["id"]), f"{job['name']}, {job['state']}") for job in reversed(found)]
    return [each for each in texts if each[0].startswith(incomplete)][:_COMPLETED]


def complete_clusters(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the names of clusters that begin with `incomplete`, each with its batch system."""
    found = _asked(ctx, lambda koalad: koalad.clusters())
    return [(each["name"], each["batch"]) for each in found if each["name"].startswith(incomplete)]


def _asked(ctx: typer.Context, ask: Callable[["Client"], list[Answer]]) -> list[Answer]:
    """Return koalad's answer, or an empty list if it does not answer: a completion shows no errors."""
    from koalapy.client import Grid as Client
    from koalapy.model.errors import KoalaError

    with suppress(KoalaError), Client(ctx.params.get("grid"), timeout=_COMPLETED_S) as koalad:
        return ask(koalad)
    return []


def group(app: typer.Typer, name: str, help: str, *, alone: bool = False) -> typer.Typer:
    """Add a group of commands. Without a command it shows its help, unless it is one `alone` too."""
    found = typer.Typer(help=help, no_args_is_help=not alone, invoke_without_command=alone, rich_markup_mode=None)
    app.add_typer(found, name=name)
    return found


def use_json(wanted: bool) -> bool:
    """Record whether this process answers with a JSON document. Return `wanted`."""
    global _json
    _json = wanted
    return wanted


def is_json_wanted() -> bool:
    return _json


def ids_of(koalad: "Client", texts: Sequence[str]) -> list[int]:
    """Return the ids of jobs that a command line names, each once. A range such as 1-5 names its existing jobs.

    A pilot has its number, so that p1 is 8388608.

    Raises RequestError for a text that is neither a number nor a range, and for a range without a job.
    """
    from koalapy.model.errors import RequestError
    from koalapy.model.identity import launcher_named

    found: dict[int, None] = {}
    for text in texts:
        if (pilot := launcher_named(text)) is not None:
            found[pilot.job] = None
            continue
        match = _IDS.fullmatch(text)
        if match is None:
            raise RequestError("bad_id", f"{text!r} is not a job's id.", "Write ids such as 3, or ranges such as 1-5.")
        if match[2] is None:
            found[int(match[1])] = None
            continue
        first, last = int(match[1]), int(match[2])
        within = [job["id"] for job in koalad.jobs() if first <= job["id"] <= last]
        if not within:
            raise RequestError("no_such_job", f"There are no jobs {text}.", "`koala jobs` lists those there are.")
        found.update(dict.fromkeys(within))
    return list(found)


def overrides_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of `-o KEY=VALUE`, by key. Raises RequestError for a pair without `=`."""
    from koalapy.model.errors import RequestError

    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise RequestError("bad_option", f"{wrong[0]!r} is not KEY=VALUE.", "Write it like -o priority=5.")
    return dict(pair.split("=", 1) for pair in pairs)


def executable_of(name: str) -> tuple[str, list[str]]:
    """Return the executable of a command line, and the files to stage in for it.

    It is a program of the nodes' PATH, an absolute path there, or a file here. Raises RequestError if a named file is
    not here.
    """
    from koalapy.languages.paths import staged_name
    from koalapy.model.errors import RequestError

    if "/" not in name or name.startswith("/"):
        return name, []
    if not Path(name).is_file():
        advice = "Name a program of the nodes' PATH, an absolute path there, or a file here."
        raise RequestError("no_such_file", f"There is no file {name}.", advice)
    return f"./{staged_name(name)}", [name]


def submission_options(
    label: Sequence[str] | None, notify: Sequence[str] | None, notify_on: Sequence[str] | None
) -> dict[str, Any]:
    """Return the arguments of Grid.accept and Grid.check for --label, --notify and --notify-on. Raises RequestError."""
    return {"labels": labels_of(label or ()), "notify": notify_of(notify, notify_on)}


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the labels of a command line. Raises RequestError for one without a value, and for a repeated key."""
    from koalapy.model.errors import RequestError
    from koalapy.model.textfile.words import shown

    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise RequestError(
                "bad_label", f"--label {shown(pair)} is not KEY=VALUE.", "Write --label project=poisson."
            )
        if key in found:
            raise RequestError("duplicate_name", f"--label {shown(key)} is given twice.", "Give each key once.")
        found[key] = value
    return found


def notify_of(recipients: Sequence[str] | None, changes: Sequence[str] | None) -> list[dict[str, Any]] | None:
    """Return entries as a job file has them, of --notify and --notify-on; None if neither is given.

    Raises RequestError for --notify-on alone, for `none` beside another recipient, and for an unfinished quotation.
    """
    import shlex

    from koalapy.model.errors import RequestError

    if not recipients:
        if changes:
            advice = "Write --notify URL, --notify ADDRESS or --notify 'command:PROGRAM ARG…' too."
            raise RequestError("no_recipient", "--notify-on has no --notify beside it.", advice)
        return None
    if "none" in recipients:
        if len(recipients) > 1 or changes:
            message = "--notify none stands beside another --notify or --notify-on."
            raise RequestError("wrong_recipient", message, "Write --notify none alone.")
        return []
    entries: list[dict[str, Any]] = []
    for each in recipients:
        if each.startswith("command:"):
            try:
                entries.append({"command": shlex.split(each.removeprefix("command:"))})
            except ValueError as error:
                message = f"The command of --notify cannot be split into words: {error}."
                raise RequestError("wrong_recipient", message, "Close its quotation.") from error
        else:
            entries.append({"webhook" if "://" in each else "mail": each})
    return [each | ({"on": list(changes)} if changes else {}) for each in entries]


def instant_or_ago(text: str | None, now: "Instant") -> str | None:
    """Return the instant of --since or --until in RFC 3339.

    Raises RequestError unless it is a date, an instant or a duration before now.
    """
    from koalapy.model.errors import RequestError
    from koalapy.model.units import Instant, format_instant, parse_duration, parse_instant

    if text is None:
        return None
    try:
        return format_instant(Instant(now - parse_duration(text)))
    except ValueError:
        pass
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return format_instant(Instant((day - _EPOCH) // timedelta(microseconds=1)))
    except ValueError:
        pass
    try:
        return format_instant(parse_instant(text))
    except ValueError as error:
        message = f"{text!r} is not a date, an instant or a duration."
        raise RequestError("bad_instant", message, "Write it like 2030-01-31, 2030-01-31T12:00:00Z or 7d.") from error


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as 90s. Raises RequestError for a text that is none."""
    from koalapy.model.errors import RequestError
    from koalapy.model.units import SECOND, parse_duration

    try:
        return parse_duration(duration) / SECOND
    except ValueError as error:
        raise RequestError("bad_duration", f"{duration!r} is no duration.", "Write 90s, 10m, 2h or 1d.") from error


def _job_or_pilot(text: str) -> int:
    """Return the number of a job or pilot. Raises BadParameter for any other text."""
    from koalapy.model.identity import launcher_named

    if text.isdecimal():
        return int(text)
    if (pilot := launcher_named(text)) is not None:
        return pilot.job
    raise typer.BadParameter(f"{text!r} is not a job's id. Write an id such as 3, or a pilot such as p12.")


def cluster_names(value: str | list[str] | None) -> str | list[str] | None:
    """Return the value of an option that names clusters. Raises BadParameter if a name is missing.

    That is so in `--on "" -- PROGRAM`, and in `--on -- PROGRAM`, where a script has put nothing.
    """
    names = [value] if isinstance(value, str) else value or []
    if any(name.strip() in ("", "--") for name in names):
        raise typer.BadParameter("The name of the cluster is missing. `koala clusters` lists them.")
    return value


def _bounded_key(key: str | None) -> str | None:
    """Return the key. Raises BadParameter for an empty one, which would mark nothing, and for a long one."""
    if key is not None and not 0 < len(key) <= _LONGEST_KEY:
        raise typer.BadParameter(f"A key has 1 to {_LONGEST_KEY} characters.")
    return key


Grid = Annotated[str | None, typer.Option("--grid", "-g", metavar="FILE|NAME", help=GRID_HELP)]
Json = Annotated[bool, typer.Option("--json", callback=use_json, help="One JSON document on stdout, also for errors.")]
IDS = typer.Argument(metavar="ID…", help="Jobs, such as 3 or 1-5.", autocompletion=complete_jobs)
JobIds = Annotated[list[str], IDS]
JobId = Annotated[int, typer.Argument(metavar="ID", help="A job.", autocompletion=complete_jobs)]
JobOrPilot = Annotated[
    int,
    typer.Argument(
        metavar="ID", help="A job, or a Launcher such as p12.", autocompletion=complete_jobs, parser=_job_or_pilot
    ),
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A label of the job, to find it again; repeat it."),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        metavar="WHOM",
        help="Who is notified of the job's end: a URL, a mail address, 'command:PROGRAM ARG…', or none; repeat it.",
    ),
]
NotifyOn = Annotated[
    list[str] | None,
    typer.Option(
        "--notify-on",
        metavar="CHANGE",
        help="Notify of this only: started, done, failed or cancelled; repeat it. Default: all but started.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="A text for this submission; with the same key again it gives the same job.",
        callback=_bounded_key,
    ),
]
WithLabel = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY[=VALUE]", help="Only jobs with this label; repeat it.")
]
Escape = Annotated[
    str, typer.Option("--escape", metavar="KEY", help="The key that, with d after it, detaches: ^a to ^_, or none.")
]
Reconnect = Annotated[float, typer.Option("--reconnect", min=0, help="Seconds to wait for koalad while it restarts.")]
Override = Annotated[
    list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="Change a key of the job; KEY= unsets it.")
]
Name = Annotated[str | None, typer.Option("--name", help="The name of the job or sweep.")]
StageIn = Annotated[
    list[str] | None,
    typer.Option("--stage-in", metavar="PATH", help="A file or directory for the program; repeat it."),
]
Check = Annotated[
    bool, typer.Option("--check", help="Show what would be submitted and whether it can ever fit; submit nothing.")
]
Prefix = Annotated[
    bool | None,
    typer.Option(
        "--prefix/--no-prefix",
        help="Begin each line with [component.rank]. Default: while several components are followed.",
    ),
]

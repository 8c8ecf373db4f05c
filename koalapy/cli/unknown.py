"""`koala status --unknown` and `koala clean`: tags on the clusters that the store does not know."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import typer

from koalapy.calls import NotReachable
from koalapy.cli import options
from koalapy.cli.output import (
    DONE,
    FAILED,
    errors_reported,
    exit_status,
    out,
    print_error,
    print_json,
    print_message,
    table,
)
from koalapy.client import Grid
from koalapy.model.errors import KoalaError, RequestError

Document = Mapping[str, Any]

app = typer.Typer()
_WAIT_S = 30.0
_COLUMNS = ("CLUSTER", "TAG", "STORE", "ATTEMPT", "BATCH ID", "STATE", "DIRECTORY", "WRAPPER", "AGE")
_WARNING = "A tag of another store may be a live job of yours: another grid's, or one that another machine runs."


@app.command()
def clean(
    tags: Annotated[list[str], typer.Argument(metavar="TAG…", help="As `koala status --unknown` lists them.")],
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only on this cluster.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """End and remove what this store does not know: batch jobs and directories of koalapy, by their tags.

    Each becomes void, its batch job is cancelled, and its directory, with all that its program wrote, is removed once
    nothing is left. Such a tag may be somebody's live job: of another grid of yours, or of a koalad of yours on
    another machine with a store of its own. Look at WRAPPER in `koala status --unknown` first: if it is alive, its
    program may be running. Tags that this store knows are refused; `koala cancel` ends their jobs.
    """
    with errors_reported(), Grid(grid) as koalad:
        wanted = list(dict.fromkeys(tags))
        seen = koalad.unknown([cluster] if cluster else [])
        found = {each["tag"]: each for each in seen["tags"] if each["tag"] in wanted}
        if found and not yes:
            _confirm([found[tag] for tag in wanted if tag in found])
        _clean_all(koalad, wanted, found, cluster, json)


def show_unknown(grid: str | None, json: bool) -> None:
    with errors_reported(), Grid(grid) as koalad:
        document = koalad.unknown()
    if json:
        return print_json(document)
    for each in document["clusters"]:
        if each["reason"]:
            print_message(f"koala: {each['cluster']} could not be asked: {each['reason']}")
    if document["tags"]:
        return _list(document["tags"])
    return out.print("There are no unknown tags on the clusters that could be asked.")


def print_unknown(found: Document) -> None:
    """Print the number of unknown tags and the first few, for `koala status`."""
    if not found["count"]:
        return
    what = "1 tag is" if found["count"] == 1 else f"{found['count']} tags are"
    out.print(f"  unknown: {what} not of this store; `koala status --unknown` lists them, `koala clean` removes them")
    for each in found["first"]:
        out.print(f"    {_sentence(each)}")
    if found["count"] > len(found["first"]):
        out.print(f"    … and {found['count'] - len(found['first'])} more")


def attempt_in_words(attempt: str) -> str:
    """Return `attempt 7.0.2` or `pilot p12`."""
    return f"{'pilot' if attempt.startswith('p') else 'attempt'} {attempt}"


def _confirm(found: Sequence[Document]) -> None:
    """End the command unless a person at a terminal confirms."""
    _list(found, to_errors=True)
    print_message(_WARNING)
    alive = [each["tag"] for each in found if each["wrapper"] == "alive"]
    if alive:
        print_message(f"These have a living wrapper, and their programs may be running: {', '.join(alive)}.")
    if not sys.stdin.isatty():
        advice = "Check the list, then use --yes."
        raise RequestError("not_confirmed", "Removing these needs confirmation on a terminal.", advice)
    if not typer.confirm("End them and remove their directories?", err=True):
        raise typer.Exit(FAILED)


def _clean_all(
    koalad: Grid, tags: list[str], found: Mapping[str, Document], cluster: str | None, json: bool
) -> NoReturn:
    """Begin to clean all tags before waiting for any. An error with one tag does not stop the others."""
    status, cleaned = DONE, []
    places = {tag: found[tag]["cluster"] if tag in found else cluster for tag in tags}
    for timeout_s in (0.0, _WAIT_S):
        for tag, place in list(places.items()):
            try:
                answer = _clean(koalad, tag, place, timeout_s)
            except NotReachable:
                raise
            except KoalaError as error:
                print_error(error)
                status = max(status, exit_status(error))
                del places[tag]
                continue
            if answer["state"] == "cleaned":
                cleaned.append(answer)
                del places[tag]
    if json:
        print_json({"schema": "koala.cleaned/1", "cleaned": cleaned})
    else:
        for each in cleaned:
            out.print(f"{each['tag']} on {each['cluster']} is cleaned up")
    raise typer.Exit(status)


def _clean(koalad: Grid, tag: str, cluster: str | None, timeout_s: float) -> Document:
    """Clean a tag. Wait until it is cleaned up, without a time-out, unless `timeout_s` is 0."""
    answer = koalad.clean(tag, cluster, timeout=timeout_s)
    while timeout_s and answer["state"] != "cleaned":
        print_message(f"{tag} on {answer['cluster']} is being ended. After Ctrl-C its cluster goes on with it.")
        answer = koalad.clean(tag, cluster, timeout=timeout_s)
    return answer


def _list(tags: Sequence[Document], to_errors: bool = False) -> None:
    if to_errors:
        for each in tags:
            print_message(_sentence(each))
        return None
    return table(_COLUMNS, [_row(each) for each in tags])


def _row(each: Document) -> tuple[Any, ...]:
    store = f"{each['store']} (this one)" if each["own"] else each["store"]
    return (
        each["cluster"], each["tag"], store, each["attempt"], each["batch_id"],
        each["batch_state"], "yes" if each["directory"] else "no", _wrapper(each), _ago(each["age_s"]),
    )  # fmt: skip


def _sentence(each: Document) -> str:
    whose = "this store" if each["own"] else f"store {each['store']}"
    batch = f"batch job {each['batch_id']} is {each['batch_state']}" if each["batch_id"] else "no batch job"
    old = f", {_ago(each['age_s'])} old" if each["age_s"] is not None else ""
    return f"{each['tag']} on {each['cluster']}, of {whose}: {batch}, wrapper {_wrapper(each)}{old}"


def _wrapper(each: Document) -> str:
    """Return the wrapper's state; if it is alive or silent, with the time since its last sign of life."""
    if each["wrapper"] in ("alive", "silent"):
        return f"{each['wrapper']} ({_ago(each['heartbeat_age_s'])} ago)"
    return str(each["wrapper"])


def _ago(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"

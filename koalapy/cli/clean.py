"""`koala status --unknown` and `koala clean`: tags on the clusters that the store does not know."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from koalapy.cli import options
from koalapy.cli.output import (
    DONE,
    confirm,
    errors_reported,
    exit_status,
    out,
    print_error,
    print_json,
    print_message,
    table,
)
from koalapy.cli.times import in_one_unit
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.model.counts import counted_as
from koalapy.model.errors import KoalaError, RequestError

if TYPE_CHECKING:
    from koalapy.answers.clusters import CleanAnswer, StoreTags, UnknownAnswer, UnknownTag, UnknownTags

app = typer.Typer()
_WAIT_S = 30.0
_AT_A_TIME = 50  # tags that a cluster is asked to clean at one time
_MOST_LISTED = 20  # tags that a person reads
_MOST_STORES = 5
_DAY_S = 86_400
_STORE_COLUMNS = ("STORE", "AGE", "TAGS", "MAY RUN", "CLUSTERS")
_COLUMNS = ("CLUSTER", "TAG", "STORE", "ATTEMPT", "BATCH ID", "STATE", "DIRECTORY", "WRAPPER", "AGE")
_REFUSAL, _ADVICE = "Removing these needs confirmation on a terminal.", "Check the list, then use --yes."
_WARNING = "A tag of another store may be a live job of yours: another grid's, or one that another machine runs."


@app.command()
def clean(
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="TAG…", help="As `koala status --unknown` lists them.")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", help="All tags of this other store.")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="With --store: nothing of it may run any more.")] = False,
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

    With --store NAME --ended all tags of another store are removed, unless one of them may run: it has a batch job, or
    no exit record and a sign of life within a day.
    """
    with errors_reported(), Grid(grid) as koalad:
        _check_what(tags, store, ended)
        seen = koalad.unknown([cluster] if cluster else [])
        if store is not None:
            of_store = [each for each in seen["tags"] if each["store"] == store]
            _check_ended(store, of_store)
            _print_unasked(seen)
            if not yes:
                _confirm_store(seen, store)
            found = {each["tag"]: each for each in of_store}
            _clean_all(koalad, list(found), found, cluster, json, in_short=True)
        wanted = list(dict.fromkeys(tags or ()))
        found = {each["tag"]: each for each in seen["tags"] if each["tag"] in wanted}
        if found and not yes:
            _confirm([found[tag] for tag in wanted if tag in found])
        _clean_all(koalad, wanted, found, cluster, json)


def show_unknown(grid: str | None, json: bool) -> None:
    with errors_reported(), Grid(grid) as koalad:
        document = koalad.unknown()
    if json:
        return print_json(document)
    _print_unasked(document)
    tags = document["tags"]
    if not tags:
        return out.print("There are no unknown tags on the clusters that could be asked.")
    table(_STORE_COLUMNS, _by_store_and_age(document))
    out.print()
    _list(sorted(tags, key=lambda each: (not each["may_run"], not each["own"]))[:_MOST_LISTED])
    if len(tags) > _MOST_LISTED:
        out.print(f"… and {len(tags) - _MOST_LISTED:,} more; `koala status --unknown --json` has all")
    return None


def print_unknown(found: "UnknownTags") -> None:
    """Print a line for each store that has unknown tags, for `koala status`."""
    stores = found["stores"]
    for each in stores[:_MOST_STORES]:
        advice = "`koala status --unknown` lists them"
        if not each["own"] and not each["may_run"]:
            advice = f"`koala clean --store {each['store']} --ended` removes them"
        out.print(f"  unknown: {_of_store(each)}; {advice}")
    if len(stores) > _MOST_STORES:
        out.print(f"  unknown: … and the tags of {len(stores) - _MOST_STORES:,} more stores")


def attempt_in_words(attempt: str) -> str:
    """Return `attempt 7.0.2` or `Launcher p12`."""
    return f"{'Launcher' if attempt.startswith('p') else 'attempt'} {attempt}"


def _confirm(found: Sequence["UnknownTag"]) -> None:
    """End the command unless a person at a terminal confirms."""
    _list(found, to_errors=True)
    print_message(_WARNING)
    alive = [each["tag"] for each in found if each["wrapper"] == "alive"]
    if alive:
        print_message(f"These have a living wrapper, and their programs may be running: {', '.join(alive)}.")
    confirm("End them and remove their directories?", _REFUSAL, _ADVICE)


def _check_what(tags: Sequence[str] | None, store: str | None, ended: bool) -> None:
    """Raises RequestError unless there are either tags, or a store of which only what has ended is meant."""
    if bool(tags) == (store is not None):
        raise RequestError("bad_options", "Either tags are removed, or a store.", "Name TAG…, or use --store NAME.")
    if ended != (store is not None):
        advice = "Use --store NAME --ended; what may run is removed by its tag."
        raise RequestError(
            "bad_options", "By --store only what has ended is removed, so --ended belongs to it.", advice
        )


def _check_ended(store: str, tags: Sequence["UnknownTag"]) -> None:
    """Raises RequestError if the store has no tags, is this one, or may be in use."""
    if not tags:
        message = f"No cluster that could be asked has an unknown tag of a store {store}."
        raise RequestError("no_such_store", message, "`koala status --unknown` lists the stores there are.")
    if tags[0]["own"]:
        message = f"{store} is this store: such a tag may be what is left of a backup."
        raise RequestError("own_store", message, "Name the tags, or use the maintenance task clean-unknown.")
    if may_run := [each for each in tags if each["may_run"]]:
        first = may_run[0]
        message = f"The store {store} may be in use: {_many(len(may_run), 'tag')} of it may run, such as {first['tag']}"
        advice = "Look at `koala status --unknown`. `koala clean TAG` removes single ones."
        raise RequestError("store_in_use", f"{message} on {first['cluster']}.", advice)


def _confirm_store(seen: "UnknownAnswer", store: str) -> None:
    (of_store,) = [each for each in seen["stores"] if each["store"] == store]
    print_message(f"{_of_store(of_store)}.")
    question = "A store that is in use elsewhere may still need what its ended jobs have written. Remove all of it?"
    confirm(question, _REFUSAL, _ADVICE)


def _clean_all(
    koalad: Grid,
    tags: list[str],
    found: Mapping[str, "UnknownTag"],
    cluster: str | None,
    json: bool,
    in_short: bool = False,
) -> NoReturn:
    """Clean all tags, and end the command. `in_short`: print their number only."""
    status, cleaned = DONE, list["CleanAnswer"]()
    for begin in range(0, len(tags), _AT_A_TIME):
        some = {tag: found[tag]["cluster"] if tag in found else cluster for tag in tags[begin : begin + _AT_A_TIME]}
        status = max(status, _clean_some(koalad, some, cleaned))
    if json:
        print_json({"schema": "koala.cleaned/1", "cleaned": cleaned})
    elif in_short:
        out.print(f"{_many(len(cleaned), 'tag is', 'tags are')} cleaned up")
    else:
        for each in cleaned:
            out.print(f"{each['tag']} on {each['cluster']} is cleaned up")
    raise typer.Exit(status)


def _clean_some(koalad: Grid, places: dict[str, str | None], cleaned: list["CleanAnswer"]) -> int:
    """Begin to clean these tags before waiting for any. Returns the exit status.

    An error with one tag does not stop the others.
    """
    status = DONE
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
    return status


def _clean(koalad: Grid, tag: str, cluster: str | None, timeout_s: float) -> "CleanAnswer":
    """Clean a tag. Wait until it is cleaned up, without a time-out, unless `timeout_s` is 0."""
    answer = koalad.clean(tag, cluster, timeout=timeout_s)
    while timeout_s and answer["state"] != "cleaned":
        print_message(f"{tag} on {answer['cluster']} is being ended. After Ctrl-C its cluster goes on with it.")
        answer = koalad.clean(tag, cluster, timeout=timeout_s)
    return answer


def _list(tags: Sequence["UnknownTag"], to_errors: bool = False) -> None:
    if to_errors:
        for each in tags:
            print_message(_sentence(each))
        return None
    return table(_COLUMNS, [_row(each) for each in tags])


def _by_store_and_age(document: "UnknownAnswer") -> list[tuple[Any, ...]]:
    """Return a row for each store and age, in the order of the stores, the newest first."""
    rows: list[tuple[Any, ...]] = []
    for store in document["stores"]:
        there = [each for each in document["tags"] if each["store"] == store["store"]]
        for age in ("under 1d", "1d to 30d", "over 30d", "unknown"):
            if those := [each for each in there if _age(each["age_s"]) == age]:
                clusters = ", ".join(dict.fromkeys(each["cluster"] for each in those))
                may_run = sum(each["may_run"] for each in those)
                rows.append((_named(store), age, f"{len(those):,}", f"{may_run:,}", clusters))
    return rows


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return "under 1d" if seconds < _DAY_S else "1d to 30d" if seconds < 30 * _DAY_S else "over 30d"


def _of_store(each: "StoreTags") -> str:
    """Return the number, place and age of a store's tags in words."""
    whose = "this store" if each["own"] else f"store {each['store']}"
    runs = f"{each['may_run']:,} of them may run" if each["may_run"] else "none may run"
    newest, oldest = _ago(each["newest_s"]), _ago(each["oldest_s"])
    age = "" if oldest is None else f", {oldest} old" if newest == oldest else f", {newest} to {oldest} old"
    return f"{_many(each['tags'], 'tag')} of {whose} on {', '.join(each['clusters'])}, {runs}{age}"


def _many(count: int, one: str, many: str = "") -> str:
    return counted_as(f"{count:,}", one, many)


def _print_unasked(document: "UnknownAnswer") -> None:
    for each in document["clusters"]:
        if each["reason"]:
            print_message(f"koala: {each['cluster']} could not be asked: {each['reason']}")


def _named(each: "StoreTags | UnknownTag") -> str:
    return f"{each['store']} (this one)" if each["own"] else str(each["store"])


def _row(each: "UnknownTag") -> tuple[Any, ...]:
    return (
        each["cluster"], each["tag"], _named(each), each["attempt"], each["batch_id"],
        each["batch_state"], "yes" if each["directory"] else "no", _wrapper(each), _ago(each["age_s"]),
    )  # fmt: skip


def _sentence(each: "UnknownTag") -> str:
    whose = "this store" if each["own"] else f"store {each['store']}"
    batch = f"batch job {each['batch_id']} is {each['batch_state']}" if each["batch_id"] else "no batch job"
    old = f", {_ago(each['age_s'])} old" if each["age_s"] is not None else ""
    return f"{each['tag']} on {each['cluster']}, of {whose}: {batch}, wrapper {_wrapper(each)}{old}"


def _wrapper(each: "UnknownTag") -> str:
    """Return the wrapper's state; if it is alive or silent, with the time since its last sign of life."""
    if each["wrapper"] in ("alive", "silent"):
        return f"{each['wrapper']} ({_ago(each['heartbeat_age_s'])} ago)"
    return str(each["wrapper"])


def _ago(seconds: float | None) -> str | None:
    return None if seconds is None else in_one_unit(seconds)

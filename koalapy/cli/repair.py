"""`koala repair`: lists and repairs records of the store that cannot be read, while no koalad has it open."""

import json as json_module
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import confirm, errors_reported, out, print_json, table
from koalapy.common.locations import Locations
from koalapy.koalad.gridfile import read_grid_file
from koalapy.model.errors import RequestError

app = typer.Typer()
_MOST = 1 << 28  # bytes of a record's text, at most


@app.command()
def repair(
    record: Annotated[
        str | None, typer.Argument(metavar="[RECORD]", help="A record such as job/7. Default: list all.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write the record's text as it is; - is standard output."),
    ] = None,
    corrected: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Replace the record by this text.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the record.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """List, export, correct or remove records of the store that cannot be read. koalad must be down.

    A job whose record cannot be read is held: koalad does nothing with it and with its batch jobs. Export its text,
    which is JSON, correct it in an editor and import it; then `koala up` goes on with the job. With --drop the job is
    removed with its history. Its batch jobs and directories are unknown tags from then on, which `koala status
    --unknown` lists and `koala clean` removes.
    """
    with errors_reported():
        chosen = [export is not None, corrected is not None, drop].count(True)
        if chosen > 1 or bool(chosen) != bool(record):
            advice = "Write `koala repair`, or `koala repair RECORD` with one of --export, --import and --drop."
            raise RequestError("bad_usage", "The record, or what to do with it, is missing.", advice)
        _repair(record or "", export, corrected, drop, yes, grid, json)


def _repair(
    record: str, export: Path | None, corrected: Path | None, drop: bool, yes: bool, grid: str | None, json: bool
) -> None:
    from koalapy.store import unreadable  # late: a database's library takes long to import
    from koalapy.store.open import open_store
    from koalapy.store.sql import SqlStore

    text = _read(corrected) if corrected is not None else ""
    locations = Locations.of(grid)
    if locations.grid_file is None:
        message = f"There is no grid file {locations.grid}."
        raise RequestError("no_grid_file", message, "Give the path of its grid file with --grid.")
    store = open_store(read_grid_file(locations.grid_file).store, locations.state)
    assert isinstance(store, SqlStore)
    try:
        if export is not None:
            _write(export, store.repair(partial(unreadable.raw, name=record)))
        elif corrected is not None:
            store.repair(partial(unreadable.replace, name=record, text=text))
            out.print(f"{record} is corrected; `koala up` goes on with it.")
        elif drop:
            store.repair(partial(unreadable.raw, name=record))  # raises for an unknown record, before the question
            if not yes:
                keep = f"Keep its text with `koala repair {record} --export FILE`"
                advice = f"{keep}; then repeat the command with --yes."
                lost = "What it holds is lost. The batch jobs and directories of a job become unknown tags."
                confirm(f"Remove {record}?", f"Dropping {record} needs confirmation on a terminal.", advice, lost)
            store.repair(partial(unreadable.drop, name=record))
            out.print(f"{record} is removed.")
        else:
            _list(store.repair(unreadable.survey), json)
    finally:
        store.close()


def _list(found: "list[unreadable.Unreadable]", json: bool) -> None:  # type: ignore[name-defined]  # noqa: F821
    if json:
        records = [{"record": each.name, "kind": each.kind, "job": each.job, "reason": each.why} for each in found]
        return print_json({"schema": "koala.unreadable/1", "records": records})
    if not found:
        return out.print("All records of the store can be read.")
    return table(("RECORD", "JOB", "REASON"), [(each.name, each.job, each.why) for each in found])


def _read(path: Path) -> str:
    """Return a corrected text in one line. Raises RequestError if it cannot be read or is not JSON."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST).decode()
        return json_module.dumps(json_module.loads(text), separators=(",", ":"))
    except (OSError, ValueError, RecursionError) as error:
        message = f"{path} cannot be imported: {error}."
        raise RequestError("bad_record", message, "Name a file with the record's JSON in it.") from error


def _write(path: Path, text: str) -> None:
    """Write the text, indented if it is JSON, to a file for its owner alone. Raises RequestError."""
    try:
        pretty = json_module.dumps(json_module.loads(text), indent=1)
    except (ValueError, RecursionError):
        pretty = text
    if str(path) == "-":
        sys.stdout.write(pretty + "\n")
        return
    try:
        path.touch(mode=0o600)
        path.write_text(pretty + "\n")
    except OSError as error:
        raise RequestError("not_written", f"{path} cannot be written: {error}.", "Name another file.") from error

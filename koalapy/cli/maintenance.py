"""`koala maintenance`: lists the tasks that koalad runs by cron, with their results, and runs one of them now."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.output import DONE, FAILED, errors_reported, out, print_json, table
from koalapy.cli.times import Utc, in_text, shown
from koalapy.client import Grid
from koalapy.model.errors import RequestError

if TYPE_CHECKING:
    from koalapy.answers.koalad import MaintenanceTask

app = typer.Typer()
maintenance = options.group(app, "maintenance", "List the maintenance tasks of the grid file, or run one.")
_COLUMNS = ("NAME", "TASK", "CRON", "NEXT RUN", "LAST RUN", "HOW IT WENT")
_LISTS = ("without",)


@maintenance.command("list")
def list_tasks(utc: Utc = False, grid: options.Grid = None, json: options.Json = False) -> None:
    """List the tasks, when each runs next, and how its last run went."""
    with errors_reported(), Grid(grid) as koalad:
        document = koalad.maintenance()
    if json:
        return print_json(document)
    if not document["tasks"]:
        return out.print("The grid file has no maintenance tasks.")
    return table(_COLUMNS, [_row(each) for each in document["tasks"]])


@maintenance.command("run")
def run_task(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task of the grid file, or any registered one.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would be done, and do nothing.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace an option of the grid file."),
    ] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Run a task now, and print its result. The exit status is 1 if it failed."""
    with errors_reported(), Grid(grid) as koalad:
        document = koalad.maintain(task, dry_run=dry_run, options=_options(settings or []))
    if json:
        print_json(document)
    else:
        out.print(in_text(document["run"]["message"]))
    raise typer.Exit(DONE if document["run"]["ok"] else FAILED)


def _options(settings: list[str]) -> dict[str, Any]:
    """Parse KEY=VALUE options. Raises RequestError for any other text."""
    found: dict[str, Any] = {}
    for each in settings:
        key, separator, value = each.partition("=")
        if not key or not separator:
            raise RequestError("bad_usage", f"{each!r} sets nothing.", "Write it as KEY=VALUE, such as keep=30d.")
        found[key] = value.split(",") if key in _LISTS else value == "true" if value in ("true", "false") else value
    return found


def _row(each: "MaintenanceTask") -> tuple[Any, ...]:
    last = each["last"]
    how = "" if last is None else ("ok: " if last["ok"] else "failed: ") + last["message"]
    began = None if last is None else shown(last["began_at"])
    next_at = None if each["next_at"] is None else shown(each["next_at"])
    return each["name"], each["task"], each["cron"], next_at, began, in_text(how)

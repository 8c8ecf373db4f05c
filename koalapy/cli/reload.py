"""`koala reload`: koalad reads its grid file again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import FAILED, errors_reported, out, print_json
from koalapy.client import Grid

if TYPE_CHECKING:
    from koalapy.answers.clusters import ChangedKey, ReloadAnswer

app = typer.Typer()


@app.command()
def reload(
    check: Annotated[bool, typer.Option("--check", help="Show what would change, and change nothing.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Make koalad read its grid file again, and show what has changed. Jobs run on.

    All of it is done, or nothing: a cluster with running jobs does not leave, and a mistake changes nothing.
    """
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.reload(check=check)
    if json:
        print_json(found)
    else:
        _print_reload(found)
    if found["refused"]:
        raise typer.Exit(FAILED)


def _print_reload(found: "ReloadAnswer") -> None:
    verbs: Mapping[str, str] = {"added": "is added", "removed": "is removed", "moved": "leaves, and joins elsewhere"}
    for what, verb in verbs.items():
        for name in found[what]:  # type: ignore[literal-required]
            out.print(f"{name} {verb}")
    for each in found["changed"]:
        out.print(f"{_key(each)}: {each['before']} → {each['after']}")
    for sentence in found["refused"]:
        out.print(sentence)
    if not (found["added"] or found["removed"] or found["changed"]):
        out.print(f"{found['grid_file']} changes nothing")
    elif not found["done"]:
        out.print("This would be refused." if found["refused"] else "Nothing was changed yet: this was a check.")


def _key(changed: "ChangedKey") -> str:
    return changed["key"] if changed["cluster"] is None else f"clusters.{changed['cluster']}.{changed['key']}"

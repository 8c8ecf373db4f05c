"""Prints the program of a job, component by component, as its user wrote it."""

import shlex
from collections.abc import Mapping
from typing import Any

from koalapy.cli.output import out

Document = Mapping[str, Any]


def show_request(request: Document, pilot: bool = False) -> None:
    """Print the program, component by component, as its user wrote it, without values that are defaults.

    `pilot`: whether the job is one, which has no program of its user's.
    """
    job = request["job"]
    out.print()
    for index, component in enumerate(job.get("components", ())):
        command = shlex.join([component["executable"], *component.get("arguments", ())])
        command = "other jobs: it holds processors for them" if pilot else command
        out.print(f"component {index} runs          "[:24] + command)
        for name, value in component.items():
            if name not in ("executable", "arguments", "processors", "cluster", "environment"):
                out.print(f"  {name.replace('_', ' '):22}{_words(value)}")
        for name, value in component.get("environment", {}).items():
            out.print(f"  {'environment':22}{name}={shlex.quote(value)}")
    out.print(f"{'directory':24}{request['directory']}")
    for name in (
        "when_busy",
        "retry_on",
        "communication",
        "on_error",
        "stage_in",
        "stage_out",
        "order",
        "on_failure",
        "interactive",
    ):
        if name in job:
            out.print(f"{name.replace('_', ' '):24}{_words(job[name])}")
    for each in request["parameters"]:
        values = ":".join(each["loop"] or ()) or each["file"] or ", ".join(each["values"])
        out.print(f"{'parameter ' + ', '.join(each['names']):24}{_shortened(values)}")


def _words(value: Any) -> str:
    """Format a value of a job file in a line."""
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value['path']} to {value['to']}" if isinstance(value, dict) else str(value)


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]} …"

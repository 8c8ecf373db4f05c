"""Converts `-p NAME=VALUES` and a command line of `koala sweep` into a job of the job file's form."""

from collections.abc import Mapping, Sequence
from typing import Any

from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import shown

_FORM = "Write -p NAME=VALUES, such as -p x=1:100, -p y=a,b,c or -p z=@FILE."


def sweep_request(
    program: Sequence[str],
    parameters: Sequence[str] = (),
    *,
    csv: Sequence[str] = (),
    combine: str | None = None,
    processors: int = 1,
    component: Mapping[str, Any] | None = None,
    **job: Any,
) -> dict[str, Any]:
    """Return the job as POST /v1/jobs and `from_mapping` accept it. Raises RequestError for an invalid parameter.

    `program`: executable and arguments, with `{x}` for parameters. `parameters`: texts as after `-p`. `combine`: cross
    or zip. `processors`: those of each process. `component` and `job`: further keys, as in a job file.
    """
    if not program:
        raise RequestError("no_program", "The sweep has no program.", "Write it behind --, such as -- ./solve {x}.")
    document = {
        "components": [
            {
                "processors": processors,
                "threads_per_process": processors,
                "executable": program[0],
                "arguments": list(program[1:]),
                **(component or {}),
            }
        ],
        "parameters": _by_name(parameters) or None,
        "csv": list(csv) or None,
        "combine": combine,
        **job,
    }
    if not parameters and not csv:
        raise RequestError("no_parameters", "The sweep has no parameters.", _FORM)
    return {key: value for key, value in document.items() if value is not None}


def _by_name(parameters: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in parameters:
        name, equals, values = text.partition("=")
        if not equals or not name:
            raise RequestError("no_parameter", f"-p {shown(text)} names no parameter.", _FORM)
        if name in found:
            raise RequestError("duplicate_name", f"-p {name} is given twice.", "Name each parameter once.")
        found[name] = values
    return found

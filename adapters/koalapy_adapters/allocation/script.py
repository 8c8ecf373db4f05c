"""A job's script, and the requests of its `#KOALA key=value` lines."""

import json
import os
from typing import Any, Dict, List

from koalapy_adapters.errors import RequestError

MAX_SCRIPT = 1 << 20
_DIRECTIVE = "#KOALA "
_LACKED = {
    "queue": "queues",
    "constraint": "node features",
    "gpus": "GPUs",
    "avoid": "hosts to leave out",
    "exclusive": "whole nodes to give away",
}
_NUMBERS = ("processors", "walltime", "lowest", "per_node")


def read(words: List[str]) -> str:
    """The text of the script that the words name. Raises RequestError if it cannot be read or is too large."""
    try:
        with open(words[0], "rb") as file:
            data = file.read(MAX_SCRIPT + 1)
    except (OSError, IndexError) as error:
        raise RequestError("no_script", "The script cannot be read: %s." % error, "Name a readable file.") from error
    if len(data) > MAX_SCRIPT:
        raise RequestError("script_too_large", "The script is larger than 1 MiB.", "Move its data into a file.")
    return data.decode("utf-8", "surrogateescape")


def directives(text: str) -> Dict[str, Any]:
    """The values of the `#KOALA key=value` lines, or their defaults. Raises RequestError for a wrong key or value."""
    here = os.getcwd()
    settings: Dict[str, Any] = {"name": "job", "processors": 1, "walltime": 3600, "directory": here, "output": ""}
    settings.update(lowest=0, per_node=0, command="")
    for line in text.splitlines():
        if line.startswith(_DIRECTIVE):
            key, _, value = line[len(_DIRECTIVE) :].strip().partition("=")
            if key in _LACKED:
                message = "The queue has no %s, and this job asks for %s." % (_LACKED[key], json.dumps(value))
                raise RequestError("lacked", message, "Leave `%s` out, or name a cluster that has it." % key)
            if key not in settings or (key in _NUMBERS and not (value.isdigit() and int(value) > 0)):
                raise RequestError(
                    "bad_directive",
                    "The queue does not understand the line %s." % json.dumps(line),
                    "Use #KOALA with name=, processors=, walltime= (seconds), directory=, output= or lowest=1.",
                )
            settings[key] = int(value) if key in _NUMBERS else value
    settings["output"] = os.path.join(settings["directory"], settings["output"] or "job.out")
    return settings

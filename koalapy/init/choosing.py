"""The grid file entry of a cluster, chosen from what its head node shows."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from koalapy.config.values import LONGEST_NAME
from koalapy.init.survey import HeadSurvey
from koalapy.model.counts import counted_as
from koalapy.model.units import SECOND, Duration, format_duration

_NAMES = {"slurm": "Slurm", "sge": "Grid Engine", "pbs": "PBS", "torque": "Torque"}
_SHOWN = 12  # items of a list that a comment shows
_ONE_NODE = "$pe_slots"  # the allocation rule under which a job has one node

Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One cluster of the new grid file. `settings`: its keys, in their order; `comments`: the lines above it."""

    name: str
    settings: dict[str, str | int]
    comments: tuple[str, ...]


def entry(name: str, connect: str, given: dict[str, str], seen: HeadSurvey) -> Entry:
    """Return the entry for a survey's result. `given`: further keys that the person named, such as identity."""
    survey = seen.survey
    systems: list[Found] = survey["systems"]
    settings: dict[str, str | int] = {"batch": "local", "connect": connect, **given}
    if seen.python is not None:
        settings["python"] = seen.python
    comments = [f"{survey['host']}, as {survey['user']}, with Python {survey['python_version']}"]
    if systems:
        settings = _of_system(systems[0], settings)
        comments += [*_about(systems[0]), _about_home(survey)]
    else:
        settings["slots"] = int(survey["processors"])
        comments.append("no batch system was found: koalapy's own queue shares the processors of the head node")
    if seen.refused:
        settings["shared"] = str(survey["shared"])
        comments.append(f"not in ~/.koala: {seen.refused} The nodes must see what stands here as `shared`")
    return Entry(name, settings, tuple(comments))


def _of_system(system: Found, settings: dict[str, str | int]) -> dict[str, str | int]:
    chosen: dict[str, str | int] = {**settings, "batch": str(system["batch"])}
    queue = chosen_queue(system["queues"])
    if queue is not None:
        chosen["queue"] = str(queue["name"])
    environment = chosen_environment(system["environments"], queue)
    if environment is not None:
        chosen["parallel_environment"] = str(environment["name"])
    if system["processors_per_node"]:
        chosen["processors_per_node"] = int(system["processors_per_node"])
    if system["drmaa"]:
        chosen["drmaa"] = "auto"
    chosen.update(system["profile"])
    return chosen


def chosen_queue(queues: list[Found]) -> Found | None:
    """Return the default queue, else the largest; open queues before closed ones. None if there is no queue."""
    if not queues:
        return None
    return max(queues, key=lambda queue: (queue["default"], not queue["closed"], queue["processors"] or 0))


def chosen_environment(environments: list[Found], queue: Found | None) -> Found | None:
    """Return a parallel environment that the queue offers, preferably for several nodes; None if none is usable.

    An environment for several nodes must have control_slaves.
    """
    offered = queue["environments"] if queue is not None else [each["name"] for each in environments]
    serving = [each for each in environments if each["controls"] or each["rule"] == _ONE_NODE]
    usable = [each for each in serving if each["name"] in offered]
    return max(usable, key=lambda each: each["rule"] != _ONE_NODE, default=None)


def _about(system: Found) -> Iterable[str]:
    yield f"{_NAMES.get(system['batch'], system['batch'])} {system['version']}".rstrip()
    if "error" in system:
        yield f"but it did not report all: {system['error']}"
    if system["queues"]:
        yield "queues: " + _listed(_queue(queue) for queue in system["queues"])
    if system["accounts"]:
        yield "accounts, for `account`: " + _listed(system["accounts"])
    if system["environments"]:
        yield "parallel environments: " + _listed(_environment(each) for each in system["environments"])
    if system["profile"]:
        yield f"the login's profile names its {', '.join(system['profile'])}"
    if system["drmaa"]:
        yield f"DRMAA: {system['drmaa']}"


def _about_home(survey: Found) -> str:
    kind = survey["home_kind"] or "a file system of unknown kind"
    if survey["home_remote"]:
        return f"{survey['home']} is on {kind}, so the nodes should see it too"
    return f"{survey['home']} is on {kind}: if the nodes do not see it, name with `shared` a directory that they see"


def _queue(queue: Found) -> str:
    facts = [
        "default" if queue["default"] else "",
        counted_as(queue["processors"], "processor") if queue["processors"] else "",
        f"up to {format_duration(Duration(queue['walltime_s'] * SECOND))}" if queue["walltime_s"] else "",
        f"closed: {queue['closed']}" if queue["closed"] else "",
    ]
    summary = ", ".join(fact for fact in facts if fact)
    return f"{queue['name']} ({summary})" if summary else str(queue["name"])


def _environment(each: Found) -> str:
    return f"{each['name']} ({each['rule']}{'' if each['controls'] else ', without control_slaves'})"


def _listed(names: Iterable[str]) -> str:
    all_ = list(names)
    return ", ".join(all_[:_SHOWN]) + (", …" if len(all_) > _SHOWN else "")


def proposed_name(connect: str, taken: Iterable[str]) -> str:
    """Return a name for the cluster: its host's first name, made valid, and numbered if it is taken."""
    host = re.split(r"[@ ]", connect.rpartition("//")[2].removesuffix(":"))[-1]
    first = host if re.fullmatch(r"[\d.]+", host) else host.split(".")[0].split(":")[0]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", first).strip("-_")[: LONGEST_NAME - 3] or "cluster"
    used = {name.casefold() for name in taken}
    tries = [plain, *(f"{plain}-{number}" for number in range(2, len(used) + 3))]
    return next(name for name in tries if name.casefold() not in used)

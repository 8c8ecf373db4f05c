"""What is said of the parallel environment of Grid Engine that Launchers of sweeps are in, and what would be better."""

from collections.abc import Mapping
from typing import Any


def of_launchers(found: Mapping[str, Any]) -> str:
    """`environment`: theirs; `named`: by the grid file; `loose`: the best that controls no slaves, if there is one."""
    used, loose = found["environment"], found["loose"]
    if used is None:
        return "Sweeps find no parallel environment, and no node of several processors: ask the administrators for one."
    said = f"Sweeps use {used}" + (", as `scavenge.parallel_environment` says" if found["named"] else "")
    if used == loose:
        return f"{said}."
    if loose is not None:
        return f"{said}; in {loose} their nodes would be free a second sooner."
    wanted = "`allocation_rule $pe_slots` and `control_slaves FALSE`"
    return f"{said}; in one with {wanted} their nodes would be free a second sooner: ask the administrators for it."

"""The message on Grid Engine's parallel environment for Launchers of sweeps, and on a better one."""

from collections.abc import Mapping
from typing import Any


def of_launchers(found: Mapping[str, Any]) -> str:
    """Return sentences on the parallel environment that Launchers use, and on a better one if there is any.

    `found` has three keys. `environment`: the name of that in use, or None. `named`: whether the grid file names it.
    `loose`: the best environment that does not control slaves, or None.
    """
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

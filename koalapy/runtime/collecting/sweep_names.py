"""The paths and places that the templates of a sweep's `stage_out` give for one parameter."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from koalapy_adapters.launcher.space import Compiled
from koalapy_adapters.trees import is_pattern, native

from koalapy.languages.parameters import filled
from koalapy.languages.stageout import PLACES
from koalapy.model.commands import CollectOutput
from koalapy.model.errors import RequestError
from koalapy.model.request import Request
from koalapy.runtime.collecting.plan import leads_out
from koalapy.runtime.parameters import line_reader


class Wanted(NamedTuple):
    """One path of one parameter, and the directory on this host that it may not leave.

    `pattern`: whether the path as written may match several files or none. `needed`: whether its absence is reported.
    """

    number: int
    path: str
    base: Path
    pattern: bool
    needed: bool


class Names:
    """The paths of one CollectOutput, for each parameter."""

    def __init__(self, command: CollectOutput, request: Request) -> None:
        self._command, self._request = command, request
        self._patterns = [is_pattern(path) for path in command.paths]
        self._compiled: dict[str, Compiled] = {}  # by cluster, whose name may stand in a place

    def of(self, number: int, cluster: str, needed: bool) -> list[Wanted]:
        """Return the paths of this parameter. `needed`: see Wanted.

        Raises ValueError if its values give no valid path; the error's text ends a sentence. Raises RequestError if the
        values are not known any more, since the file that holds them is missing.
        """
        try:
            texts = [text.decode("utf-8", "surrogateescape") for text in self._templates(cluster).of(number)]
        except ValueError as error:
            raise RequestError(
                "no_value",
                f"The values of parameter {number} are not known any more: {error}.",
                "Its values stand in a file: put it back where it was.",
            ) from error
        half = len(self._patterns)
        parts = zip(texts[:half], texts[half:], self._patterns, strict=True)
        return [Wanted(number, _checked(path), self._base(place), pattern, needed) for path, place, pattern in parts]

    def _templates(self, cluster: str) -> Compiled:
        """Return the compiled templates: the paths first, then the places."""
        if cluster not in self._compiled:
            places = dict(self._command.to)
            known = self._known(cluster)
            texts = [*self._command.paths, *(filled(places.get(path, ""), known) for path in self._command.paths)]
            assert self._request.parameters is not None
            space = asdict(self._request.parameters)
            self._compiled[cluster] = Compiled(space, texts, line_reader(self._request))
        return self._compiled[cluster]

    def _known(self, cluster: str) -> Mapping[str, str]:
        """Return the values that a place may contain besides parameters.

        A parameter of the same name takes precedence.
        """
        assert self._request.parameters is not None
        own = {name for axis in self._request.parameters.axes for each in axis.sources for name in each.names}
        values = zip(PLACES, (str(self._command.job), "0", cluster), strict=True)
        return {name: value for name, value in values if name not in own}

    def _base(self, place: str) -> Path:
        if ".." in place.split("/") or "\0" in place:
            raise ValueError(f"the place {place!r} leads out of the directory that it was written for")
        return Path(self._command.directory, native(place))


def _checked(path: str) -> str:
    """Return the path as the cluster names it.

    Raises ValueError if it leads out of the working directory or is empty.
    """
    if leads_out(path) or "\0" in path:
        raise ValueError(f"{path!r} is not a path below the working directory")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts:
        raise ValueError("its path is empty")
    return os.path.join(*parts)

"""The difference between two grid files, by cluster and key, as a person wrote the values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koalapy.config.schema import Cluster, GridFile

PLACE = ("batch", "connect", "shared")  # keys whose change makes it another cluster: jobs there are not found again
# Keys of the grid file that koalad reads only when it starts; the neighbours of a site are read again.
AT_START = ("grid", "store", "metrics", "site", "site.name", "site.listen", "site.certificate")
_WHOLE = ("grid", "store", "metrics")  # sections of which every key is one of AT_START
_SECRET = ("store", "metrics", "notify")  # whose values may hold a password or token


@dataclass(frozen=True, slots=True)
class Changed:
    """A key with its values before and after, as text. `cluster`: None for a key of the whole grid."""

    cluster: str | None
    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The clusters that come, go, or stay and lie elsewhere (`moved`: see PLACE), and every key that changes."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    changed: tuple[Changed, ...] = ()

    @property
    def leaving(self) -> tuple[str, ...]:
        """The clusters that leave the grid, if only to join it again elsewhere."""
        return self.removed + self.moved

    @property
    def at_start(self) -> tuple[str, ...]:
        """The keys that changed although koalad reads them only when it starts."""
        of_grid = [each.key for each in self.changed if each.cluster is None]
        return tuple(key for key in of_grid if key in AT_START or _section(key) in _WHOLE)


def difference(before: GridFile, after: GridFile) -> Difference:
    """Return what changes from one grid file to the next."""
    old, new = before.clusters, after.clusters
    kept = [name for name in new if name in old]
    of_grid = tuple(_changed(None, _values(before, "clusters"), _values(after, "clusters")))
    of_clusters = tuple(each for name in kept for each in _changed(name, _values(old[name]), _values(new[name])))
    return Difference(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        moved=tuple(name for name in kept if _place(old[name]) != _place(new[name])),
        changed=of_clusters + of_grid,
    )


def _place(cluster: Cluster) -> list[Any]:
    return [getattr(cluster, key) for key in PLACE]


def _values(section: GridFile | Cluster, *without: str) -> dict[str, Any]:
    return dict(_flat("", section.model_dump(mode="json", exclude=set(without))))


def _flat(place: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(f"{place}{key}.", value)
        else:
            yield f"{place}{key}", value


def _changed(cluster: str | None, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Changed]:
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if old != new:
            secret = cluster is None and _section(key) in _SECRET
            yield Changed(cluster, key, "…" if secret else _text(old), "…" if secret else _text(new))


def _section(key: str) -> str:
    return key.partition(".")[0]


def _text(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_item(each) for each in value) or "none"
    return str(value)


def _item(value: Any) -> str:
    """Return an element of a list: a line, or an entry of `maintenance` with its keys."""
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{key}={_text(each)}" for key, each in value.items() if each not in (None, False, []))

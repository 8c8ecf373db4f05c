"""Checks that a sweep stages out a different path for each parameter, so that no file overwrites another."""

from collections.abc import Collection, Iterator, Sequence

from koalapy.languages.parameters import NUMBER, TemplateError, names_in
from koalapy.model.errors import RequestError
from koalapy.model.parameters import Axis, Source, Space
from koalapy.model.request import Request
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.validation import refusal
from koalapy.model.textfile.words import listed, shown

PLACES = ("job", "component", "cluster")  # placeholders of `to`; a parameter of the same name takes precedence


def stage_out_texts(request: Request) -> Iterator[tuple[Path, str]]:
    """Yield (path in the document, template) of every `path`, then of every `to`."""
    places = dict(request.stage_out_to)
    for index, path in enumerate(request.stage_out):
        yield ("stage_out", index), path
    for index, path in enumerate(request.stage_out):
        if path in places:
            yield ("stage_out", index, "to"), places[path]


def check_apart(request: Request, space: Space, document: Document) -> None:
    """Raises RequestError for a path that is the same for several parameters."""
    for index, path in enumerate(request.stage_out):
        if more := lacking(space, names_in(path)):
            what = f"is {shown(path)}, the same path for several of the {space.count:,} parameters"
            raise refusal(document, ("stage_out", index), "one_path", what, advice_of(more))


def check_templates(request: Request, paths: Sequence[str]) -> bool:
    """Return whether these paths of a later request are those of single parameters; False if none contains a name.

    Raises RequestError for an invalid template, and for a path that is the same for several parameters.
    """
    space = request.parameters
    assert space is not None
    known = [NUMBER, *(name for axis in space.axes for each in axis.sources for name in each.names)]
    used = [_names_of(path, known) for path in paths]
    if not any(used):
        return False
    for path, names in zip(paths, used, strict=True):
        if more := lacking(space, names):
            message = f"{shown(path)} is the same path for several of the {space.count:,} parameters."
            raise RequestError("one_path", message, advice_of(more))
    return True


def _names_of(path: str, known: Collection[str]) -> list[str]:
    advice = f"Available: {listed((f'{{{name}}}' for name in known), 'and')}. Write {{{{ and }}}} for literal braces."
    try:
        names = names_in(path)
    except TemplateError as error:
        raise RequestError("lone_brace", f"{shown(path)} {error}.", advice) from error
    for name in names:
        if name not in known:
            raise RequestError(
                "unknown_name", f"{shown(path)} uses {{{shown(name, quote='')}}}, which is not a parameter.", advice
            )
    return names


def advice_of(more: Collection[str]) -> str:
    """Return advice to write the missing names, `more`, into a path."""
    wanted = listed((f"{{{name}}}" for name in more), "and")
    or_all = f", or {wanted}" if tuple(more) != (NUMBER,) else ""
    return f"Parameters of one Launcher share a directory: write {{{NUMBER}}} into it{or_all}."


def lacking(space: Space, used: Collection[str]) -> tuple[str, ...]:
    """Return the names that a path lacks to differ for each parameter; only NUMBER if values repeat.

    `used`: the names in the path.
    """
    if NUMBER in used:
        return ()
    found = [name for axis in space.axes for name in _lacking(axis, used)]
    return (NUMBER,) if NUMBER in found else tuple(found)


def _lacking(axis: Axis, used: Collection[str]) -> tuple[str, ...]:
    """Return the names of one axis that are missing. One name with distinct values suffices, else all are needed."""
    if axis.count == 1 or any(_distinct(each) and set(each.names) & set(used) for each in axis.sources):
        return ()
    if distinct := [each.names[0] for each in axis.sources if _distinct(each)]:
        return tuple(distinct[:1])
    if _repeats(axis):
        return (NUMBER,)
    return tuple(each.names[0] for each in axis.sources if not set(each.names) & set(used))


def _distinct(source: Source) -> bool:
    """Return whether the values are known to differ. Those of a file are not known here."""
    return source.loop is not None or (bool(source.values) and len(set(source.values)) == len(source.values))


def _repeats(axis: Axis) -> bool:
    """Return whether two parameters of the axis are known to have the same values."""
    written = [each.values for each in axis.sources if each.values]
    return len(written) == len(axis.sources) and len(set(zip(*written, strict=True))) < axis.count

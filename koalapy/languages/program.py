"""Checks the program of a sweep: the parameters that its texts use, and its component."""

from collections.abc import Collection, Iterable, Iterator

from koalapy.languages.parameters import NUMBER, TemplateError, names_in
from koalapy.languages.stageout import PLACES, stage_out_texts
from koalapy.model.request import ComponentRequest, Launch, Request
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.validation import refusal
from koalapy.model.textfile.words import listed, nearest, shown

Uses = dict[str, Path]  # by name: the path of the first text that uses it

_COMPONENT = ("components", 0)


def check_sweep(request: Request, document: Document) -> None:
    """Raises RequestError for a job whose component cannot be the program of a sweep."""
    component, components = request.components[0], len(request.components)
    if components != 1:
        what, advice = (
            f"are {components}, but a sweep has one program",
            "Write one component, or leave the parameters out.",
        )
        raise refusal(document, ("components",), "not_one_component", what, advice)
    if component.processors != component.threads_per_process:
        what = f"is {component.processors}, but each parameter is one process of {component.threads_per_process}"
        advice = "Write 1, or as many as threads_per_process."
        raise refusal(document, (*_COMPONENT, "processors"), "not_one_process", what, advice)
    if component.launch is Launch.MPI:
        what, advice = "is mpi, but each parameter is one process", "Remove it, or let the program call mpirun."
        raise refusal(document, (*_COMPONENT, "launch"), "wrong_value", what, advice)
    if component.optional:
        raise refusal(document, (*_COMPONENT, "optional"), "wrong_value", "is true of a sweep's program", "Remove it.")


def uses_of(request: Request, document: Document) -> Uses:
    """Return the names in executable, arguments and environment. Raises RequestError for a lone brace."""
    return _uses(_texts(request.components[0]), document)


def uses_in_paths(request: Request, document: Document) -> Uses:
    """Return the names in the paths to stage in and out. Raises RequestError for a lone brace."""
    staged_in: Iterable[tuple[Path, str]] = ((("stage_in", index), path) for index, path in enumerate(request.stage_in))
    return _uses(staged_in, document) | _uses(stage_out_texts(request), document)


def _uses(texts: Iterable[tuple[Path, str]], document: Document) -> Uses:
    found: Uses = {}
    for path, text in texts:
        try:
            for name in names_in(text):
                found.setdefault(name, path)
        except TemplateError as error:
            brace = str(error)[-1]
            advice = f"Write {brace}{brace} for a brace, and {{x}} for a parameter's value."
            raise refusal(document, path, "lone_brace", f"is {shown(text)}, which {error}", advice) from error
    return found


def check_known(uses: Uses, known: Collection[str], document: Document) -> None:
    """Raises RequestError for an unknown name that is used."""
    for name, path in uses.items():
        if name != NUMBER and name not in known and not (path[-1] == "to" and name in PLACES):
            raise refusal(
                document,
                path,
                "unknown_name",
                f"uses {{{shown(name, quote='')}}}, which is not a parameter",
                _meant(name, known),
            )


def check_used(uses: Uses, declared: Collection[str], document: Document) -> None:
    """Raises RequestError for a name that the program does not use: all its runs would be the same."""
    for name in declared:
        if name not in uses:
            advice = f"Write {{{name}}} into an argument, a variable or the executable, or remove the parameter."
            raise refusal(document, ("parameters", name), "unused_name", "is used nowhere", advice)


def _meant(name: str, known: Collection[str]) -> str:
    braces = "Write {{ and }} for literal braces."
    if (meant := nearest(name, known)) is not None:
        return f"Did you mean {{{meant}}}? {braces}"
    return f"Available: {listed((f'{{{each}}}' for each in (*known, NUMBER)), 'and')}. {braces}"


def _texts(component: ComponentRequest) -> Iterator[tuple[Path, str]]:
    yield (*_COMPONENT, "executable"), component.executable
    for index, text in enumerate(component.arguments):
        yield (*_COMPONENT, "arguments", index), text
    for name, text in component.environment:
        yield (*_COMPONENT, "environment", name), text

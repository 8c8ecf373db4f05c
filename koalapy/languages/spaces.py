"""Converts the parameters of a job file into the space of a sweep: counts files, and combines values."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from koalapy.languages.jobfile import MOST_BYTES, JobKeys
from koalapy.languages.parameters import Combine, Parameter, literal
from koalapy.languages.paths import covers, staged_name, twice
from koalapy.languages.program import Uses, check_known, check_sweep, check_used, uses_in_paths, uses_of
from koalapy.languages.ranges import MOST_PARAMETERS
from koalapy.languages.stageout import check_apart
from koalapy.languages.tables import OpenFile, SweepFiles, Table
from koalapy.model.parameters import Axis, Source, Space
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.validation import refusal
from koalapy.model.textfile.words import shown, use_known
from koalapy.model.units import MINUTE, Duration

PARAMETER_WALLTIME = Duration(50 * MINUTE)  # of a job without walltime: it fits into a Launcher of an hour


class _Values(NamedTuple):
    """The values of one name, and their number. `file`: their file. `table`: the file of which they are a column."""

    source: Source
    size: int
    file: str = ""
    table: str = ""


def with_parameters(request: Request, job: JobKeys, document: Document, open_file: OpenFile | None) -> Request:
    """Return the request of a sweep if the job is one, else the same request. Raises RequestError."""
    if job.parameters is None and not job.csv:
        return request
    check_sweep(request, document)
    uses, paths = uses_of(request, document), uses_in_paths(request, document)
    values = _all_values(job, paths | uses, document, SweepFiles(request.directory, document, open_file))
    check_known(paths | uses, values, document)
    check_used(uses, job.parameters or {}, document)
    space = _space(values, _groups(job, values, document), document)
    check_apart(request, space, document)
    staged = _staged(request.stage_in, values.values(), document)
    return replace(request, parameters=space, stage_in=staged, components=(_one_parameter(request, job),))


def _one_parameter(request: Request, job: JobKeys) -> ComponentRequest:
    (component,), (written,) = request.components, job.components
    has_walltime = "walltime" in written.model_fields_set
    return component if has_walltime else replace(component, walltime=PARAMETER_WALLTIME)


def _all_values(job: JobKeys, uses: Uses, document: Document, files: SweepFiles) -> dict[str, _Values]:
    """Return the values by name, in the order of the job file. Of a table, only the columns that the program uses.

    Raises RequestError.
    """
    values = {}
    for name, parameter in (job.parameters or {}).items():
        values[name] = _values(name, parameter, document, files)
    for index, file in enumerate(job.csv):
        where = ("csv", index)
        table = files.rows(file, where)
        columns = [name for name in dict.fromkeys(table.names) if name and name in uses]
        if not columns:
            what = f"is {shown(file)}, none of whose columns the program uses"
            raise refusal(document, where, "unused_name", what, _use_one_of(table))
        for name in columns:
            if name in values:
                what = f"is {shown(file)}, whose column {shown(name)} is a parameter already"
                raise refusal(document, where, "duplicate_name", what, "Rename one of them.")
            values[name] = _column(name, name, file, table, where, document)
    return values


def _values(name: str, parameter: Parameter, document: Document, files: SweepFiles) -> _Values:
    where = ("parameters", name)
    if parameter.loop is not None:
        first, last, step, without, size = parameter.loop
        return _Values(Source(names=(name,), loop=(first, last, step), without=without), size)
    if parameter.file is None:
        texts = parameter.values or ()
        return _Values(Source(names=(name,), values=texts), len(texts))
    if parameter.column is not None:
        return _column(name, parameter.column, parameter.file, files.rows(parameter.file, where), where, document)
    lines = files.lines(parameter.file, where).lines
    return _Values(Source(names=(name,), file=staged_name(parameter.file), lines=lines), lines, parameter.file)


def _column(name: str, heading: str, file: str, table: Table, where: Path, document: Document) -> _Values:
    if heading not in table.names:
        what = f"asks for the column {shown(heading)}, which {file} does not have"
        raise refusal(
            document, where, "unknown_column", what, use_known(heading, [each for each in table.names if each])
        )
    if table.names.count(heading) > 1:
        what = f"asks for the column {shown(heading)}, which {file} has twice"
        raise refusal(document, where, "duplicate_name", what, "Rename one of them.")
    source = Source(names=(name,), file=staged_name(file), column=table.names.index(heading), lines=table.lines)
    return _Values(source, table.lines, file, file)


def _use_one_of(table: Table) -> str:
    name = next((name for name in table.names if name), "NAME")
    if len(table.names) == 1 and ("\t" in name or ";" in name):
        return "Separate its columns by commas."
    return f"Write {{{name}}} into an argument."


def _groups(job: JobKeys, values: Mapping[str, _Values], document: Document) -> list[list[str]]:
    """Return the groups of names that vary together. Columns of one table always do. Raises RequestError."""
    if job.combine is Combine.ZIP:
        return [list(values)]
    together = [[name for name, each in values.items() if each.table == table] for table in _tables(values)]
    for group in job.combine if isinstance(job.combine, tuple) else ():
        if unknown := [name for name in group if name not in values]:
            advice = use_known(unknown[0], list(values))
            raise refusal(
                document, ("combine",), "unknown_name", f"names {shown(unknown[0])}, which is not a parameter", advice
            )
        together.append(list(group))
    return _merged(list(values), together)


def _tables(values: Mapping[str, _Values]) -> list[str]:
    return list(dict.fromkeys(each.table for each in values.values() if each.table))


def _merged(names: Sequence[str], together: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the groups in the order of `names`. Groups with a common name are merged; each name is in one."""
    group_of = {name: [name] for name in names}
    for each in together:
        members = {other for name in each for other in group_of[name]}
        joined = [name for name in names if name in members]
        group_of.update(dict.fromkeys(joined, joined))
    return list({id(group): group for group in group_of.values()}.values())


def _space(values: Mapping[str, _Values], groups: Iterable[Sequence[str]], document: Document) -> Space:
    space = Space(axes=tuple(_axis([values[name] for name in group], group, document) for group in groups))
    if space.count > MOST_PARAMETERS:
        what = f"are {space.count:,} parameters, more than {MOST_PARAMETERS:,}"
        raise refusal(document, ("parameters",), "too_many", what, "Submit it as several sweeps.")
    if len(json.dumps(asdict(space))) > MOST_BYTES:
        what = f"has values of more than {MOST_BYTES:,} bytes"
        raise refusal(document, ("parameters",), "too_large", what, "Put them into a file, one a line, and name it.")
    return space


def _axis(values: Sequence[_Values], names: Sequence[str], document: Document) -> Axis:
    for name, each in zip(names, values, strict=True):
        if each.size != values[0].size:
            what = f"has {each.size:,} values and {names[0]} {values[0].size:,}, but they vary together"
            where = ("parameters", name) if not each.table else ("csv",)
            raise refusal(document, where, "unequal_lengths", what, "Write as many of each, or combine them as cross.")
    return Axis(sources=tuple(each.source for each in values), count=values[0].size)


def _staged(stage_in: tuple[str, ...], values: Iterable[_Values], document: Document) -> tuple[str, ...]:
    """Return the templates of all files to stage in, those of parameters included. Raises RequestError."""
    files = dict.fromkeys(each.file for each in values if each.file)
    more = [file for file in files if not any(covers(name, file) for name in stage_in)]
    if found := twice([*stage_in, *more]):
        name = [*stage_in, *more][found[0]]
        what = f"names {shown(name)}, where another file lies already ({shown(found[1])})"
        raise refusal(document, ("parameters",), "staged_twice", what, "Rename one of them.")
    return (*stage_in, *map(literal, more))

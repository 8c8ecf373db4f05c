"""Parameters as users write them: on the command line, in job files, in files of lines and columns."""

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from textwrap import dedent
from typing import IO, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from koalapy_adapters.launcher import space as evaluator
from koalapy_adapters.launcher.parameter_files import Lines
from pydantic_core import PydanticCustomError

from koalapy.languages import from_mapping, read_job, sweep_request
from koalapy.languages.parameters import TemplateError, literal, names_in
from koalapy.languages.ranges import Loop, as_loop
from koalapy.languages.reading import json_schema
from koalapy.languages.tables import LONGEST_LINE, BadFile, OpenFile, Table, count_lines, count_rows
from koalapy.model.errors import Reason, RequestError
from koalapy.model.parameters import Axis, Source, Space
from koalapy.model.request import Request
from koalapy.model.units import MINUTE
from koalapy.runtime.parameters import line_reader, open_regular, with_staged

HEAD = "components: [{processors: 1, executable: ./solve, arguments: [%s]}]\n"


def files(contents: Mapping[str, bytes]) -> OpenFile:
    """A function that opens these files by path."""

    def open_file(path: str) -> IO[bytes]:
        if path not in contents:
            raise FileNotFoundError(2, "No such file or directory", path)
        return io.BytesIO(contents[path])

    return open_file


FILES = {
    "/here/names": b"ann\nbob\nc\xff\n",
    "/here/table.csv": b'time,temp,name\n1,0.5,"a,b"\n2,0.25,c\n',
    "/here/other.csv": b"u,v\n1,2\n3,4\n5,6\n",
    "/data/abs.csv": b"k\n7\n",
}


def sweep(program: Sequence[str], *parameters: str, **more: Any) -> Request:
    job = sweep_request(["./solve", *program], parameters, **more)
    return from_mapping(job, "koala sweep", "/here", open_file=files(FILES))


def job(text: str, arguments: str = '"{x}"') -> Request:
    return read_job(HEAD % arguments + text, "job.yaml", "/here", open_file=files(FILES))


def refused(call: Callable[..., Any], *given: Any, **more: Any) -> Reason:
    with pytest.raises(RequestError) as caught:
        call(*given, **more)
    return caught.value.reason


def axes(request: Request) -> tuple[Axis, ...]:
    assert request.parameters is not None
    return request.parameters.axes


def rows(request: Request) -> list[dict[str, str]]:
    """The values of all parameters as the nodes compute them, in the order of numbers."""
    assert request.parameters is not None
    space = asdict(request.parameters)
    contents = {path.rpartition("/")[2]: data.splitlines() for path, data in FILES.items()}
    return [
        evaluator.values(space, number, lambda file, index: contents[file][index])
        for number in range(1, request.parameters.count + 1)
    ]


def test_a_range_stays_a_range() -> None:
    request = sweep(["{x}", "{y}"], "x=1:1000000000", "y=1:1")
    assert request.parameters == Space(
        axes=(
            Axis(sources=(Source(names=("x",), loop=("1", "1000000000", "1")),), count=1_000_000_000),
            Axis(sources=(Source(names=("y",), loop=("1", "1", "1")),), count=1),
        )
    )
    assert request.components[0].arguments == ("{x}", "{y}")
    assert request.components[0].processors == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1:4", ["1", "2", "3", "4"]),
        ("1:10:4", ["1", "5", "9"]),
        ("3:1:-1", ["3", "2", "1"]),
        ("0.1:0.5:0.2", ["0.1", "0.3", "0.5"]),
        ("1e-3:3e-3:1e-3", ["0.001", "0.002", "0.003"]),
        (".5:+1.5", ["0.5", "1.5"]),
        ("1.:2", ["1", "2"]),
        ("08:10", ["08", "09", "10"]),
        ("-1:1", ["-1", "0", "1"]),
        ("5:5", ["5"]),
        (" 1 : 2 ", ["1", "2"]),
        ("a,b,c", ["a", "b", "c"]),
        ("a, b c ,d", ["a", "b c", "d"]),
        ("1,2", ["1", "2"]),
        ("one", ["one"]),
        ("http://a:80", ["http://a:80"]),
        ("C:\\data", ["C:\\data"]),
        ("a:b,c:d", ["a:b", "c:d"]),
        ("@names", ["ann", "bob", "c\udcff"]),
        ("a=b", ["a=b"]),
        ("2024-12", ["2024-12"]),
        ("1.3", ["1.3"]),
    ],
)
def test_values_on_the_command_line(text: str, wanted: list[str]) -> None:
    assert [each["x"] for each in rows(sweep(["{x}"], f"x={text}"))] == wanted


def test_crossed_values_vary_fastest_in_the_last_parameter() -> None:
    assert [tuple(each.values()) for each in rows(sweep(["{x}{y}"], "x=1:2", "y=a,b"))] == list(product("12", "ab"))


def test_zip_combines_parameters_pairwise() -> None:
    request = sweep(["{x}{y}{time}"], "x=1:2", "y=a,b", csv=["table.csv"], combine="zip")
    assert [tuple(each.values()) for each in rows(request)] == [("1", "a", "1"), ("2", "b", "2")]
    assert len(axes(request)) == 1


def test_columns_of_one_file_vary_together() -> None:
    request = sweep(["{x}", "{name}", "{temp}"], "x=1:2", csv=["table.csv"])
    assert [tuple(each.values()) for each in rows(request)] == [
        ("1", "0.5", "a,b"), ("1", "0.25", "c"), ("2", "0.5", "a,b"), ("2", "0.25", "c"),
    ]  # fmt: skip
    assert request.stage_in == ("table.csv",)


def test_two_files_of_columns_are_crossed() -> None:
    request = sweep(["{u}", "{time}", "{k}"], csv=["other.csv", "table.csv", "/data/abs.csv"])
    assert [axis.count for axis in axes(request)] == [3, 2, 1]
    assert request.stage_in == ("other.csv", "table.csv", "/data/abs.csv")
    assert axes(request)[2].sources == (Source(names=("k",), file="abs.csv", column=0, lines=1),)


def test_a_sweep_with_several_processors_for_each_parameter() -> None:
    request = sweep(["{x}"], "x=1:2", processors=4, component={"walltime": "5m"}, name="mine", priority=3)
    assert (request.components[0].processors, request.components[0].threads_per_process) == (4, 4)
    assert (request.name, request.priority) == ("mine", 3)


@pytest.mark.parametrize(("options", "walltime"), [({}, 50 * MINUTE), ({"walltime": "1h"}, 60 * MINUTE)])
def test_a_parameter_without_a_walltime_fits_into_a_launcher_of_an_hour(options: dict[str, str], walltime: int) -> None:
    request = sweep(["{x}"], "x=1:2", component=options)
    assert request.components[0].walltime == walltime


def test_a_job_file_may_contain_parameters() -> None:
    text = """\
parameters:
  x: 1:3
  y: [a, "b,c", "", 1:30]
  z: {range: 1:10:3, except: [4, 5]}
  n: {file: names}
  t: {file: table.csv, column: temp}
  m: {file: ./table.csv, column: name}
  v: {values: [p]}
"""
    request = job(text, ", ".join(f'"{{{name}}}"' for name in "xyznvtm"))
    found = rows(request)
    assert [len({each[name] for each in found}) for name in "xyzntmv"] == [3, 4, 3, 3, 2, 2, 1]
    assert list(found[0]) == ["x", "y", "z", "n", "t", "m", "v"]
    assert {each["y"] for each in found} == {"a", "b,c", "", "1:30"}
    assert {each["z"] for each in found} == {"1", "7", "10"}
    assert {(each["t"], each["m"]) for each in found} == {("0.5", "a,b"), ("0.25", "c")}
    assert request.stage_in == ("names", "table.csv")


def test_combined_names_vary_together() -> None:
    text = "parameters: {x: 1:2, y: [p, q], z: [a, b], w: [c, d]}\ncombine: [[x, z], [y, w]]\n"
    found = rows(job(text, '"{x}{y}{z}{w}"'))
    assert [(each["x"], each["z"], each["y"], each["w"]) for each in found] == [
        ("1", "a", "p", "c"), ("1", "a", "q", "d"), ("2", "b", "p", "c"), ("2", "b", "q", "d"),
    ]  # fmt: skip


def test_names_are_used_in_executable_arguments_and_environment() -> None:
    text = """\
components:
  - {processors: 1, executable: "./run-{x}", arguments: ["{{x}}"], environment: {Y: "{y}", N: "{#}"}}
parameters: {x: 1:2, y: 3:4}
"""
    assert read_job(text, "job.yaml", "/here").parameters is not None


def test_without_parameters_braces_are_literal() -> None:
    assert job("", '"{x}", "{", "}}"').components[0].arguments == ("{x}", "{", "}}")


def test_a_parameter_file_that_is_already_staged_is_staged_once() -> None:
    assert sweep(["{x}"], "x=@names", stage_in=["./names"]).stage_in == ("./names",)
    assert sweep(["{x}"], "x=@names", stage_in=["."]).stage_in == (".",)
    assert sweep(["{x}"], "x=@names", stage_in=["nam*"]).stage_in == ("nam*", "names")


def test_an_override_replaces_the_values_of_a_parameter() -> None:
    text = HEAD % '"{x}"' + "parameters: {x: 1:3}\n"
    found = read_job(text, "job.yaml", "/here", overrides={"parameters.x": "5:6"})
    assert [each["x"] for each in rows(found)] == ["5", "6"]


COMMANDS = [
    (["x=1-100"], "is '1-100', which would be one value. Write 1:100 for a range;"),
    (["x=1..100"], "is '1..100', which would be one value. Write 1:100 for a range;"),
    (["x=a:b"], "is 'a:b', which would be one value. Write numbers, such as 1:100, for a range;"),
    (["x=1o:100"], "is '1o:100', which would be one value."),
    (["x=1:1o0"], "is '1:1o0', and '1o0' is not a number."),
    (["x=l:100:5"], "for that very text write a list in a job file, [l:100:5]."),
    (["x=1:0"], "'1:0', and steps of 1 from 1 never reach 0. Write 1:0:-1, or 0:1:1."),
    (["x=1:10:-2"], "'1:10:-2', and steps of -2 from 1 never reach 10. Write 1:10:2, or 10:1:-2."),
    (["x=1:10:0"], "parameters.x is '1:10:0', with a step of zero."),
    (["x=1:1:0.0"], "with a step of zero"),
    (["x=1:ten"], "is '1:ten', and 'ten' is not a number."),
    (["x=1:2:3:4"], None),
    (["x=1:"], "is '1:', and '' is not a number."),
    (["x=:10"], "is ':10', and '' is not a number."),
    (["x=:10:2"], "is ':10:2', and '' is not a number."),
    (["x=1:1e999"], "more than 40 digits"),
    (["x=1:nan"], "'nan' is not a number"),
    (["x=1:10000000000"], "of more than 1,000,000,000 numbers"),
    (["x=1:100000", "xx=1:100000"], "are 10,000,000,000 parameters, more than 1,000,000,000."),
    (["x="], "parameters.x is empty."),
    (["x=a,,b"], "with nothing between two commas"),
    (["x=a,"], "with nothing between two commas"),
    (["x=1:3,7"], "'1:3,7', a list with a range in it."),
    (["x=1:2", "x=3"], "-p x is given twice."),
    (["x"], "-p 'x' names no parameter. Write -p NAME=VALUES"),
    (["=1"], "-p '=1' names no parameter."),
    (["2=1"], "parameters.2 is not a valid parameter name."),
    (["x-y=1"], "parameters.x-y is not a valid parameter name."),
    ([], "The sweep has no parameters."),
    (["x=1", "y=2"], "parameters.y is used nowhere. Write {y} into an argument"),
    (["xx=1"], "components.0.arguments.0 uses {x}, which is not a parameter. Did you mean {xx}?"),
    (["z=1"], "uses {x}, which is not a parameter. Available: {z} and {#}. Write {{ and }} for literal braces."),
    (["x=@gone"], "is the file 'gone', which cannot be read: No such file or directory."),
    (["x=@"], "parameters.x.file is empty"),
    (["x=a\0b"], "NUL"),
    ([f"x={','.join(map(str, range(100_000)))}"], "has values of more than 262,144 bytes. Put them into a file"),
]


@pytest.mark.parametrize(("parameters", "words"), COMMANDS)
def test_a_mistake_on_the_command_line_is_explained(parameters: list[str], words: str | None) -> None:
    if words is None:
        assert [each["x"] for each in rows(sweep(["{x}"], *parameters))] == ["1:2:3:4"]
        return
    program = ["{x}{xx}"] if len(parameters) > 1 and parameters[1].startswith("xx") else ["{x}"]
    reason = refused(sweep, program, *parameters)
    assert words in str(reason)
    assert reason.advice
    assert "\n" not in reason.message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{x}", "{"], "components.0.arguments.1 is '{', which has a lone {. Write {{ for a brace"),
        (["{x}", "a}"], "components.0.arguments.1 is 'a}', which has a lone }. Write }} for a brace"),
        (["{x}", "{print $1}"], "components.0.arguments.1 uses {print $1}, which is not a parameter."),
        (["{x}", "{}"], "components.0.arguments.1 uses {}, which is not a parameter."),
    ],
)
def test_a_mistake_in_the_program_is_explained(arguments: list[str], words: str) -> None:
    assert words in str(refused(sweep, arguments, "x=1:2"))


JOBS = [
    ("parameters: {x: 10:1}\n", "job.yaml:2:14: parameters.x is '10:1', and steps"),
    ("parameters:\n  x: 1:2\n  y: 2\n", "job.yaml:4:3: parameters.y is used nowhere."),
    ("parameters: {x: 1, x: 2}\n", "parameters.x stands here a second time"),
    ("parameters: {}\n", "parameters is empty."),
    ("parameters: [1]\n", "parameters is a list where keys and values belong."),
    ("parameters: {x: }\n", "parameters.x is nothing where values belong."),
    ("parameters: {x: []}\n", "parameters.x has no values."),
    ("parameters: {x: [[1]]}\n", "parameters.x.values.0 is a list where text belongs."),
    ("parameters: {x: {}}\n", "parameters.x has no values."),
    ("parameters: {x: {range: 1:2, file: names}}\n", "parameters.x has range and file."),
    ("parameters: {x: {values: [1], column: a}}\n", "parameters.x has column without a file."),
    ("parameters: {x: {values: [1], except: [1]}}\n", "parameters.x has except without a range."),
    ("parameters: {x: {range: 1:2, except: [1, 2]}}\n", "is '1:2', and all of it is left out."),
    ("parameters: {x: {range: 1:2, except: [one]}}\n", "parameters.x is 'one', not a number."),
    ("parameters: {x: {range: 5}}\n", "parameters.x is '5', no range."),
    ("parameters: {x: {fiel: names}}\n", "parameters.x.fiel is not a known key. Did you mean file?"),
    ("parameters: {x: {file: table.csv, column: tmp}}\n", "'tmp', which table.csv does not have. Did you mean temp?"),
    ("parameters: {x: {file: /etc/../x}}\n", "cannot be read: No such file"),
    ("parameters: {x: 1:2}\nstage_out: [a]\n", "job.yaml:3:13: stage_out.0 is 'a', the same path for several"),
    ("parameters: {x: 1:2}\ncombine: zipp\n", "job.yaml:3:1: combine is 'zipp'. Write cross, zip, or lists"),
    ("parameters: {x: 1:2}\ncombine: [[x, q]]\n", "combine names 'q', which is not a parameter."),
    ("parameters: {x: 1:2}\ncombine: [[x], [x]]\n", "combine names x twice."),
    ("combine: zip\n", "combine needs parameters."),
    ("order: back-home\n", "order needs parameters."),
    ("csv: table.csv\n", "csv.0 is 'table.csv', none of whose columns the program uses. Write {time} into"),
    ("parameters: {x: 1}\nstage_in: [a/names]\ncsv: [/data/abs.csv, b/abs.csv]\n", "csv.0 is '/data/abs.csv', none"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), JOBS)
def test_a_mistake_in_a_job_file_is_explained(text: str, words: str) -> None:
    reason = refused(job, text)
    assert words in str(reason)
    assert reason.advice


def test_zip_refuses_parameters_of_different_lengths() -> None:
    reason = refused(sweep, ["{x}{y}"], "x=1:3", "y=a,b", combine="zip")
    assert reason.code == "unequal_lengths"
    assert "parameters.y has 2 values and x 3, but they vary together." in str(reason)
    assert "csv has 2 values and x 3" in str(refused(sweep, ["{x}{time}"], "x=1:3", csv=["table.csv"], combine="zip"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("components: [{processors: 2, executable: a}]\n", "processors is 2, but each parameter is one process of 1."),
        ("components: [{processors: 1, executable: a}, {processors: 1, executable: a}]\n", "components are 2, but"),
        ("components: [{processors: 1, executable: '{y}'}]\n", "job.yaml:1:30: components.0.executable uses {y}"),
        ("components: [{processors: 1, executable: 'a', environment: {E: '{y}'}}]\n", "environment.E uses {y}"),
    ],
)
def test_components_that_are_no_sweep_are_refused(text: str, words: str) -> None:
    assert words in str(refused(read_job, text + "parameters: {x: 1}\n", "job.yaml", "/here"))


def test_ambiguous_names_are_refused() -> None:
    contents = {"/here/a.csv": b"x,y,y,\n1,2,3,4\n"}

    def read(*given: Any) -> Request:
        return from_mapping(sweep_request(*given, csv=["a.csv"]), "s", "/here", open_file=files(contents))

    assert "csv.0 is 'a.csv', whose column 'x' is a parameter already." in str(refused(read, ["p", "{x}"], ["x=1"]))
    assert "asks for the column 'y', which a.csv has twice." in str(refused(read, ["p", "{y}"]))
    assert [source.names for source in axes(read(["p", "{x}"]))[0].sources] == [("x",)], (
        "an unused column may be there twice"
    )


@pytest.mark.parametrize("separator", [";", "\t"])
def test_another_separator_of_columns_is_refused_with_advice(separator: str) -> None:
    contents = {"/here/t.csv": separator.join("xy").encode() + b"\n1\n"}
    job = sweep_request(["p", "{x}"], ["x=1"], csv=["t.csv"])
    reason = refused(from_mapping, job, "s", "/here", open_file=files(contents))
    assert reason.advice == "Separate its columns by commas."


def test_two_files_with_one_staged_path_are_refused() -> None:
    contents = {"/a/t.csv": b"x\n1\n", "/b/t.csv": b"y\n1\n"}
    job = sweep_request(["p", "{x}{y}"], csv=["/a/t.csv", "/b/t.csv"])
    assert "where another file lies already" in str(refused(from_mapping, job, "s", "/", open_file=files(contents)))


def test_a_file_of_values_is_refused_where_files_cannot_be_read() -> None:
    assert "nobody reads files here" in str(refused(from_mapping, sweep_request(["p", "{x}"], ["x=@f"]), "s", "/"))


# Files


def lines_of(data: bytes) -> Table | BadFile:
    return table_of(count_lines, data)


def rows_of(data: bytes) -> Table | BadFile:
    return table_of(count_rows, data)


def table_of(count: Callable[[IO[bytes]], Table], data: bytes) -> Table | BadFile:
    try:
        return count(io.BytesIO(data))
    except BadFile as error:
        return error


@pytest.mark.parametrize(
    ("data", "lines"),
    [(b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\r\nb\r\n\r\n\n", 2), (b"\xef\xbb\xbfa\n", 1), (b" \n", 1), (b"a\r", 1)],
)
def test_lines_are_counted(data: bytes, lines: int) -> None:
    assert lines_of(data) == Table((), lines)


BAD_LINES = [
    (b"", 0, "holds no line"),
    (b"\n\n\n", 0, "holds no line"),
    (b"\xef\xbb\xbf", 0, "holds no line"),
    (b"\na", 1, "is empty"),
    (b"a\n\r\n\nb", 2, "is empty"),
    (b"a\n" * 700_000 + b"\n" * 3 + b"a\n" * 700_000, 700_001, "is empty"),
    (b"ab\n" * 700_000 + b"\0\n", 700_001, "holds a NUL"),
    (b"a\n" + b"b" * (LONGEST_LINE + 1), 2, "has more than 131,071 bytes"),
    (b"a\n" + b"b" * (LONGEST_LINE + 1) + b"\nc\n", 2, "has more than 131,071 bytes"),
]


@pytest.mark.parametrize(("data", "line", "words"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_bad_line_is_named(data: bytes, line: int, words: str) -> None:
    found = lines_of(data)
    assert isinstance(found, BadFile)
    assert (found.line, words in found.what) == (line, True)


MILLION = b"a,b,c\n" + b"1,2,3\n" * 499_998
BAD_ROWS = [
    (MILLION + b"4,5\n" + b"1,2,3\n" * 500_000, 500_000, "has 2 columns where the heading has 3"),
    (MILLION + b"4,5,6,7\n", 500_000, "has 4 columns where the heading has 3"),
    (MILLION + b'4,"5,6\n' + b"1,2,3\n", 500_000, "has a quote that it does not close"),
    (b'a,b,c\n1,"2\n3",4\n', 2, "has a quote that it does not close"),
    (b'a,b,c\n1,2,"3"x\n', 2, "is not a row of comma-separated values"),
    (b"a,b\n1,2\n\n3,4\n", 3, "is empty"),
    (b"a,b\n", 0, "holds no row below a heading"),
    (b"", 0, "holds no row below a heading"),
    (b"\n1\n", 1, "is empty"),
    (b"\xff\n1\n", 1, "is a heading that is not UTF-8"),
    (b'"a\n1\n', 1, "has a quote that it does not close"),
]


@pytest.mark.parametrize(("data", "line", "words"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_bad_row_is_named(data: bytes, line: int, words: str) -> None:
    found = rows_of(data)
    assert isinstance(found, BadFile)
    assert (found.line, words in found.what) == (line, True)


def test_a_bad_line_is_one_sentence_with_its_number() -> None:
    contents = {"/here/t.csv": b"x,y\n1,2\n3\n"}
    job = sweep_request(["p", "{x}"], csv=["t.csv"])
    reason = refused(from_mapping, job, "koala sweep", "/here", open_file=files(contents))
    assert reason.message == "t.csv:3: the line has 1 column where the heading has 2."


def test_an_endless_line_is_refused_without_being_held() -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def read(self, size: int = -1) -> bytes:
            assert 0 < size <= 1 << 20
            self.taken += size
            assert self.taken < 8 << 20
            return b"x" * size

    with pytest.raises(BadFile, match="has more than"):
        count_lines(Endless())  # type: ignore[arg-type]


CELL = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=5)


@given(st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_the_counted_rows_are_those_that_the_nodes_read(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]], crlf: bool, last: bool
) -> None:
    end = "\r\n" if crlf else "\n"
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in [["a", "b"], *cells]]
    data = (end.join(quoted) + (end if last else "")).encode()
    assert rows_of(data) == Table(("a", "b"), len(cells))
    directory = tmp_path_factory.mktemp("rows")
    (directory / "t").write_bytes(data)
    read = Lines(str(directory)).read
    for index, row in enumerate(cells, 1):
        assert evaluator.split(read("t", index)) == [cell.encode() for cell in row]


@given(st.binary(max_size=60).map(lambda data: data.translate(bytes.maketrans(b"abcdefgh", b'\n\n\r\n,"""'))))
def test_any_file_is_counted_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """The nodes can read every line and row that was counted."""
    directory = tmp_path_factory.mktemp("any")
    (directory / "t").write_bytes(data)
    found, read = lines_of(data), Lines(str(directory)).read
    if isinstance(found, Table):
        assert all(read("t", index) for index in range(found.lines))
    table = rows_of(data)
    if isinstance(table, Table):
        for index in range(table.lines):
            assert len(evaluator.split(read("t", index + 1))) == len(table.names)


# Ranges and templates, compared with their evaluation on the nodes

NUMBERS = st.decimals(min_value=-50, max_value=50, places=1).map(str)


@given(NUMBERS, NUMBERS, NUMBERS, st.lists(NUMBERS, max_size=4))
def test_a_range_has_as_many_numbers_as_are_counted(first: str, last: str, step: str, without: list[str]) -> None:
    try:
        loop = as_loop(f"{first}:{last}:{step}", without)
    except PydanticCustomError:
        assume(False)
    values = values_of(loop)
    assert len(values) == loop.size
    assert float(values[0]) == float(first) or first in without
    ends = sorted((float(first), float(last)))
    assert all(ends[0] <= float(value) <= ends[1] for value in values)
    assert not {float(value) for value in values} & {float(value) for value in without}
    assert abs(float(last) - float(values[-1])) < abs(float(step)) * (len(without) + 1)


def values_of(loop: Loop) -> list[str]:
    source = Source(names=("x",), loop=loop[:3], without=loop.without)
    space = asdict(Space(axes=(Axis(sources=(source,), count=loop.size),)))
    return [evaluator.values(space, number)["x"] for number in range(1, loop.size + 1)]


@given(st.text(alphabet="{}xy# a"))
def test_both_sides_read_templates_alike(text: str) -> None:
    try:
        wanted = names_in(text)
    except TemplateError:
        with pytest.raises(ValueError, match="a lone"):
            evaluator.names_in(text)
        return
    assert evaluator.names_in(text) == wanted


@given(st.text())
def test_a_literal_text_has_no_names_and_is_unchanged(text: str) -> None:
    assert names_in(literal(text)) == []
    assert evaluator.Compiled({"axes": []}, [literal(text)]).of(1) == [text.encode()]


@given(st.text())
def test_any_parameter_is_read_or_refused(text: str) -> None:
    try:
        request = sweep(["{x}"], f"x={text}")
    except RequestError:
        return
    assert count_of(request) >= 1


def count_of(request: Request) -> int:
    assert request.parameters is not None
    return request.parameters.count


@st.composite
def given_values(draw: st.DrawFn, size: int) -> tuple[Any, list[str]]:
    """Values of one name as a user may write them, and their meaning: a range, one with exceptions, or a list."""
    first, step = draw(st.integers(-9, 9)), draw(st.sampled_from([-3, -1, 1, 2]))
    numbers = [str(first + place * step) for place in range(size)]
    last = first + (size - 1) * step
    texts = draw(
        st.lists(
            st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=3), min_size=size, max_size=size
        )
    )
    return draw(
        st.sampled_from(
            [
                (f"{first}:{last}:{step}", numbers),
                ({"range": f"{first - step}:{last}:{step}", "except": [str(first - step)]}, numbers),
                ({"values": texts}, texts),
                (texts, texts),
            ]
        )
    )


@given(st.data())
def test_combined_parameters_equal_a_product_of_zips(data: st.DataObject) -> None:
    """The names of each group vary together, the groups are crossed."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    groups = [
        {f"x{group}_{name}": data.draw(given_values(size)) for name in range(data.draw(st.integers(1, 2)))}
        for group, size in enumerate(sizes)
    ]
    everything = {name: each for group in groups for name, each in group.items()}
    mapping = sweep_request(["p", *(f"{{{name}}}" for name in everything)], ["x=1"])
    mapping |= {
        "parameters": {name: written for name, (written, _) in everything.items()},
        "combine": list(map(list, groups)),
    }
    wanted = [
        tuple(value for row in rows_of_groups for value in row)
        for rows_of_groups in product(
            *(zip(*(values for _, values in group.values()), strict=True) for group in groups)
        )
    ]
    assert [tuple(each.values()) for each in rows(from_mapping(mapping, "s", "/here"))] == wanted


# Schema, staging, documentation


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x\n")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a plain file"):
            open_regular(str(path))
    with open_regular(str(tmp_path / "file")) as file:
        assert file.read() == b"x\n"


def test_the_schema_has_the_keys_of_a_sweep() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert {"parameters", "csv", "combine", "order"} <= set(schema["properties"])
    parameter = json.dumps(schema["properties"]["parameters"])
    assert all(f'"{key}"' in parameter for key in ("range", "except", "values", "file", "column"))


def test_on_the_grid_side_files_are_read_where_they_were_submitted(tmp_path: Path) -> None:
    """On the nodes they are in one directory; here one is absolute, one above the directory, one below it."""
    here = tmp_path / "here"
    (here / "data").mkdir(parents=True)
    places = {"a": tmp_path / "abs.csv", "b": tmp_path / "up.csv", "c": here / "data" / "in.csv"}
    for name, path in places.items():
        path.write_text(f"{name}\n{name}{name}\n")
    job = sweep_request(["p", "{a}{b}{c}"], csv=[str(places["a"]), "../up.csv", "./data/in.csv"], stage_in=["data"])
    request = from_mapping(job, "s", str(here), open_file=open_regular)
    assert request.stage_in == ("data", str(places["a"]), "../up.csv")
    assert request.parameters is not None
    found = evaluator.values(asdict(request.parameters), 1, line_reader(request))
    assert found == {"a": "aa", "b": "bb", "c": "cc"}


def test_stage_in_expands_names_of_parameters() -> None:
    text = "parameters: {x: 1:3, y: [a, b], z: 1:100000}\nstage_in: %s\n"
    used = '"{x}{y}{z}"'
    found = with_staged(job(text % '["in-{x}.dat", "{y}/{x}", "a{{b}}", plain]', used)).stage_in
    assert found == (
        "in-1.dat", "in-2.dat", "in-3.dat", *(f"{y}/{x}" for x in (1, 2, 3) for y in "ab"), "a{b}", "plain",
    )  # fmt: skip
    many = refused(lambda: with_staged(job(text % '["in-{z}"]', used)))
    assert "stage_in has 'in-{z}', which is 100,000 files, more than 1,000." in str(many)
    assert "600,000 files" in str(refused(lambda: with_staged(job(text % '["in-{#}"]', used))))
    assert "job.yaml:3:12: stage_in.0 uses {q}, which is not a parameter." in str(refused(job, text % '["{q}"]', used))
    assert "stage_in.0 is 'a{', which has a lone {" in str(refused(job, text % '["a{"]', used))


def test_a_job_without_parameters_keeps_its_braces() -> None:
    request = read_job(HEAD % "a" + 'stage_in: ["{x}"]\n', "job.yaml", "/here")
    assert with_staged(request) is request


def test_a_path_that_is_no_text_is_refused() -> None:
    request = sweep(["{x}"], "x=@names", stage_in=["in-{x}"])
    reason = refused(with_staged, replace(request, directory="/nowhere"))
    assert "stage_in has 'in-{x}', of which not every file can be named" in str(reason)


def test_the_example_of_the_documentation_is_valid() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text()
    example = page.split("as a mapping for `Grid.submit`:\n")[1].split("\nIts one component")[0]
    contents = {"/here/names.txt": b"n\nm\n", "/here/runs.csv": b"case,temp,more\n1,2,3\n"}
    request = read_job(dedent(example), "job.yaml", "/here", open_file=files(contents))
    assert request.parameters is not None
    assert request.parameters.count == 1000 * 3 * 10 * 2
    assert [source.names for source in axes(request)[-1].sources] == [("t",), ("case",)]
    assert request.stage_in == ("solve", "names.txt", "runs.csv")

"""The evaluator of parameters on the node, against itertools: every number, both ways, exact to the byte."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from decimal import Decimal
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koalapy_adapters.launcher.parameter_files import Lines
from koalapy_adapters.launcher.space import Compiled, count, names, names_in, values

from koalapy.model.parameters import Axis, Source, Space

Json = dict[str, Any]


def space_of(*axes: Sequence[Source], counts: Sequence[int]) -> Json:
    return asdict(Space(axes=tuple(Axis(sources=tuple(a), count=c) for a, c in zip(axes, counts, strict=True))))


def loop(first: str, last: str, step: str, *without: str, name: str = "x") -> Source:
    return Source(names=(name,), loop=(first, last, step), without=without)


def all_of(space: Json, name: str = "x", read_line: Callable[[str, int], bytes] | None = None) -> list[str]:
    return [values(space, number, read_line)[name] for number in range(1, count(space) + 1)]


def by_decimals(first: str, last: str, step: str, without: Sequence[str]) -> list[Decimal]:
    """Return the values of a loop, step by step."""
    left_out, found, value = {Decimal(each) for each in without}, [], Decimal(first)
    while value <= Decimal(last) if Decimal(step) > 0 else value >= Decimal(last):
        if value not in left_out:
            found.append(value)
        value += Decimal(step)
    return found


DECIMALS = st.builds(
    lambda number, places: f"{Decimal(number).scaleb(-places):f}", st.integers(-99, 99), st.integers(0, 3)
)


@given(DECIMALS, DECIMALS, DECIMALS.filter(lambda step: abs(Decimal(step)) >= Decimal("0.01")), st.lists(DECIMALS))
def test_loops_are_exact(first: str, last: str, step: str, without: list[str]) -> None:
    wanted = by_decimals(first, last, step, without)
    found = all_of(space_of([loop(first, last, step, *without)], counts=[len(wanted)]))
    assert [Decimal(each) for each in found] == wanted
    assert not [each for each in found if each.startswith("-0") and not Decimal(each)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (("1", "5", "1"), ["1", "2", "3", "4", "5"]),
        (("0.1", "0.4", "0.1"), ["0.1", "0.2", "0.3", "0.4"]),
        (("8", "10", "0.5"), ["8.0", "8.5", "9.0", "9.5", "10.0"]),
        (("1", "-1", "-0.50"), ["1.00", "0.50", "0.00", "-0.50", "-1.00"]),
        (("-1", "1", "1"), ["-1", "0", "1"]),
        (("08", "11", "1"), ["08", "09", "10", "11"]),
        (("8", "011", "1"), ["008", "009", "010", "011"]),
        (("-01", "1", "1"), ["-01", "00", "01"]),
        (("00.5", "10", "5"), ["00.5", "05.5"]),
        (("0", "1", "1"), ["0", "1"]),
        (("0.5", "1.5", "1"), ["0.5", "1.5"]),
        (("100000000000000000000", "100000000000000000002", "2"), ["100000000000000000000", "100000000000000000002"]),
    ],
)
def test_numbers_are_written_as_their_ends_are(text: tuple[str, str, str], wanted: list[str]) -> None:
    assert all_of(space_of([loop(*text)], counts=[len(wanted)])) == wanted


def test_what_is_left_out_costs_no_walk() -> None:
    space = space_of([loop("1", "1000000000000", "1", "2", "1000", "1000", "7.5", "0")], counts=[10**12 - 2])
    assert [values(space, number)["x"] for number in (1, 2, 998, 999, 10**12 - 2)] == [
        "1", "3", "999", "1001", "1000000000000",
    ]  # fmt: skip


LISTS = st.lists(st.lists(st.text(max_size=3), min_size=1, max_size=4), min_size=1, max_size=4)


@given(LISTS)
def test_axes_are_a_product_of_which_the_last_varies_fastest(lists: list[list[str]]) -> None:
    axes = [[Source(names=(f"x{index}",), values=tuple(each))] for index, each in enumerate(lists)]
    space = space_of(*axes, counts=list(map(len, lists)))
    found = [tuple(values(space, number).values()) for number in range(1, prod(map(len, lists)) + 1)]
    assert found == list(itertools.product(*lists))


@given(st.integers(1, 5).flatmap(lambda size: st.lists(st.lists(st.text(max_size=3), min_size=size, max_size=size))))
def test_sources_of_an_axis_vary_together(lists: list[list[str]]) -> None:
    size = len(lists[0]) if lists else 3
    sources = [Source(names=(f"x{index}", f"again{index}"), values=tuple(each)) for index, each in enumerate(lists)]
    space = space_of(sources, [loop("1", "2", "1", name="n")], counts=[size, 2])
    found = [values(space, number) for number in range(1, 2 * size + 1)]
    rows = list(zip(*lists, strict=True)) or [()] * size
    for each, (row, n) in zip(found, itertools.product(rows, ("1", "2")), strict=True):
        assert each == {
            **{f"{name}{index}": value for index, value in enumerate(row) for name in ("x", "again")},
            "n": n,
        }


@given(LISTS, st.data())
def test_a_number_and_its_values_are_one_to_one(lists: list[list[str]], data: st.DataObject) -> None:
    """The other direction: from the places on the axes to the number, and back."""
    places = [data.draw(st.integers(0, len(each) - 1)) for each in lists]
    number = 1
    for position, place in enumerate(places):
        number += place * prod(map(len, lists[position + 1 :]))
    axes = [[Source(names=(f"x{index}",), values=tuple(each))] for index, each in enumerate(lists)]
    found = values(space_of(*axes, counts=list(map(len, lists))), number)
    assert list(found.values()) == [each[place] for each, place in zip(lists, places, strict=True)]


def test_names_and_count() -> None:
    space = space_of(
        [loop("1", "3", "1"), loop("4", "6", "1", name="y")], [loop("1", "2", "1", name="z")], counts=[3, 2]
    )
    assert names(space) == ["x", "y", "z"]
    assert count(space) == 6


X_AND_Y = space_of([loop("1", "3", "1")], [Source(names=("y",), values=("a", "50%", "ü", "{x}"))], counts=[3, 4])


def test_texts_become_those_of_a_number() -> None:
    texts = ["prog", "--x={x}", "{y}", "{x}{y}{x}", "100% %b %s", "{{x}}", "{{{x}}}", "{#}", "", "ünï", "a}}b{{"]
    compiled = Compiled(X_AND_Y, texts)
    assert compiled.of(6) == [
        b"prog", b"--x=2", b"50%", b"250%2", b"100% %b %s", b"{x}", b"{2}", b"6", b"", "ünï".encode(), b"a}b{",
    ]  # fmt: skip
    assert compiled.of(7)[2] == "ü".encode()
    assert compiled.of(4)[2] == b"{x}", "a value is no template"


@given(st.text())
def test_any_text_with_its_braces_doubled_is_itself(text: str) -> None:
    written = text.replace("{", "{{").replace("}", "}}")
    assert Compiled(X_AND_Y, [written, written + "{x}"]).of(1) == [text.encode(), text.encode() + b"1"]
    assert names_in(written + "{y}{x}") == ["y", "x"]


def test_bytes_that_are_no_utf8_arrive() -> None:
    space = space_of([Source(names=("x",), values=(b"\xff\xfe".decode(errors="surrogateescape"),))], counts=[1])
    assert Compiled(space, ["a{x}" + b"\xe9".decode(errors="surrogateescape")]).of(1) == [b"a\xff\xfe\xe9"]


@pytest.mark.parametrize("text", ["{", "a}b", "{x", "{x}}", "{{}", "{a{b}}"])
def test_a_lone_brace_is_no_template(text: str) -> None:
    with pytest.raises(ValueError, match="a lone"):
        Compiled(X_AND_Y, [text])


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no parameter is named z"):
        Compiled(X_AND_Y, ["{x}{z}"])


@pytest.mark.parametrize("number", [0, -1, 13])
def test_a_number_outside_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"no parameter {number}"):
        Compiled(X_AND_Y, []).of(number)


def lines_space(column: int, lines: int) -> Json:
    return space_of([Source(names=("x",), file="data/in", column=column, lines=lines)], counts=[lines])


def written(directory: Path, data: bytes) -> Lines:
    (directory / "data").mkdir(exist_ok=True)
    (directory / "data/in").write_bytes(data)
    return Lines(str(directory))


LINE = st.binary(max_size=6).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b""))


@given(
    lines=st.lists(LINE.filter(bool), min_size=1, max_size=20),
    crlf=st.booleans(),
    last=st.booleans(),
    mark=st.booleans(),
)
def test_lines_of_a_file_arrive_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], crlf: bool, last: bool, mark: bool
) -> None:
    end = b"\r\n" if crlf else b"\n"
    lines = [line.lstrip(b"\xef") or b"-" for line in lines]
    data = (b"\xef\xbb\xbf" if mark else b"") + end.join(lines) + (end if last else b"")
    found = written(tmp_path_factory.mktemp("lines"), data)
    compiled = Compiled(lines_space(-1, len(lines)), ["{x}"], found.read)
    assert [compiled.of(number) for number in range(1, len(lines) + 1)] == [[line] for line in lines]


def test_any_line_of_a_long_file_is_found(tmp_path: Path) -> None:
    count = 100_003
    found = written(tmp_path, b"".join(b"line %d\n" % number for number in range(count)))
    for index in (0, 255, 256, 257, count - 1, 511, 70_000, 512, 0):
        assert found.read("data/in", index) == b"line %d" % index
    with pytest.raises(ValueError, match=f"data/in has no line {count + 1}"):
        found.read("data/in", count)
    with pytest.raises(ValueError, match="data/in has no line"):
        found.read("data/in", 10 * count)


def test_a_column_stands_below_its_heading(tmp_path: Path) -> None:
    found = written(tmp_path, b'a,b\n1,"x, ""y"""\n2,\xff\n3,\n')
    assert [Compiled(lines_space(1, 3), ["{x}"], found.read).of(number)[0] for number in (1, 2, 3)] == [
        b'x, "y"', b"\xff", b"",
    ]  # fmt: skip
    assert all_of(lines_space(0, 3), read_line=found.read) == ["1", "2", "3"]


def test_a_file_that_is_not_as_it_was_is_reported(tmp_path: Path) -> None:
    found = written(tmp_path, b"a,b\n1\n")
    with pytest.raises(ValueError, match="data/in:2 has no column 2"):
        Compiled(lines_space(1, 2), ["{x}"], found.read).of(1)
    with pytest.raises(ValueError, match="other: No such file"):
        found.read("other", 0)


def test_a_file_that_shrinks_is_reported(tmp_path: Path) -> None:
    found = written(tmp_path, b"a\n" * 1000)
    assert found.read("data/in", 0) == b"a"
    (tmp_path / "data/in").write_bytes(b"a\n")
    with pytest.raises(ValueError, match="cut short"):
        found.read("data/in", 300)

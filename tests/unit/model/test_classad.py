"""Expressions in the ClassAd language, as they are checked before any library evaluates them."""

import pytest

from koalapy.model.textfile import place_at
from koalapy.model.textfile.classad import (
    MAX_DEPTH,
    MAX_TERMS,
    MAX_TEXT,
    ClassAdError,
    Kind,
    check_expression,
    in_classad,
)


@pytest.mark.parametrize(
    ("written", "evaluated", "attributes"),
    [
        ('other.OpSys == "Linux"', 'other.OpSys == "Linux"', ("OpSys",)),
        ("OpSys == other.opsys", "other.OpSys == other.opsys", ("OpSys",)),
        ("FreeCPUs >= MinNumCPU", "other.FreeCPUs >= self.MinNumCPU", ("FreeCPUs",)),
        ("TARGET.X > MY.minnumcpu", "other.X > self.minnumcpu", ("X",)),
        ("a > 1 // one\n && /* two */ b # three\n", "other.a > 1 && other.b", ("a", "b")),
        ('Member("MPI", other.RTE)', 'Member ( "MPI" , other.RTE )', ("RTE",)),
        ("a is undefined ? 1.5e3 : {1, 2}[0]", "other.a is undefined ? 1.5e3 : { 1 , 2 } [ 0 ]", ("a",)),
        ("!(a =!= b) || -c < 3", "! ( other.a =!= other.b ) || - other.c < 3", ("a", "b", "c")),
        ('regexp("^x", A)', 'regexp ( "^x" , other.A )', ("A",)),
        ("size({})", "size ( { } )", ()),
    ],
)
def test_each_attribute_gets_its_scope(written: str, evaluated: str, attributes: tuple[str, ...]) -> None:
    found = check_expression(written)
    assert (found.text, found.attributes) == (evaluated, attributes)


@pytest.mark.parametrize(
    ("text", "kind"), [("5", Kind.NUMBER), ('"a"', Kind.TEXT), ("true", Kind.NAME), ("a > 1", None)]
)
def test_a_constant_is_known_as_one(text: str, kind: Kind | None) -> None:
    assert check_expression(text).constant is kind


@pytest.mark.parametrize(
    ("text", "where", "code"),
    [
        ("", (1, 1), "syntax"),
        ("a >", (1, 4), "syntax"),
        ("a = 1", (1, 3), "syntax"),
        ("a\n&& (b", (2, 6), "syntax"),
        ("a )", (1, 3), "syntax"),
        ('a == "x', (1, 6), "syntax"),
        ('"\\q"', (1, 2), "syntax"),
        ('"\0"', (1, 1), "not_text"),
        ("/* a", (1, 1), "syntax"),
        ("a == 'x'", (1, 6), "syntax"),
        ("a ; b", (1, 3), "syntax"),
        ("other.1", (1, 6), "syntax"),
        ("other.a.b", (1, 8), "syntax"),
        ("time() > 1", (1, 1), "unknown_function"),
        ("1 > random()", (1, 5), "unknown_function"),
        ('eval("a")', (1, 1), "unknown_function"),
        ('userMap("a", "b")', (1, 1), "unknown_function"),
        ("self.Executable", (1, 6), "unknown_name"),
        ("[a = 1].a", (1, 1), "not_honoured"),
        ("regexp(a, b)", (1, 8), "bad_pattern"),
        (f'regexp("{"a" * 201}", b)', (1, 8), "bad_pattern"),
        ("9" * 30, (1, 1), "syntax"),
        (f"a < {2**63}", (1, 5), "syntax"),
        ("\x1b", (1, 1), "syntax"),
        ("a" * (MAX_TEXT + 1), (1, 1), "too_large"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, where: tuple[int, int], code: str) -> None:
    with pytest.raises(ClassAdError) as caught:
        check_expression(text)
    assert (place_at(text, caught.value.at), caught.value.code) == (where, code)
    assert caught.value.what.isprintable()
    assert caught.value.advice.endswith((".", "?"))


@pytest.mark.parametrize(
    "bomb",
    [
        "(" * 8_000 + "1" + ")" * 8_000,
        "{" * 8_000,
        "-" * 16_000 + "1",
        "!" * 16_000 + "1",
        " && ".join(["a"] * 3_000),
        "1?" * 4_000 + "1" + ":1" * 4_000,
        "size(" * 2_000,
        "a[" * 4_000,
        "1" * 16_000,
        "/*" * 8_000,
        '"' + "\\" * 16_000,
    ],
    ids=lambda text: text[:6],
)
def test_a_bomb_is_refused_before_anything_is_evaluated(bomb: str) -> None:
    with pytest.raises(ClassAdError):
        check_expression(bomb)


def test_the_limits_themselves_are_allowed() -> None:
    check_expression("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH)
    check_expression(" + ".join(["a"] * MAX_TERMS))


def test_an_ad_is_written_as_the_library_reads_it() -> None:
    ad = (("A", 'say "\\n"\n'), ("B", True), ("C", 1.5), ("D", ("x", 2)), ("E", -3))
    assert in_classad(ad) == '[A="say \\"\\\\n\\"\\n";B=true;C=1.5;D={"x",2};E=-3]'

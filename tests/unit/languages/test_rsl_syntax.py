"""The grammar of RSL 1.0: quoting, comments, concatenation, variables; and texts that are wrong, large or malicious."""

import re
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_languages import read_rsl as read

from koalapy.languages import rsl_tokens
from koalapy.languages.parsed import SourceText
from koalapy.languages.rsl_grammar import parse
from koalapy.languages.rsl_tokens import MOST_DEPTH, MOST_TOKENS
from koalapy.languages.rsl_tree import (
    Compound,
    Joined,
    Listed,
    Operator,
    Relation,
    Specification,
    Text,
    Value,
    Variable,
)
from koalapy.model.errors import Reason, RequestError


def tree(text: str | bytes) -> Specification:
    return parse(SourceText(text, "job.rsl"))


def values(text: str) -> tuple[Value, ...]:
    """The values of the relation `a`, as they are written."""
    found = tree(f"&(a={text})")
    assert isinstance(found, Compound)
    relation = found.parts[0]
    assert isinstance(relation, Relation)
    return relation.values


def refused(text: str | bytes) -> Reason:
    with pytest.raises(RequestError) as caught:
        read(text, "job.rsl", "/here", ["vu", "delft"])
    assert "\n" not in caught.value.reason.message
    assert caught.value.reason.advice
    return caught.value.reason


def refusal_of(text: str | bytes) -> str:
    """The message if the text is refused, else the name of the file."""
    try:
        read(text, "job.rsl", "/here", ["vu"])
    except RequestError as error:
        return error.reason.message
    return "job.rsl"


def variable(name: str) -> Variable:
    return Variable((Text(name),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", [Text("x")]),
        ("x y", [Text("x"), Text("y")]),
        ("x,y a+b&c|d", [Text("x,y"), Text("a+b&c|d")]),
        (r"a\b \\", [Text(r"a\b"), Text("\\\\")]),
        ("-c 'exit 0'", [Text("-c"), Text("exit 0")]),
        ("'it''s'", [Text("it's")]),
        ('"say ""yes"""', [Text('say "yes"')]),
        ('"it\'s" \'a "b"\'', [Text("it's"), Text('a "b"')]),
        ("'' \"\"", [Text(""), Text("")]),
        ("'a'\"b\"c'd'", [Text("a"), Text("b"), Text("c"), Text("d")]),
        ("'two\nlines'", [Text("two\nlines")]),
        ("'$(X) # (* no comment *) &'", [Text("$(X) # (* no comment *) &")]),
        ("^%a'b\"c%", [Text("a'b\"c")]),
        ("^%50%%%", [Text("50%")]),
        ("^*a**b*", [Text("a*b")]),
        ("^(((a)((b(", [Text("(a)(b")]),
        ("^\nline\n", [Text("line")]),
        ("^^a^^b^", [Text("a^b")]),
        ("(x y) (z)", [Listed((Text("x"), Text("y"))), Listed((Text("z"),))]),
        ("((x))", [Listed((Listed((Text("x"),)),))]),
        ("x # y", [Joined((Text("x"), Text("y")))]),
        ("x#y#'z w'", [Joined((Text("x"), Text("y"), Text("z w")))]),
        ("$(X)", [variable("X")]),
        ("$ ( X )", [variable("X")]),
        ("$(X default)", [Variable((Text("X"), Text("default")))]),
        ("$(X $(Y z))", [Variable((Text("X"), Variable((Text("Y"), Text("z")))))]),
        ("$(X)/y", [Joined((variable("X"), Text("/y")))]),
        ("y/$(X)", [Joined((Text("y/"), variable("X")))]),
        ("a$(X)b$(Y)", [Joined((Text("a"), variable("X"), Text("b"), variable("Y")))]),
        ("$(X)$(Y)", [Joined((variable("X"), variable("Y")))]),
        ('$(X)"/y z"', [Joined((variable("X"), Text("/y z")))]),
        ("$(X) /y", [variable("X"), Text("/y")]),
        ("x $(X)", [Text("x"), variable("X")]),
        ("$(X)\n$(Y)", [variable("X"), variable("Y")]),
        ("$(X)(y)", [variable("X"), Listed((Text("y"),))]),
        ("$(X)(* between *)$(Y)", [variable("X"), variable("Y")]),
        ("$(X)/a # .out", [Joined((variable("X"), Text("/a"), Text(".out")))]),
        ("(x)$(Y)", [Listed((Text("x"),)), variable("Y")]),
        ("x (* comment *) y", [Text("x"), Text("y")]),
        ("x(**)y", [Text("x"), Text("y")]),
        ("x (* a * b ( ' \" ** *) y", [Text("x"), Text("y")]),
        ("x (*(in parentheses) here *)", [Text("x")]),
        ("Ünïcode\u00a0word", [Text("Ünïcode\u00a0word")]),
        ("x\r\n\ty", [Text("x"), Text("y")]),
    ],
)
def test_values(text: str, expected: list[Value]) -> None:
    assert list(values(text)) == expected


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_relations(operator: str) -> None:
    assert tree(f"count {operator} 4") == Relation("count", operator, (Text("4"),))
    assert tree(f"'count'{operator}4") == Relation("count", operator, (Text("4"),))


A, B, C = (Relation("executable", "=", (Text(name),)) for name in "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("executable=a", A),
        ("&(executable=a)", Compound(Operator.CONJUNCTION, (A,))),
        ("| (executable = a) (executable = b)", Compound(Operator.DISJUNCTION, (A, B))),
        (
            "+(&(executable=a))(&(executable=b)(executable=c))",
            Compound(
                Operator.MULTIREQUEST,
                (Compound(Operator.CONJUNCTION, (A,)), Compound(Operator.CONJUNCTION, (B, C))),
            ),
        ),
        ("*(executable=a)", Compound(Operator.MULTISTAGE, (A,))),
        ("* (executable=a)", Compound(Operator.MULTISTAGE, (A,))),
        ("*(*(executable=a))", Compound(Operator.MULTISTAGE, (Compound(Operator.MULTISTAGE, (A,)),))),
        (
            "*(executable=a)(*(executable=b)(executable=c))",
            Compound(Operator.MULTISTAGE, (A, Compound(Operator.MULTISTAGE, (B, C)))),
        ),
        ("*(* (a comment) *)(executable=a)", Compound(Operator.MULTISTAGE, (A,))),
        ("(*(a comment) begins the file *)&(executable=a)", Compound(Operator.CONJUNCTION, (A,))),
        ("(* one *) (* two *)\n&(* three *)(executable(*4*)=(*5*)a(*6*))(*7*)", Compound(Operator.CONJUNCTION, (A,))),
        ("\ufeff&(executable=a)", Compound(Operator.CONJUNCTION, (A,))),
    ],
)
def test_requests(text: str, expected: Specification) -> None:
    assert tree(text) == expected


def stages(text: str) -> str:
    """The notation of the paper on multistage co-allocation with RSL for its letters: `(c(wait = 2))`."""
    return re.sub(r"\(([a-f])(?=[)(])", r"(&(executable=\1)", text)


def job(letter: str, *wait: str) -> Compound:
    more = (Relation("wait", "=", tuple(map(Text, wait))),) if wait else ()
    return Compound(Operator.CONJUNCTION, (Relation("executable", "=", (Text(letter),)), *more))


def stage(*parts: Compound) -> Compound:
    return Compound(Operator.MULTISTAGE, parts)


PAPER = [
    ("*(a)(b)(c)", stage(job("a"), job("b"), job("c"))),
    ("*(d)(e)(f)", stage(job("d"), job("e"), job("f"))),
    (  # figure 4, whose text the paper prints as *(a)(b)(c) *(d)(e)(f)
        "*(*(a)(b)(c))(*(d)(*(e)(f)))",
        stage(stage(job("a"), job("b"), job("c")), stage(job("d"), stage(job("e"), job("f")))),
    ),
    (
        "*(*(*(a))(b)(c))(d)(e)",
        stage(stage(stage(job("a")), job("b"), job("c")), job("d"), job("e")),
    ),
    (  # the tree of figure 6
        "*(*(*(*(a))(b)(c))(d))(e)",
        stage(stage(stage(stage(job("a")), job("b"), job("c")), job("d")), job("e")),
    ),
    (
        "*(a)(b)(c(wait = 2))(d(wait = 1, 2))",
        stage(job("a"), job("b"), job("c", "2"), job("d", "1,", "2")),
    ),
]


@pytest.mark.parametrize(("text", "expected"), PAPER, ids=[text for text, _ in PAPER])
def test_multistage_requests_are_read(text: str, expected: Compound) -> None:
    assert tree(stages(text)) == expected


# As docs/rsl.md has it. Each is read as what stands beside it.
BOTH = [
    ("*(*(a)(b))(c)", stage(stage(job("a"), job("b")), job("c"))),
    ("*(a)(*(b))", stage(job("a"), stage(job("b")))),
    ("(*(old) request*) &(executable=a)", job("a")),
    ("(*(old) request*) *(a)(*(b))", stage(job("a"), stage(job("b")))),
    ("&(executable=(*(was b)*) a)", job("a")),
    ("&(executable=a (*(was b)*))", job("a")),
    ("&(executable=a)(* (was b)*)", job("a")),
    ("*(a)(* (was b)*)(*(c))", stage(job("a"), stage(job("c")))),
]


@pytest.mark.parametrize(("text", "expected"), BOTH, ids=[text for text, _ in BOTH])
def test_a_parenthesis_a_star_and_a_parenthesis_begin_a_group_where_one_may_stand_and_a_comment_elsewhere(
    text: str, expected: Compound
) -> None:
    assert tree(stages(text)) == expected


def test_the_text_of_figure_4_as_it_is_printed_has_no_operator_around_it() -> None:
    assert "'*' stands here where ( or the end belongs" in refused(stages("*(a)(b)(c) *(d)(e)(f)")).message


@pytest.mark.parametrize("relation", ["(wait = 2)", "(wait = 1, 2)"])
def test_what_a_flow_needs_is_refused_outside_of_one(relation: str) -> None:
    name = relation[1:].split("=")[0].strip()
    assert refused(f"&(executable=a)\n{relation}").message.startswith(f"job.rsl:2:2: {name} ")


WRONG = [
    ("", "1:1: the text ends where a request (& or +) or a word belongs."),
    ("(* only a comment *)", "1:21: the text ends where"),
    ("&", "1:2: the text ends where ( belongs."),
    ("executable", "1:11: the text ends where = belongs."),
    ("(executable=a)", "1:1: '(' stands here where a request"),
    ("&((executable=a))", "1:3: '(' stands here where a request"),
    ("&(executable=a", "1:2: this parenthesis is not closed."),
    ("&(executable=a)\n (arguments=(x y)", "2:2: this parenthesis is not closed."),
    ("&(executable=a))", "1:16: this parenthesis closes none."),
    ("&(executable=)", "1:14: ')' stands here where a word, ( or $(…) belongs."),
    ("&(executable=())", "1:15: ')' stands here"),
    ("&()", "1:3: ')' stands here"),
    ("&(executable a)", "1:14: 'a' stands here where = belongs."),
    ("&(a b=c)", "1:5: 'b' stands here"),
    ("&(=c)", "1:3: '=' stands here"),
    ("&(a==c)", "1:5: '=' stands here"),
    ("&(a=b=c)", "1:6: '=' stands here"),
    ("&(a=+)", "1:5: '+' stands here"),
    ("&(a=#b)", "1:5: '#' stands here"),
    ("&(a=b#)", "1:7: ')' stands here"),
    ("&(a=(b)#c)", "1:8: '#' stands here"),
    ("&(a=$)", "1:6: ')' stands here where ( belongs."),
    ("&(a=$X)", "1:6: 'X' stands here where ( belongs."),
    ("&(a=$())", "1:7: ')' stands here"),
    ("&(a=$(X", "1:6: this parenthesis is not closed."),
    ("&($(A)=b)", "1:3: '$' stands here"),
    ("&(a=b)c", "1:7: 'c' stands here"),
    ("&(a=b)&(c=d)", "1:7: '&' stands here"),
    ("&(executable=$(X(y)))", "1:14: this reference does not consist of a variable's name"),
    ("&(a='b", "1:5: this quoted text has no end."),
    ('&(a="b""', "1:5: this quoted text has no end."),
    ("&(a=^%b", "1:5: this quoted text has no end."),
    ("&(a=^", "1:5: this quoted text has no end."),
    ("&(a=b (* c", "1:7: this comment has no end."),
    ("&(a=b (*)", "1:7: this comment has no end."),
    ('&(a="b"$(C))', "1:8: a variable touches the quoted text before it."),
    ("&(a=b?)", "1:6: '?' stands outside of quotes."),
    ("&(a=~/b)", "1:5: '~' stands outside of quotes."),
    ("&(a=b!c)", "1:6: '!' stands outside of quotes."),
    ("&(a=b\x1b[2Jc)", "1:6: '\\x1b' stands outside of quotes."),
    ("&(a=b\x07)", "1:6: '\\x07' stands outside of quotes."),
    ("&(a=\n'b\0c')", "2:3: a NUL character stands here"),
    (b"&(a=b)\n (c=\xff)", "2:5: the text is not UTF-8 from here on."),
    ("&(a=b)\n(c=\udcff)", "2:4: the text is not UTF-8 from here on."),
    ("&(a=b)".encode("utf-16"), "1:1: the text is not UTF-8 from here on."),
    ("&(a=b)(*(comment) x*)", "1:17: ')' stands here where = belongs."),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[repr(text)[:40] for text, _ in WRONG])
def test_a_wrong_text_is_refused_with_line_and_column(text: str | bytes, words: str) -> None:
    assert refused(text).message.startswith(f"job.rsl:{words}")


def test_a_comment_that_was_read_as_an_operator_is_pointed_out() -> None:
    advice = refused("&(executable=a)\n (*(was b) before *)").advice
    assert advice == "If the (*( at 2:2 begins a comment, write a blank behind its *: here it is an operator."
    assert refused("&(executable=a (*(was b) *))(b)").advice.startswith("Write a request")
    assert read("&(executable=a)\n (* (was b) before *)", "job.rsl", "/").name == "job"


# Sizes


def test_ten_megabytes_are_refused_before_they_are_read() -> None:
    assert refused("&" + " " * 10_000_000).message == "job.rsl has 10,000,001 bytes, more than 10,000,000."


def test_the_number_of_words_is_bounded() -> None:
    message = refused("&(arguments=" + "a " * MOST_TOKENS + ")").message
    assert f"the text has more than {MOST_TOKENS:,} words and signs." in message


@pytest.mark.parametrize("text", ["&(a=" + "(" * 10_000, "*" + "(*" * 10_000 + "(a=b)", "&(a=" + "$(" * 10_000])
def test_the_depth_is_bounded(text: str) -> None:
    assert f"more than {MOST_DEPTH} parentheses are open." in refused(text).message


def test_a_text_may_be_as_deep_as_the_bound() -> None:
    depth = MOST_DEPTH - 1
    assert "arguments contains a list." in refused(f"&(arguments={'(' * depth}x{')' * depth})").message
    assert "is not defined" in refused(f"&(executable={'$(A ' * (depth - 1)}$(A){')' * (depth - 1)})").message
    nested = "&(" * depth + "executable=/bin/a" + ")" * depth
    assert read(nested, "job.rsl", "/").components[0].executable == "/bin/a"


BOMBS = {
    "doubling": "".join(f"(V{n} $(V{n - 1})$(V{n - 1}))" for n in range(1, 100)),
    "scopes": "".join(f"(V{n} $(V{n - 1})" + f"$(V{n - 1})" * 9 + ")" for n in range(1, 30)),
    "defaults": "".join(f"(V{n} $(NONE $(V{n - 1})#$(V{n - 1})))" for n in range(1, 100)),
}


@pytest.mark.parametrize("definitions", BOMBS.values(), ids=BOMBS)
def test_variables_that_grow_without_bound_are_refused(definitions: str) -> None:
    tracemalloc.start()
    try:
        reason = refused(f"&(rsl_substitution=(V0 lol){definitions})(executable=$(V20))")
        assert "with its variables, the text has more than 10,000,000 characters up to here." in reason.message
        assert reason.message.startswith("job.rsl:1:")
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("definitions", ["(A $(A))", "(A $(B)) (B $(A))", "(A x$(C)) (B $(A)) (C $(B))"])
def test_variables_in_a_circle_are_not_defined(definitions: str) -> None:
    assert "is not defined" in refused(f"&(rsl_substitution={definitions})(executable=$(A))").message


@pytest.mark.parametrize(
    "text", ["^" * 200_000, "'" * 200_001, "$" * 100_000, "(*" * 100_000, "#" * 100_000, "\n" * 200_000 + "&(a="]
)
def test_repeated_signs_are_refused_in_time(text: str) -> None:
    started = time.process_time()
    refused(text)
    refused(f"&(a={text}")
    assert time.process_time() - started < 20  # seconds of this process; about a second without load


# Properties

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=8)
TEXTS = WORDS.map(Text)
BETWEEN_GROUPS = st.sampled_from(["", " ", "\n", "(* x *)"])
BLANK = st.sampled_from([" ", "\n", "\t ", " (* x *) ", "\r\n", " (*(y) *) "])


def simple(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Text | Variable | Joined]:
    variables = st.lists(inner, min_size=1, max_size=2).map(lambda parts: Variable(tuple(parts)))
    one = TEXTS | variables
    return one | st.lists(one, min_size=2, max_size=3).map(lambda parts: Joined(tuple(parts)))


VALUES: st.SearchStrategy[Value] = st.recursive(
    TEXTS,
    lambda inner: simple(inner) | st.lists(inner, min_size=1, max_size=3).map(lambda each: Listed(tuple(each))),
    max_leaves=8,
)
RELATIONS = st.builds(
    Relation,
    WORDS,
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    st.lists(VALUES, min_size=1, max_size=3).map(tuple),
)
TREES: st.SearchStrategy[Specification] = st.recursive(
    RELATIONS,
    lambda inner: st.builds(Compound, st.sampled_from(Operator), st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=6,
)


class Writer:
    """Writes a tree as a text that means it, with quotes, blanks and comments as they are drawn."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw

    def request(self, found: Specification) -> str:
        if isinstance(found, Relation):
            written = f"{self.text(found.attribute)}{self.draw(BLANK)}{found.operator}"
            return written + "".join(f"{self.draw(BLANK)}{self.value(each)}" for each in found.values)
        groups = (f"({self.draw(st.sampled_from(['', ' ', '(* z *)']))}{self.request(part)})" for part in found.parts)
        return f"{found.operator}{self.draw(BETWEEN_GROUPS).join(groups)}"

    def value(self, found: Value) -> str:
        match found:
            case Text(text):
                return self.text(text)
            case Joined(parts):
                return f"{self.draw(BLANK)}#".join(map(self.value, parts))
            case Variable(parts):
                return f"$({self.draw(BLANK)}{self.draw(BLANK).join(map(self.value, parts))})"
            case Listed(inner):
                return f"({self.draw(st.sampled_from(['', ' ']))}{self.draw(BLANK).join(map(self.value, inner))})"

    def text(self, text: str) -> str:
        if rsl_tokens._WORD.fullmatch(text) and self.draw(st.booleans()):
            return text
        quote = self.draw(st.sampled_from(["'", '"', "^%", "^a", "^(", "^|", "^^"]))
        return quote + text.replace(quote[-1], quote[-1] * 2) + quote[-1]


@settings(max_examples=150, deadline=None)
@given(TREES, st.data())
def test_a_tree_that_is_written_and_read_again_is_the_same(found: Specification, data: st.DataObject) -> None:
    assert tree(Writer(data).request(found)) == found


@settings(max_examples=300, deadline=None)
@given(st.text() | st.binary() | st.text("&+*|()=$#'\"^ab \n").map(lambda text: f"&(executable={text}"))
def test_whatever_comes_is_read_or_refused_in_words(text: str | bytes) -> None:
    assert refusal_of(text).startswith("job.rsl")


SMALL = """+(rsl_substitution=(A "x y"))(&(executable=$(A)/b)(count=4)(environment=(V $(A)))(stdout='o ut'))
 (&(executable=^%c%)(resourceManagerContact=vu)(arguments=-x (* comment *) "1 ""2"))"""


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(SMALL)), st.integers(0, 5), st.text("&+*|()=$#'\"^a1 ", max_size=3))
def test_a_damaged_request_is_read_or_refused_in_words(at: int, length: int, instead: str) -> None:
    assert refusal_of(SMALL[:at] + instead + SMALL[at + length :]).startswith("job.rsl")

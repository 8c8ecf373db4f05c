"""Docstrings and names follow the house's rules of language, as far as a program can check them.

A person checks the rest: a subject and a verb, the glossary's terms, units and shapes.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = (ROOT / "koalapy", ROOT / "adapters" / "koalapy_adapters")
FRAGMENTS = frozenset({"Of", "So", "Those", "Whoever", "Whatever", "What", "Whose", "Whom", "Nobody", "None"})
NO_NOUN = re.compile(r"Whether\b|Return whether (?:its?|they|their|he|his|she|her)\b")  # of a function
LONGEST_SENTENCE = 25  # words; a colon or a semicolon ends a sentence too
VERBS = "tell tells telling told hear hears heard say says saying said speak speaks spoke talk talks talking"
IMAGES = "owe owes owed owing heed heeds heeded hungry believe believes believed"
SPEECH = frozenset((VERBS + " " + IMAGES).split())  # programs send, receive, report, require and wait
SPOKEN = re.compile(rf"\b(?:{'|'.join(sorted(SPEECH))})\b", re.IGNORECASE)
NOT_RAISED_TO_CALLERS = frozenset(
    {"AssertionError", "NotImplementedError", "SystemExit", "Exit", "BadParameter", "StopIteration"}
)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def room_of(path: Path) -> str:
    """The folder of the file below its package, in the words of the tree; a file at the top is its package's."""
    package = next(each for each in PACKAGES if path.is_relative_to(each))
    below = path.relative_to(package).parts
    return f"{package.name}/{below[0]}" if len(below) > 1 else package.name


def sources() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            rooms.setdefault(room_of(path), []).append(path)
    return rooms


ROOMS = sources()


def sentences(text: str) -> Iterator[str]:
    """The sentences of a docstring. An indented block, a table and a list mark end one; code in backticks is a word."""
    plain = re.sub(r"``[^`]*``|`[^`]*`", "code", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*|] )|\n(?=\s{4,})", plain):
        yield from re.split(r"(?<=[.!?:;])\s+", paragraph.strip())


def words(sentence: str) -> list[str]:
    return [each for each in sentence.split() if re.search(r"\w", each)]


def raises(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the function's own lines raise an error that leaves it, without its nested functions."""

    def walk(statements: list[ast.stmt], caught: bool) -> bool:
        for each in statements:
            if isinstance(each, ast.Raise):
                made = each.exc.func if isinstance(each.exc, ast.Call) else each.exc
                name = made.attr if isinstance(made, ast.Attribute) else made.id if isinstance(made, ast.Name) else ""
                if not caught and made is not None and name not in NOT_RAISED_TO_CALLERS:
                    return True
            elif isinstance(each, ast.Try):
                if walk(each.body, caught or bool(each.handlers)) or walk(each.orelse + each.finalbody, caught):
                    return True
                if any(walk(handler.body, caught) for handler in each.handlers):
                    return True
            elif not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for name in ("body", "orelse"):
                    if walk(getattr(each, name, []), caught):
                        return True
                for case in getattr(each, "cases", []):
                    if walk(case.body, caught):
                        return True
        return False

    return walk(node.body, False)


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the function is a command: its docstring is its help, and its errors become messages."""
    decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(isinstance(each, ast.Attribute) and each.attr == "command" for each in decorators)


def documented(tree: ast.Module) -> Iterator[tuple[Documented, bool]]:
    """Every module, class and function, and whether it is public: no part of its name begins with an underscore."""

    def below(node: Documented, public: bool) -> Iterator[tuple[Documented, bool]]:
        yield node, public
        for each in node.body:
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inside = not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from below(each, public and inside and not each.name.startswith("_"))

    yield from below(tree, True)


def faults_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and complaint of each place of a module that breaks a rule."""
    for node, public in documented(ast.parse(source)):
        line = getattr(node, "lineno", 1)
        text = ast.get_docstring(node) or ""
        first = re.match(r"\w+", text)
        if first and first.group() in FRAGMENTS:
            yield line, f"begins with {first.group()!r}: {text.splitlines()[0]}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and NO_NOUN.match(text):
            yield line, f"lacks its noun or `Return`: {text.splitlines()[0]}"
        for sentence in sentences(text):
            if len(words(sentence)) > LONGEST_SENTENCE:
                yield line, f"has a sentence of {len(words(sentence))} words: {' '.join(sentence.split())}"
        if not public or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not raises(node):
            continue
        if is_command(node):
            continue
        if re.search(r"\bRaises?\b", text) is None:
            yield line, f"`{node.name}` raises an error, and its docstring has no `Raises`"


def faults(room: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in ROOMS[room]
        for line, fault in faults_of(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_the_docstrings_of_a_room_follow_the_rules(room: str) -> None:
    found = faults(room)
    assert not found, f"{len(found)} places\n" + "\n".join(found)


TESTS = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT / "tests").parts[0] for path in TESTS}))
def test_the_docstrings_of_tests_follow_the_rules(folder: str) -> None:
    """Only `Raises` is left out: an error of a test is a failure, and that of a double is the real one's."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in TESTS
        if path.relative_to(ROOT / "tests").parts[0] == folder
        for line, fault in faults_of(path.read_text(encoding="utf-8"))
        if "has no `Raises`" not in fault
    ]
    assert not found, f"{len(found)} places\n" + "\n".join(found)


def spoken_in(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and comment with a verb of speech. Code in backticks does not count."""
    for node, _ in documented(ast.parse(source)):
        text = re.sub(r"`[^`]*`", "code", ast.get_docstring(node) or "")
        if SPOKEN.search(text):
            yield getattr(node, "lineno", 1), text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and SPOKEN.search(re.sub(r"`[^`]*`", "code", token.string)):
            yield token.start[0], token.string


def spoken_in_strings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each message with a verb of speech. Quoted output may be introduced by `said`."""
    tree = ast.parse(source)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in bare:
            continue
        if SPOKEN.search(re.sub(r"\bsaid:?$|\|.*\|", "", node.value)):
            yield node.lineno, node.value


def names_of_speech(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each function, class, parameter, variable and attribute that is named by a verb of speech."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                name = node.name
            case ast.Name(ctx=ast.Store()):
                name = node.id
            case ast.Attribute(ctx=ast.Store()):
                name = node.attr
            case ast.arg():
                name = node.arg
            case _:
                continue
        if SPEECH & {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}:
            yield node.lineno, f"`{name}` is named by a verb of speech"


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_no_text_has_a_verb_of_speech(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in ROOMS[room]
        for source in [path.read_text(encoding="utf-8")]
        for line, text in [*spoken_in(source), *spoken_in_strings(source), *names_of_speech(source)]
    ]
    assert not found, "\n".join(found)


def test_no_docstring_or_comment_of_a_test_has_a_verb_of_speech() -> None:
    """A test's strings are a program's output and input, which may be of any words."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in TESTS
        for line, text in spoken_in(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_a_verb_of_speech_is_found_in_a_docstring() -> None:
    assert list(spoken_in('"""The KCM.\n\nIt Says so."""'))
    assert list(spoken_in("x = 1  # as it was told"))
    assert not list(spoken_in('"""Return what `told` is, sayings aside."""'))


def test_a_verb_of_speech_is_found_in_a_message() -> None:
    assert list(spoken_in_strings('f("It says {x}.")'))
    assert list(spoken_in_strings("f('PBS said it.')"))
    assert not list(spoken_in_strings("f('The batch system said:')"))


@pytest.mark.parametrize(
    "source", ["def _tell_of_it(): ...", "told = 1", "def f(heard): ...", "class TalkAgain: ...", "a.SAID = 1"]
)
def test_a_name_of_speech_is_found(source: str) -> None:
    assert list(names_of_speech(source))


def spoken_on(page: str) -> Iterator[tuple[int, str]]:
    """Line and text of each line of a page with a verb of speech. Code does not count."""
    fenced = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and not line.startswith("    ") and SPOKEN.search(re.sub(r"`[^`]*`", "code", line)):
            yield number, line


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], ids=lambda page: page.stem)
def test_no_page_has_a_verb_of_speech(page: Path) -> None:
    found = [f"{page.name}:{line}: {text}" for line, text in spoken_on(page.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_a_verb_of_speech_is_found_on_a_page() -> None:
    assert [line for line, _ in spoken_on("One.\n\n    it says so\n```\nit says\n```\nIt `says`.\nIt says so.")] == [8]


def test_tests_are_not_named_by_verbs_of_speech() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in TESTS
        for line, text in names_of_speech(path.read_text(encoding="utf-8"))
        if "`said`" not in text
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ('"""Of results."""', "begins with 'Of'"),
        ('"""A module."""\ndef f():\n    """What is left."""', "begins with 'What'"),
        ('"""' + "word " * 26 + '."""', "sentence of 26 words"),
        ('def f():\n    """Whether the job came by a KCM."""', "lacks its noun or `Return`"),
        ('def f():\n    """Return whether it came by a KCM."""', "lacks its noun or `Return`"),
        ("def f():\n    raise ValueError()", "no `Raises`"),
        ("class A:\n    def f(self):\n        if self:\n            raise ValueError()", "no `Raises`"),
        (
            "def f():\n    try:\n        g()\n    except KeyError as e:\n        raise ValueError() from e",
            "no `Raises`",
        ),
    ],
    ids=["of", "what", "long", "whether", "noun", "raises", "method", "translated"],
)
def test_a_breach_is_found(source: str, complaint: str) -> None:
    assert any(complaint in fault for _, fault in faults_of(source))


@pytest.mark.parametrize(
    "source",
    [
        '"""' + "word " * 20 + ". " + "word " * 20 + '."""',
        '"""Return `one two three` of ' + "word " * 20 + '."""',
        'def f():\n    """Return one. Raises ValueError."""\n    raise ValueError()',
        "def _f():\n    raise ValueError()",
        '@app.command("f")\ndef f():\n    """Do it."""\n    raise ValueError()',
        "def f():\n    try:\n        raise ValueError()\n    except ValueError:\n        pass",
        "def f():\n    def g():\n        raise ValueError()",
    ],
    ids=["sentences", "code", "said", "private", "command", "caught", "nested"],
)
def test_what_follows_the_rules_is_let_pass(source: str) -> None:
    assert not list(faults_of(source))

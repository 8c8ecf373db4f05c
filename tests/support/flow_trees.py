"""The requests of "Flow-based Multistage Co-allocation Service", in RSL and XML. A letter is a job."""

import re
from collections.abc import Callable, Collection, Mapping
from xml.sax.saxutils import escape, quoteattr

# Each tree, and for each job those for whose end it waits, directly or not. No job waits for another one.
TREES: Mapping[str, Mapping[str, str]] = {
    "*(*(a)(b)(c))(*(d)(*(e)(f)))": {"d": "ef"},  # figure 4
    "*(*(*(*(a))(b)(c))(d))(e)": {"b": "a", "c": "a", "d": "abc", "e": "abcd"},  # figures 5 (a) and 6
    "*(*(*(a))(b)(c))(d)(e)": {"b": "a", "c": "a", "d": "abc", "e": "abc"},  # as printed: d and e start together
    "*(a)(b)(c(wait = 2))(d(wait = 1, 2))": {"c": "b", "d": "ab"},  # figures 5 (c) and 7 (c)
    "*(*(a)(b))(c)(d)": {"c": "ab", "d": "ab"},  # figures 5 (c) and 7 (a): implicitly, c waits for a too
    "*(*(a)(b))(c)(*(d))": {"c": "abd"},
    "*(a)(b)": {},
}
LANGUAGES = ["rsl", "xml"]

# Given the letter of a job: the path of its program, and its arguments.
Program = Callable[[str], tuple[str, Collection[str]]]

_JOB = re.compile(r"\(([a-f])(?=[)(])")
_STEP = re.compile(r"(?P<many>\(?\*)|\((?P<job>[a-f])(?:\(wait = (?P<wait>[\d, ]+)\))?\)|(?P<end>\))")


def letters(tree: str) -> set[str]:
    """Return the jobs of the tree."""
    return set(_JOB.findall(tree))


def written(language: str, tree: str, program: Program) -> str:
    """Return the tree as a text in RSL or XML, whose jobs run the programs."""
    return (_rsl if language == "rsl" else _xml)(tree, program)


def is_in_order(waits: Mapping[str, str], began: Mapping[str, int], ended: Mapping[str, int]) -> bool:
    """Return whether each job began after the ends of all for which it waits. `began`, `ended`: moments, by the job."""
    return all(ended[other] <= began[name] for name, others in waits.items() for other in others)


def _rsl(tree: str, program: Program) -> str:
    def job(found: re.Match[str]) -> str:
        executable, arguments = program(found[1])
        words = " ".join(f'"{word}"' for word in arguments)
        return f'(+(label={found[1]})(&(executable="{executable}")(arguments={words}))'

    return _JOB.sub(job, tree)


def _xml(tree: str, program: Program) -> str:
    def step(found: re.Match[str]) -> str:
        if found["many"]:
            return "<coallocate>"
        if found["end"]:
            return "</coallocate>"
        executable, arguments = program(found["job"])
        waits = f" wait={quoteattr(found['wait'].replace(',', ''))}" if found["wait"] else ""
        words = escape(" ".join(arguments))
        resource = f"<executable>{escape(executable)}</executable><arguments>{words}</arguments>"
        return f'<coallocate name="{found["job"]}"{waits}><resource>{resource}</resource></coallocate>'

    return _STEP.sub(step, f"{tree})")

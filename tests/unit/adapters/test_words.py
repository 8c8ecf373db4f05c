"""The error that the output of a failed command becomes."""

from koalapy_adapters.errors import Result


def words(stderr: str, stdout: str = "") -> str:
    return Result(["qsub"], 1, stdout, stderr).words


def test_words_are_one_line() -> None:
    assert words("qsub: no such queue\n  ask your administrator\n\n") == "qsub: no such queue; ask your administrator"
    assert words(" \n", "only here\n") == "only here"
    assert len(words("long " * 1_000)) == 500


def test_of_a_traceback_its_end_counts() -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "queue.py", line 7, in spool\n    os.mkdir(path)\nOSError: full\n'
    )
    assert words(f"warning: slow disk\n{traceback}") == "warning: slow disk; OSError: full"

"""The values that are hidden in a report of a bug, and what is left to read."""

import pytest

from koalapy.journal.secrets import Secrets

SECRET = "s3cr3t-Gr8!"


@pytest.mark.parametrize(
    "text",
    [
        f"store: postgresql://koala:{SECRET}@db.example/grid",
        f"postgresql://koala:a@b/{SECRET}@db.example/grid",
        f"postgresql://:{SECRET}@db/grid?sslpassword=x",
        f"postgresql://db/grid?sslpassword={SECRET}&user=koala",
        f"password: {SECRET}",
        f'PassWord = "{SECRET} and more"',
        f"'api_token': '{SECRET}'",
        f"http-proxy-passwd={SECRET}",
        f"Authorization: Bearer {SECRET.replace('!', 'x')}x",
        f"native: [--export=DATABASE={SECRET}]",
        f"setup: export KEY_OF_MINE={SECRET}",
        f'setup: export KEY_OF_MINE="two {SECRET}"',
        f"tool --secret-file-token {SECRET}",
        f"# my passphrase={SECRET}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\ncut",
    ],
)
def test_what_looks_secret_is_hidden(text: str) -> None:
    hidden = Secrets().hide(text)
    assert "s3cr3t" not in hidden
    assert "***" in hidden


def test_a_token_is_hidden_wherever_it_stands() -> None:
    assert "0123456789abcdef" not in Secrets().hide("it said 0123456789abcdef0123456789ABCDEF.")


def test_known_values_are_hidden_wherever_they_stand() -> None:
    secrets = Secrets(["hunter2x", "hunter2", "first line\nsecond line", "1", ""])
    assert secrets.hide("hunter2xy hunter2 in second line, 1") == "***y *** in ***, 1"


def test_environments_and_secret_keys_are_hidden_at_any_depth() -> None:
    document = {"jobs": [{"environment": {"A": "b"}, "token": "x", "state": "done", "why": f"password={SECRET}"}]}
    assert Secrets().hidden(document) == {
        "jobs": [{"environment": {"A": "***"}, "token": "***", "state": "done", "why": "password=***"}]
    }


@pytest.mark.parametrize(
    "text",
    [
        "clusters:\n  vu: {batch: slurm, connect: ssh://koala@fs0.example:2222, poll: 10s}",
        '{"event": "job_started", "job": 7, "cluster": "vu", "timestamp": "2026-01-02T03:04:05Z"}',
        "connect: [ssh://me@a.example, ssh://me@b.example]",
        "File koalapy/engine.py, line 70, in handle",
        "store: postgresql://koala@db.example/grid",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Secrets().hide(text) == text


def test_a_value_behind_a_secret_option_is_hidden_word_by_word() -> None:
    words = ["tool", "--token", SECRET, "--size", "12", f"--password={SECRET}", "-api_key", "x"]
    hidden = ["tool", "--token", "***", "--size", "12", "--password=***", "-api_key", "***"]
    assert Secrets().hide_words(words) == hidden

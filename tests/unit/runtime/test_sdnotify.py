"""The messages to a service manager, over real sockets; and who may send them."""

import os
import socket

import pytest

from koalapy.runtime.sdnotify import Notifier


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_what_is_sent_arrives(abstract: bool, tmp_path: os.PathLike[str]) -> None:
    name = f"{os.fspath(tmp_path)}/notify"[-100:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if abstract else name)
        manager.settimeout(60)
        notifier = Notifier.of({"NOTIFY_SOCKET": "@" + name if abstract else name, "WATCHDOG_USEC": "4000000"})
        notifier.ready("serves")
        assert manager.recv(1000).decode().splitlines() == ["READY=1", "STATUS=serves", f"MAINPID={os.getpid()}"]
        notifier.status("stands by")
        assert manager.recv(1000) == b"STATUS=stands by"
        notifier.alive()
        notifier.alive()  # too soon to be worth a word
        notifier.stopping()
        assert [manager.recv(1000) for _ in range(2)] == [b"WATCHDOG=1", b"STOPPING=1"]
        assert notifier.beat_s == 1.0


def test_no_child_finds_the_socket() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    assert Notifier.of(environment).beat_s is not None
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "4000000"},
        {"NOTIFY_SOCKET": "/x"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"},
    ],
    ids=["nothing", "no socket", "no watchdog", "another's", "no number", "none"],
)
def test_only_who_is_watched_beats(environment: dict[str, str]) -> None:
    assert Notifier.of(environment).beat_s is None


def test_nobody_who_listens_costs_nothing(tmp_path: os.PathLike[str]) -> None:
    notifier = Notifier(f"{os.fspath(tmp_path)}/gone", 1.0)
    notifier.ready("serves")
    notifier.alive()

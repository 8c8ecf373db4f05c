"""The shared directory while a KCM lives, as wrappers find it: mended when it is purged; and where the relay is."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.frames import MAX_DIGITS, Decoder, FrameError
from koalapy_adapters.kcm.relay import addresses, file_relay
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.shared_directory.cluster_files import RelayAddressFile
from koalapy_adapters.kcm.shared_directory.errors import Stale
from koalapy_adapters.kcm.state.actions import OtherVersion
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.relay import RELAY_PROTOCOL
from koalapy_adapters.wrapper.relay.address import RelayAddress, read_relay_address

TAG = "kabcde000000001"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "relay.here.json"


@pytest.fixture
def address_file(file: Path) -> RelayAddressFile:
    made = RelayAddressFile(str(file), 7, DISK)
    made.publish(["10.0.0.1"], 4711, last=["172.17.0.1"])
    return made


@pytest.mark.parametrize(
    "damage",
    [
        None, b"", b"{", b"[]", b"5", b"\xff", b'{"epoch": "x"}', b'{"epoch": 1e400}', b'{"epoch": -1}',
        b'{"epoch": ' + b"1" + b"0" * 22 + b"}", b'{"epoch": 7, "addresses": [], "port": 1}', b'{"epoch": 6}',
        b"[" * 100000,
    ],
    ids=[
        "removed", "empty", "cut off", "a list", "a number", "no UTF-8", "a word", "infinite", "negative", "10^22",
        "another port", "an older KCM's", "deep",
    ],
)  # fmt: skip
def test_the_relays_file_is_written_again(file: Path, address_file: RelayAddressFile, damage: bytes | None) -> None:
    before = read_relay_address(str(file))._replace(touched=0)
    assert before == RelayAddress(["10.0.0.1"], 4711, "", 0, address_file.secret, ["172.17.0.1"])
    file.unlink() if damage is None else file.write_bytes(damage)
    address_file.check()  # it is nobody else's
    address_file.show_life()
    assert read_relay_address(str(file))._replace(touched=0) == before
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_newer_kcms_file_is_left_alone(file: Path, address_file: RelayAddressFile) -> None:
    RelayAddressFile(str(file), 8, DISK).publish(["10.0.0.2"], 4712)
    address_file.show_life()
    assert read_relay_address(str(file)).port == 4712
    with pytest.raises(Stale):
        address_file.check()


def test_a_kcm_that_has_published_nothing_writes_nothing(file: Path) -> None:
    RelayAddressFile(str(file), 7, DISK).show_life()
    assert not file.exists()


# ---- whom the relay answers


@pytest.mark.parametrize(
    ("wanted", "address", "answered"),
    [
        ([], "10.1.2.3", True),
        ([], "::ffff:192.168.7.1", True),
        ([], "127.0.0.1", True),
        ([], "fe80::1%eth0", True),
        ([], "fd00::1", True),
        ([], "8.8.8.8", False),
        ([], "2001:4860:4860::8888", False),
        ([], "", False),
        (["10.1.0.0/16"], "10.1.2.3", True),
        (["10.1.0.0/16"], "::ffff:10.1.2.3", True),
        (["10.1.0.0/16"], "10.2.0.1", False),
        (["10.1.0.0/16"], "fd00::1", False),
        (["10.1.0.0/16", "fd00::/64"], "fd00::1", True),
        (["10.1.2.3"], "10.1.2.3", True),
    ],
)
def test_the_relay_answers_private_networks_or_those_that_are_named(
    wanted: list[str], address: str, answered: bool
) -> None:
    assert addresses.Networks(wanted).answers(address) == answered


def test_the_head_nodes_own_networks_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [addresses.Own("130.1.2.3", "eth0", "130.1.0.0/16"), addresses.Own("131.1.2.3", "eth1")]
    monkeypatch.setattr(addresses, "own_addresses", lambda: own)
    answers = addresses.Networks([]).answers
    assert [answers(each) for each in ("130.1.9.9", "130.2.0.1", "131.1.2.3", "131.1.2.4")] == [
        True,
        False,
        True,
        False,
    ]


def test_addresses_of_private_bridges_are_tried_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """docker0 has containers' ports, or none; a bridge with a network card in it is the way to others."""
    for interface, ports in (("docker0", ["veth1"]), ("virbr0", []), ("br0", ["eth0", "veth2"])):
        (tmp_path / interface / "bridge").mkdir(parents=True)
        for port in ports:
            (tmp_path / interface / "brif" / port).mkdir(parents=True)
    for interface in ("veth1", "veth2", "eth0", "eth1"):
        (tmp_path / interface).mkdir()
    for card in ("eth0", "eth1"):
        (tmp_path / card / "device").mkdir()
    found = [("172.17.0.1", "docker0"), ("10.1.0.1", "br0"), ("192.168.122.1", "virbr0"), ("10.2.0.1", "eth1")]
    own = [addresses.Own(address, interface, f"{address}/32") for address, interface in found]
    monkeypatch.setattr(addresses, "own_addresses", lambda: own)
    monkeypatch.setattr(addresses, "_INTERFACES", str(tmp_path))
    assert addresses.addresses() == addresses.Addresses(["10.1.0.1", "10.2.0.1"], ["172.17.0.1", "192.168.122.1"])
    assert addresses.addresses(["10.2.0.0/16"], loopback=True) == addresses.Addresses(["10.2.0.1", "127.0.0.1"], [])


def test_this_machines_addresses_are_in_their_own_networks() -> None:
    own = addresses.own_addresses()
    assert "127.0.0.1" in [each.address for each in own]
    assert all(addresses.Networks([each.network]).answers(each.address) for each in own)


# ---- wrappers of other versions


@pytest.mark.parametrize(
    ("component", "files", "found"),
    [
        ({}, [], OtherVersion(TAG, False)),
        ({"relay_protocol": RELAY_PROTOCOL + 1}, [], OtherVersion(TAG, False)),
        ({}, ["hosts"], OtherVersion(TAG, True)),
        ({"relay_protocol": RELAY_PROTOCOL}, [], None),
        (None, [], None),
        ([], [], None),
    ],
)
def test_an_attempts_own_files_state_which_protocol_its_wrapper_uses(
    tmp_path: Path, component: Any, files: list[str], found: Any
) -> None:
    directories = Directories(str(tmp_path), "abcde", "here", 1)
    attempt = tmp_path / "abcde" / TAG
    attempt.mkdir(parents=True)
    if component is not None:
        (attempt / "component.json").write_text(json.dumps(component))
    for name in files:
        (attempt / name).touch()
    assert directories.other_version(TAG) == found
    assert directories.other_version("../" + TAG) is None


# ---- frames that cost much to read


@pytest.fixture
def without_digit_limit() -> Any:
    """As Python was before 3.10.7."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    "payload",
    [
        b"9" * 20_000,
        b'{"clock": -' + b"1" * MAX_DIGITS + b"}",
        b"[" * 500_000,
        b'{"":' * 200_000,
        b'{"type": "heartbeat"',
    ],
    ids=["digits", "a few digits too many", "deep lists", "deep objects", "cut off"],
)
@pytest.mark.usefixtures("without_digit_limit")
def test_what_costs_much_to_read_is_no_frame(payload: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(b"J" + len(payload).to_bytes(4, "big") + payload)


@pytest.mark.parametrize("data", [{"type": []}, {"type": {}}, {"type": None}, {"type": 1.5}, [], None])
def test_what_has_no_type_is_no_message(data: Any) -> None:
    with pytest.raises(MessageError):
        from_json(data)


class Watched(Files):
    """This machine's files; `meanwhile` happens when all in a directory was removed, and it itself was not."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], Any] = lambda: None

    def remove(self, directory: str) -> None:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        self.meanwhile()
        os.rmdir(directory)


def test_a_kcm_that_removes_its_own_relay_lives_on_and_leaves_nothing(tmp_path: Path) -> None:
    """As the doctor's does at its end: who asked for it is still to be answered."""
    files = Watched()
    directories = Directories(str(tmp_path), "abcde", "here", 1, files)
    directories.create()
    authenticator = Authenticator(Accounts(directories.token), directories.address_file.secret, files.unpredictable)
    path = os.path.join(directories.own, file_relay.name("here", 1, "0"))
    directory = file_relay.RelayDirectory(path, directories.attempt, authenticator, lambda: directories.is_dissolved)
    relay = file_relay.FileRelayServer(directory, files)
    relay.open()
    directories.address_file.publish([], 0, os.path.basename(path))
    rounds: list[file_relay.Round] = []

    def meanwhile() -> None:
        rounds.append(relay.round(0, []))
        directories.address_file.show_life()

    files.meanwhile = meanwhile
    directories.dissolve()
    assert [*rounds, relay.round(1, [])] == [file_relay.Round(), file_relay.Round()]
    assert not os.path.exists(directories.own)


def test_a_relay_that_somebody_else_removes_is_closed(tmp_path: Path) -> None:
    directories = Directories(str(tmp_path), "abcde", "here", 1)
    authenticator = Authenticator(Accounts(directories.token), directories.address_file.secret, DISK.unpredictable)
    directory = file_relay.RelayDirectory(
        str(tmp_path / "post"), directories.attempt, authenticator, lambda: directories.is_dissolved
    )
    relay = file_relay.FileRelayServer(directory)
    relay.open()
    shutil.rmtree(tmp_path / "post")
    with pytest.raises(file_relay.RelayRemoved):
        relay.round(0, [])

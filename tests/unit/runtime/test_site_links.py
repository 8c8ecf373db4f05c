"""Sites over real TLS on the loopback: who is let in, who is not, and what a cut or a killed side costs."""

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.frames import HEADER, MAX_CONTROL, Control, Decoder, encode
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.streams import OpenStream, StreamReset
from OpenSSL import SSL
from site_ends import LOOPBACK, Proxy, Site, until

from koalapy.link.site_messages import SITE_PROTOCOL, SiteHello, SiteMessage, site_to_json
from koalapy.model.change import Change
from koalapy.model.errors import RequestError, TransientError
from koalapy.model.lease import Asked, LentLease, Origin, Wanted
from koalapy.model.neighbour import Relation
from koalapy.model.states import LeaseState
from koalapy.model.units import HOUR, Duration, Instant
from koalapy.runtime.cluster_link.link import Relay
from koalapy.runtime.sites import listener, upgrade
from koalapy.runtime.sites.certificate import Identity, certified, make_identity, pin_of, read_identity, write_identity
from koalapy.runtime.sites.streams import Measured
from koalapy.runtime.sites.tls import TlsChannel, Untrusted, handshake
from koalapy.sites import neighbours
from koalapy.store.contract import StoreError

Make = Callable[..., Site]
WANT = Wanted(processors=4, walltime=HOUR)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(neighbours, "REPORT_EVERY", Duration(0))
    with ExitStack() as stack:

        def site(name: str, **options: Any) -> Site:
            made = Site(name, tmp_path, **options)
            stack.callback(made.stop)
            return made

        yield site


@pytest.fixture
def proxies() -> Iterator[Callable[[int], Proxy]]:
    with ExitStack() as stack:

        def proxy(target: int) -> Proxy:
            made = Proxy(target)
            stack.callback(made.close)
            return made

        yield proxy


def linked(one: Site, two: Site) -> None:
    until(lambda: one.is_connected(two.name) and two.is_connected(one.name))


# ---- two sites


@pytest.mark.parametrize("dialling", ["both", "first", "second"])
def test_either_side_or_both_may_dial_and_each_learns_what_is_idle_at_the_other(make: Make, dialling: str) -> None:
    one, two = make("delft", listens=dialling != "first"), make("lyon", listens=dialling != "second")
    one.change_idle()
    idle = [one.change_idle(), two.change_idle()]
    one.link(two, Relation.PARENT, port=0 if dialling == "second" else None)
    two.link(one, Relation.CHILD, port=0 if dialling == "first" else None)
    linked(one, two)
    found = until(lambda: two.got.get("delft") and one.got.get("lyon") and (one.state("lyon"), two.state("delft")))
    until(lambda: two.got["delft"][-1][1] == idle[0] and one.got["lyon"][-1][1] == idle[1])
    assert [each.relation for each in found] == [Relation.PARENT, Relation.CHILD]
    assert {*one.refused(), *two.refused()} <= {"stranger"}  # before it was a neighbour


def test_messages_arrive_once_and_in_order_over_cuts(make: Make, proxies: Callable[[int], Proxy]) -> None:
    one, two = make("delft"), make("lyon", listens=False)
    proxy = proxies(one.port)
    one.link(two, port=0)
    two.link(one, port=proxy.port)
    linked(one, two)
    for _ in range(4):
        for _ in range(25):
            last = one.change_idle()
        proxy.cut()
        until(lambda: not two.is_connected("delft"))
        last = one.change_idle()
        proxy.mend()
        until(lambda: two.got.get("delft") and two.got["delft"][-1][1] == last)  # noqa: B023
    linked(one, two)
    numbers, values = zip(*two.got["delft"], strict=True)
    assert list(numbers) == sorted(set(numbers))
    assert list(values) == sorted(set(values))
    until(lambda: not one.store.load().outbox)


@pytest.mark.parametrize("killed", ["delft", "lyon"])
def test_a_side_that_is_killed_and_restarted_goes_on_where_it_was(make: Make, killed: str) -> None:
    one, two = make("delft"), make("lyon")
    one.link(two)
    two.link(one)
    linked(one, two)
    for _ in range(3):
        for _ in range(10):
            one.change_idle()
        (one if killed == "delft" else two).restart()
        last = one.change_idle()
        until(lambda: two.got.get("delft") and two.got["delft"][-1][1] == last)  # noqa: B023
    numbers = [number for number, _ in two.got["delft"]]
    assert numbers == sorted(set(numbers))


def test_a_hello_states_nothing_that_is_not_committed(
    make: Make, proxies: Callable[[int], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the neighbour would not send a message again that is lost with the process."""
    one, two = make("delft"), make("lyon", listens=False)
    proxy = proxies(one.port)
    one.link(two, port=0)
    two.link(one, port=proxy.port)
    linked(one, two)

    def fail(change: Change) -> None:
        raise StoreError("store_failed", "The disk does not answer.", "Look at the disk.")

    monkeypatch.setattr(two.store, "commit", fail)
    last = one.change_idle()
    until(lambda: two.loop.trouble)
    proxy.cut()
    until(lambda: not two.is_connected("delft"))
    proxy.mend()
    until(lambda: (reason := two.state("delft").status.reason) and reason.code == "not_yet")
    two.restart()
    until(lambda: two.got.get("delft") and two.got["delft"][-1][1] == last)


def test_a_neighbour_that_was_removed_is_a_stranger_at_once(make: Make) -> None:
    one, two = make("delft"), make("lyon", listens=False)
    one.link(two, port=0)
    two.link(one)
    linked(one, two)
    del one.neighbours["lyon"]
    one.links.use(one.neighbours)
    until(lambda: one.refused().get("stranger"))
    until(lambda: not two.is_connected("delft"))
    assert one.links.states() == []
    until(lambda: one.store.load().neighbours == ())


# ---- streams beside messages


def test_a_link_is_measured_by_a_stream_that_messages_overtake(make: Make) -> None:
    one, two = make("delft"), make("lyon", listens=False)
    one.link(two, port=0)
    two.link(one)
    linked(one, two)
    for site, other in ((one, "lyon"), (two, "delft")):
        found = site.links.measure(other, 8 << 20)
        assert found.size == 8 << 20
        assert 0 < found.busy_round_trip_s < found.seconds  # its frames passed the bytes that were sent before
    with pytest.raises(RequestError, match="no neighbour paris"):
        one.links.measure("paris", 1)


def test_a_stream_loses_nothing_over_cuts(make: Make, proxies: Callable[[int], Proxy]) -> None:
    one, two = make("delft"), make("lyon", listens=False)
    proxy = proxies(one.port)
    one.link(two, port=0)
    two.link(one, port=proxy.port)
    linked(one, two)
    found: list[Measured] = []
    measuring = threading.Thread(target=lambda: found.append(two.links.measure("delft", 64 << 20)))
    measuring.start()
    for _ in range(3):
        time.sleep(0.1)
        proxy.cut()
        proxy.mend()
        linked(one, two)
    measuring.join(60)
    assert [each.size for each in found] == [64 << 20]  # which the other side has counted


def test_a_stream_to_a_lease_that_is_over_is_reset_at_both_ends(make: Make) -> None:
    one, two = make("delft"), make("lyon", listens=False)
    one.link(two, port=0)
    two.link(one)
    linked(one, two)
    frames: list[Any] = []
    one.links.relay = lambda neighbour, lease, opening, back: Relay("k", opening, frames.append, lambda: None)
    stream = two.links.open_lease("delft", 3)
    until(lambda: frames)
    assert not stream.is_closed
    lease = LentLease(
        neighbour="lyon", number=3, processors=4, state=LeaseState.BOUND, asked_at=Instant(5),
        asked=Asked(origin=Origin("lyon", 7, 1), want=WANT, dttl=0, answer_by=Instant(9)),
    )  # fmt: skip
    one.links.committed(Change(leases=(lease, replace(lease, number=4, state=LeaseState.GONE))))
    assert not stream.is_closed
    one.links.committed(Change(leases=(replace(lease, state=LeaseState.GONE),)))
    until(lambda: stream.is_closed, 10)
    reset = until(lambda: [each for each in frames if isinstance(each, StreamReset)], 10)
    assert (reset[0].tag, reset[0].code) == ("k", "lease_ended")


def test_a_link_that_is_not_connected_is_not_measured(make: Make) -> None:
    one, two = make("delft"), make("lyon")
    one.link(two, port=0)
    with pytest.raises(TransientError, match="lyon is not connected"):
        one.links.measure("lyon", 1)


# ---- strangers


OPENED: list[socket.socket] = []


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def plain(site: Site, source: str = LOOPBACK) -> socket.socket:
    OPENED.append(socket.create_connection((LOOPBACK, site.port), 10, (source, 0)))
    return OPENED[-1]


def dial(site: Site, identity: Identity, source: str = LOOPBACK) -> TlsChannel:
    return handshake(plain(site, source), identity, [site.pin], False, 10)


def hello(**fields: Any) -> SiteHello:
    return SiteHello(SITE_PROTOCOL, "1", "lyon", "zzzzz", 1, "", 0)._replace(**fields)


def closed(channel: TlsChannel) -> bool:
    channel.limit(20)
    with suppress(ConnectionError):  # reset, if it had sent more than was read
        while channel.read(1 << 16):
            pass
    return True


class Hostile:
    """A site with one neighbour, lyon, whose key is the test's own."""

    def __init__(self, make: Make) -> None:
        self.site, self.lyon = make("delft"), make_identity("lyon")
        self.site.neighbours["lyon"] = Relation.SIBLING, self.address
        self.site.links.use(self.site.neighbours)

    @property
    def address(self) -> Any:
        from koalapy.runtime.sites.link import Address

        return Address(url=None, pins=(self.lyon.pin,))

    def greet(self, message: bytes | None = None, source: str = LOOPBACK) -> TlsChannel:
        channel = dial(self.site, self.lyon, source)
        upgrade.ask(channel, "delft")
        channel.write(encode(Control(site_to_json(hello()))) if message is None else message)
        return channel

    def counts(self, kind: str) -> None:
        """The refusal is counted, and reported in a sentence that the log has too."""
        until(lambda: self.site.refused().get(kind))
        found = next(each for each in self.site.links.refused() if each.kind == kind)
        assert found.sentence.endswith(".")
        assert found.address.startswith("127.")


@pytest.fixture
def hostile(make: Make) -> Hostile:
    return Hostile(make)


def test_a_stranger_s_key_is_refused_in_the_handshake(hostile: Hostile) -> None:
    channel = dial(hostile.site, make_identity("lyon"))  # TLS 1.3: the client's side is done before it is judged
    assert closed(channel)
    hostile.counts("stranger")


def test_a_client_without_a_certificate_is_refused(hostile: Hostile) -> None:
    context = SSL.Context(SSL.TLS_METHOD)
    under = plain(hostile.site)
    under.setblocking(True)
    connection = SSL.Connection(context, under)
    connection.set_connect_state()
    connection.do_handshake()
    with pytest.raises(SSL.Error):
        connection.recv(1)
    hostile.counts("no_certificate")


def test_an_older_tls_is_refused(hostile: Hostile) -> None:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    context.use_privatekey(hostile.lyon.key)
    context.use_certificate(hostile.lyon.certificate)
    under = plain(hostile.site)
    under.setblocking(True)
    connection = SSL.Connection(context, under)
    connection.set_connect_state()
    with pytest.raises(SSL.Error):
        connection.do_handshake()
    hostile.counts("no_tls")


def test_a_neighbour_s_key_under_another_name_is_refused(hostile: Hostile) -> None:
    assert closed(hostile.greet(encode(Control(site_to_json(hello(site="nl"))))))
    hostile.counts("other_name")


def test_an_expired_certificate_is_refused(hostile: Hostile) -> None:
    expired = certified("lyon", hostile.lyon.key, datetime.now(UTC) - timedelta(days=400))
    assert closed(dial(hostile.site, expired))
    hostile.counts("expired")


def test_a_renewed_certificate_of_the_same_key_is_accepted(hostile: Hostile) -> None:
    hostile.lyon = certified("lyon", hostile.lyon.key)
    channel = hostile.greet()
    until(lambda: hostile.site.is_connected("lyon"))
    channel.close()
    assert hostile.site.refused() == {}


def test_a_site_with_a_replaced_key_is_not_dialled_into(make: Make) -> None:
    one, two = make("delft", listens=False), make("lyon")
    one.link(two)
    two.link(one, port=0)
    linked(one, two)
    write_identity(two.certificate, make_identity("lyon"), replace=True)
    two.links.renew_sessions()
    until(lambda: (reason := one.state("lyon").status.reason) is not None and reason.code == "not_the_site")


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n", "other_request"),
        (b"POST /v1/site/link HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "other_request"),
        (b"GET /v1/site/link HTTP/1.1\r\nHost: x\r\n\r\n", "other_request"),
        (b"\x00\xff" * 5000, "garbage"),
        (b"GET /v1/site/link HTTP/1.1\r\nHost: " + b"x" * 100_000, "garbage"),
    ],
    ids=["other path", "other method", "no upgrade", "garbage", "huge head"],
)
def test_a_neighbour_gets_nothing_but_the_link(hostile: Hostile, request_: bytes, kind: str) -> None:
    channel = dial(hostile.site, hostile.lyon)
    with suppress(ConnectionError):  # closed before all of it was sent
        channel.write(request_)
    assert closed(channel)
    hostile.counts(kind)


@pytest.mark.parametrize(
    "first",
    [
        b"C" + b"\x00" * 50,
        HEADER.pack(b"J", MAX_CONTROL),
        HEADER.pack(b"J", 5) + b"{not}",
        encode(Control({"type": "site_hello"})),
        encode(Control({"type": "site_ping"})),
        encode(Control(site_to_json(hello(epoch=-1)))),
        encode(Control({**site_to_json(hello()), "site": "x" * 1000})),
    ],
    ids=["chunk", "huge", "no JSON", "no fields", "no hello", "epoch", "long name"],
)
def test_a_first_frame_that_is_no_hello_is_refused(hostile: Hostile, first: bytes) -> None:
    assert closed(hostile.greet(first))
    hostile.counts("garbage")


def test_one_that_sends_nothing_is_refused_after_a_while(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_HELLO_S", 0.5)
    channel = dial(hostile.site, hostile.lyon)

    def drip() -> None:
        with suppress(OSError):
            for byte in b"GET /v1/site/link HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 1000:
                channel.write(bytes([byte]))
                time.sleep(0.02)

    dripping = threading.Thread(target=drip)
    dripping.start()
    hostile.counts("slow")
    assert closed(channel)
    dripping.join()


def test_a_flood_of_connections_is_refused_and_does_not_keep_a_neighbour_out(hostile: Hostile) -> None:
    for _ in range(60):
        plain(hostile.site)
    hostile.counts("flood")
    channel = hostile.greet(source="127.0.0.2")
    until(lambda: hostile.site.is_connected("lyon"))
    until(lambda: hostile.site.refused()["flood"] == 60 - 8)
    channel.close()


def test_one_address_and_one_network_have_a_share_each() -> None:
    assert listener.prefix_of("192.0.2.77") == listener.prefix_of("::ffff:192.0.2.1") == "192.0.2.0/24"
    assert listener.prefix_of("2001:db8:0:1:2::3") == listener.prefix_of("2001:db8:0:1::") == "2001:db8:0:1::/64"
    assert listener.prefix_of("fe80::1%eth0") == "fe80::/64"


def test_the_oldest_stranger_of_the_largest_share_makes_room() -> None:
    strangers = listener.Strangers()
    OPENED.append(socket.socket())

    def enter(address: str) -> listener.Stranger | None:
        return strangers.enter(listener.Stranger(OPENED[-1], address))

    assert [enter("192.0.2.1") for _ in range(8)] == [None] * 8
    dropped = enter("192.0.2.1")
    assert dropped is not None
    assert dropped.dropped
    of_network = [enter(f"192.0.2.{2 + number % 200}") for number in range(40)]
    assert of_network[:24] == [None] * 24
    assert {each.address for each in of_network[24:31] if each} == {"192.0.2.1"}, "that address has most of them"
    others = [enter(f"198.51.{number}.1") for number in range(224)]
    assert others == [None] * 224
    last = enter("203.0.113.1")
    assert last is not None
    assert last.address.startswith("192.0.2."), "that network has most of them"


def test_a_neighbour_comes_in_beside_a_flood_of_half_open_connections_from_many_addresses(hostile: Hostile) -> None:
    ended, open_ones = threading.Event(), list[socket.socket]()

    def flood() -> None:
        for number in count():
            if ended.wait(1 / 70):
                break
            with suppress(OSError):
                open_ones.append(plain(hostile.site, f"127.{number % 50}.{number // 7 % 250}.{1 + number % 11}"))

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        until(lambda: len(open_ones) > 64)
        channel = hostile.greet()  # each try has 10 s
        until(lambda: hostile.site.is_connected("lyon"))
        channel.close()
    finally:
        ended.set()
        flooding.join()


def test_a_flood_from_many_addresses_ends_with_its_time_outs(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_HELLO_S", 1.0)
    for number in range(100):
        plain(hostile.site, f"127.0.1.{1 + number // 5}")
    hostile.counts("slow")

    def greeted() -> TlsChannel | None:
        with suppress(OSError, Untrusted):  # some may be undecided still
            return hostile.greet()
        return None

    channel = until(greeted)
    until(lambda: hostile.site.is_connected("lyon"))
    channel.close()


@pytest.mark.parametrize(
    "frame",
    [
        b"X" * 100,
        HEADER.pack(b"J", MAX_CONTROL + 1),
        encode(Control({"type": "hello"})),
        encode(Control(site_to_json(SiteMessage(1, {"type": "free_processors", "processors": -4})))),
        encode(Control(site_to_json(hello()))),
    ],
    ids=["garbage", "too large", "unknown", "bad value", "second hello"],
)
def test_a_neighbour_that_sends_nonsense_loses_its_session_and_changes_nothing(hostile: Hostile, frame: bytes) -> None:
    channel = hostile.greet()
    until(lambda: hostile.site.is_connected("lyon"))
    channel.write(frame)
    assert closed(channel)
    reason = until(lambda: hostile.site.state("lyon").status.reason)
    assert reason.code == "garbled"
    assert hostile.site.got == {}


def test_a_flood_of_messages_ends_the_session(hostile: Hostile) -> None:
    channel = hostile.greet()
    until(lambda: hostile.site.is_connected("lyon"))
    body = {"type": "free_processors", "processors": 4}
    flood = b"".join(encode(Control(site_to_json(SiteMessage(number, body)))) for number in range(1, 3000))
    with suppress(OSError):
        channel.write(flood)
    assert closed(channel)
    reason = until(lambda: hostile.site.state("lyon").status.reason)
    assert reason.code == "too_many_messages"


def test_a_neighbour_may_open_a_few_streams_of_known_kinds(hostile: Hostile) -> None:
    channel = hostile.greet()
    until(lambda: hostile.site.is_connected("lyon"))
    opened = [OpenStream("sink", number, 0, 1, 60_000_000) for number in range(1, 21)]
    for each in [*opened, OpenStream("shell", 99, 0, 1, 60_000_000)]:
        channel.write(encode(Control(to_json(each))))
    decoder, answers = Decoder(), list[Any]()
    while len(answers) < 21:
        frames = decoder.feed(channel.read(1 << 16))
        answers += [each.data for each in frames if isinstance(each, Control) and "stream" in each.data]
    refused = [each["stream"] for each in answers if each["type"] == "stream_reset"]
    assert refused == [17, 18, 19, 20, 99]
    channel.close()


# ---- keys


def test_a_key_is_written_once_and_only_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "config" / "site.pem"
    identity = make_identity("delft")
    write_identity(path, identity)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_identity(path).pin == identity.pin == pin_of(identity.certificate)
    with pytest.raises(RequestError, match="exists already"):
        write_identity(path, make_identity("delft"))
    assert read_identity(path).pin == identity.pin
    assert os.listdir(path.parent) == ["site.pem"]


def test_a_certificate_that_ends_soon_is_renewed_under_its_key(tmp_path: Path) -> None:
    path, key = tmp_path / "site.pem", make_identity("delft").key
    write_identity(path, certified("delft", key, datetime.now(UTC) - timedelta(days=355)))
    read = read_identity(path)
    assert read.certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=300)
    assert pin_of(read.certificate) == read_identity(path).pin


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.unlink(), "no key yet"),
        (lambda path: path.chmod(0o644), "others than you may read it"),
        (lambda path: path.write_bytes(b"nonsense"), "no key and certificate"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "no key and certificate"),
    ],
    ids=["missing", "readable", "nonsense", "cut"],
)
def test_a_key_that_cannot_be_used_is_refused(tmp_path: Path, harm: Callable[[Path], Any], words: str) -> None:
    path = tmp_path / "site.pem"
    write_identity(path, make_identity("delft"))
    harm(path)
    with pytest.raises(RequestError, match=words):
        read_identity(path)


def test_a_dialler_sends_nothing_to_one_with_another_key(hostile: Hostile) -> None:
    with pytest.raises(Untrusted, match="not a neighbour's"):
        handshake(plain(hostile.site), hostile.lyon, [make_identity("delft").pin], False, 10)

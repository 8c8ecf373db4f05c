"""Two koalads of two people, linked by the lines that they exchange: killed, restarted, removed, with a new key."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest

Document = dict[str, Any]


class Pair:
    def __init__(self, place: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.delft = live.Koala(place / "delft", site={"name": "delft", "listen": f"127.0.0.1:{self.port}"})
        self.lyon = live.Koala(place / "lyon", site={"name": "lyon"})  # it only dials
        self.both = self.delft, self.lyon

    def link(self) -> None:
        line = self.delft("sites", "invite", "lyon", "--json").document["invitation"]["line"]
        answer = self.lyon("sites", "join", line, "--json").document["invitation"]["line"]
        assert self.delft("sites", "join", answer).status == 0
        self.connected()

    def connected(self) -> None:
        for koala, other in ((self.delft, "lyon"), (self.lyon, "delft")):
            koala.until(lambda: neighbour(koala)["state"] == "connected" and neighbour(koala)["free"] is not None)  # noqa: B023
            assert neighbour(koala)["name"] == other

    def stop(self) -> None:
        for koala in self.both:
            koala.stop()


def neighbour(koala: live.Koala) -> Document:
    (found,) = koala("sites", "--json").document["neighbours"]
    return dict(found)


@pytest.fixture
def pair(place: Path) -> Iterator[Pair]:
    made = Pair(place)
    try:
        for koala in made.both:
            koala("up").refused(2, "has no key yet", "`koala sites init` makes one.")
            assert "Its pin is sha256:" in koala("sites", "init").out
            assert koala("up").status == 0
        yield made
    finally:
        made.stop()


def test_two_people_link_their_sites_and_end_it(pair: Pair) -> None:
    pair.link()
    delft, lyon = pair.both
    assert neighbour(delft)["url"] is None
    assert neighbour(lyon)["relation"] == "sibling"
    for koala in pair.both:
        koala.until(lambda: neighbour(koala)["free"] == neighbour(koala)["sent_free"] == 0)  # noqa: B023 - nothing is lent
    assert "connected" in delft("sites").out
    measured = lyon("sites", "check", "delft", "--size", "1M", "--json").document
    assert (measured["neighbour"], measured["bytes"]) == ("delft", 1 << 20)
    assert "MB/s" in delft("sites", "check", "lyon", "--size", "100K").out
    delft("sites", "check", "lyon", "--size", "much").refused(2, "is no size", "16M")
    delft("sites", "init").refused(2, "exists already", "`koala sites rotate`")
    invited = delft("sites", "invite", "paris", "--json").document
    assert set(invited) == {"schema", "invitation"}
    assert set(invited["invitation"]) == {"site", "neighbour", "line"}
    line = invited["invitation"]["line"]
    lyon("sites", "join", line).refused(2, "is for a site paris", "this one is lyon")
    lyon("sites", "join", line[:-9]).refused(2)
    lyon("sites", "join", "koala-site/1,site=delft").refused(2, "is no line of a site")
    lyon("sites", "remove", "paris").refused(2, "no neighbour paris", "Known: delft.")
    assert delft("sites", "remove", "lyon").status == 0
    assert delft("sites", "--json").document["neighbours"] == []
    lyon.until(lambda: neighbour(lyon)["state"] == "unreachable")
    refused = delft.until(lambda: delft("sites", "--json").document["refused"])
    assert [each["kind"] for each in refused] == ["stranger"]
    assert refused[0]["sentence"].endswith("was not a neighbour's then."), "it may be one by now"
    assert "connection_refused" in (delft.root / "state" / "koala" / "live" / "koalad.log").read_text()


def test_killed_koalads_and_a_new_key(pair: Pair) -> None:
    pair.link()
    for koala in pair.both:
        os.kill(koala.client().status()["pid"], signal.SIGKILL)
        koala.until(lambda: koala("up").status == 0)  # noqa: B023
        pair.connected()
    delft, lyon = pair.both
    (line,) = lyon("sites", "rotate", "--json").document["lines"]
    lyon.until(lambda: neighbour(lyon)["state"] == "unreachable")
    delft("sites", "join", line["line"]).refused(2, "with another key", "--replace")
    assert delft("sites", "join", "--replace", line["line"]).status == 0
    pair.connected()


def test_neighbours_of_the_grid_file_are_read_again(pair: Pair) -> None:
    delft, lyon = pair.both
    pins = {koala: koala("sites", "--json").document["site"]["pin"] for koala in pair.both}
    url = f"https://127.0.0.1:{pair.port}"
    with_each_other = (
        (delft, "lyon", {"relation": "child", "pin": pins[lyon]}),
        (lyon, "delft", {"relation": "parent", "pin": pins[delft], "url": url}),
    )
    for koala, other, values in with_each_other:
        site = {"name": "delft" if koala is delft else "lyon", "neighbours": {other: values}}
        site |= {"listen": f"127.0.0.1:{pair.port}"} if koala is delft else {}
        koala.write_grid({"grid": "live", "clusters": live.embedded(koala.root), "site": site})
        assert koala("reload").status == 0
    pair.connected()
    assert (neighbour(delft)["relation"], neighbour(lyon)["relation"]) == ("child", "parent")
    lyon("sites", "remove", "delft").refused(2, "is in the grid file", "`koala reload`")
    lyon.write_grid({"grid": "live", "clusters": live.embedded(lyon.root), "site": {"name": "lyon"}})
    assert lyon("reload").status == 0
    assert lyon("sites", "--json").document["neighbours"] == []
    lyon.write_grid({"grid": "live", "clusters": live.embedded(lyon.root), "site": {"name": "other"}})
    lyon("reload").refused(2, "reads site.name only when it starts")

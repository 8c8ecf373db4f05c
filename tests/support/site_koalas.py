"""Live koalads of several people that are linked as sites, for tests: begun, linked by lines, killed."""

import socket
from pathlib import Path
from typing import Any

import live

Document = dict[str, Any]


def site(place: Path, name: str, slots: int, more: Document | None = None, **section: Any) -> live.Koala:
    """A koalad of one person that is the site `name`, with one embedded cluster of so many slots.

    `more`: further keys of the cluster, or others in place of these.
    """
    nodes = {
        "batch": "local", "connect": "local:", "poll": "200ms", "max_age": "1m", "slots": slots,
        "shared": str(place / name / "shared"), **(more or {}),
    }  # fmt: skip
    return live.Koala(place / name, {f"{name}-nodes": nodes}, site={"name": name, **section})


def free_address() -> str:
    """An address of this machine on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def begin(*koalas: live.Koala, **environment: Any) -> None:
    """Make the key of each site, and start its koalad."""
    for koala in koalas:
        assert koala("sites", "init").status == 0
        assert koala("up", **environment).status == 0


def link(inviting: live.Koala, name: str, invited: live.Koala, relation: str = "sibling", address: str = "") -> None:
    """Link two sites by the lines that their people exchange. `name`, `relation`: of the invited one.

    `address`: where the invited one reaches the inviting one, if not where that one listens.
    """
    options = ["--relation", relation, "--json", *(["--address", address] if address else [])]
    line = inviting("sites", "invite", name, *options).document["invitation"]["line"]
    answer = invited("sites", "join", line, "--json").document["invitation"]["line"]
    assert inviting("sites", "join", answer).status == 0


def leases(koala: live.Koala) -> list[Document]:
    return list(koala("leases", "--json").document["leases"])


def nothing_left_of_leases(koala: live.Koala) -> bool:
    """Return whether no attempt has a directory at the lender any more."""
    return not list((koala.root / "shared").glob("*/*/work"))

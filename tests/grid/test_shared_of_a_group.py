"""A project directory of a group on a real head node: another member plants a program, and nobody runs it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest
import yaml
from koalapy_adapters.connections.pack import packed

from koalapy.testgrid import layout

GROUP, MEMBER = "hphys", "wombat"
PLACE = "/home/project"  # which the compute nodes see
PLANTED = "/tmp/planted-program-ran"
MAKE = f"""
groupadd -f {GROUP}
for user in {layout.USER} {MEMBER}; do usermod -a -G {GROUP} $user; done
install -d -m 0755 {PLACE}
install -d -m 2775 -o {layout.USER} -g {GROUP} {PLACE}/direct
"""
REMOVE = f"""
rm -rf {PLACE} {PLANTED}
for user in {layout.USER} {MEMBER}; do gpasswd -d $user {GROUP}; done
groupdel {GROUP}
true
"""
PLANT = f"""
set -e
cd {PLACE}/direct
mv bin stolen
mkdir bin
echo 'open("{PLANTED}", "w").write(str(__import__("os").getuid()))' >bin/{packed().digest}.pyz
chmod -R a+rwX bin
"""


@pytest.fixture
def project(testgrid: Any) -> Iterator[Any]:
    """The head alpha, with a directory that is the user's and its group's."""

    def sh(script: str, user: str = "root") -> str:
        return str(testgrid.check("alpha", ["sh", "-c", script], user))

    sh(MAKE)
    yield sh
    sh(REMOVE)


@pytest.fixture
def koala(testgrid: Any) -> Iterator[Any]:
    entry = yaml.safe_load(Path(testgrid.grid_file).read_text())["clusters"]["alpha"]
    with tempfile.TemporaryDirectory(prefix="ks", dir="/tmp") as place:
        made = live.Koala(Path(place), {"alpha": {**entry, "shared": f"{PLACE}/direct", "poll": "1s"}})
        yield made
        made.stop()


def reason(koala: Any) -> str:
    """Why the cluster cannot be used, once that is known."""
    assert koala("up").status == 0
    found: str = koala.until(lambda: koala("clusters", "--json").document["clusters"][0]["reason"])
    assert koala("down").status == 0
    return found


def test_a_program_that_a_member_of_the_group_plants_is_not_run(koala: Any, project: Any) -> None:
    order = f"`chmod g-w {PLACE}/direct`"
    assert order in reason(koala)
    assert project(f"ls {PLACE}/direct") == ""
    project(f"chmod g-w {PLACE}/direct")
    assert koala("up").status == 0
    koala.until(lambda: koala("clusters", "--json").document["clusters"][0]["idle"])
    assert koala("run", "-n", "1", "--", "hostname").status == 0
    assert koala("down").status == 0

    project(f"chmod g+w {PLACE}/direct")
    project(PLANT, MEMBER)
    said = reason(koala)
    assert f"{PLACE}/direct belongs to {layout.USER} (group {GROUP}, mode 2775)" in said
    assert order in said
    examined = koala("doctor", "--json")
    assert examined.status == 1
    checks = {check["check"]: check for check in examined.document["clusters"][0]["checks"]}
    assert checks["login"]["status"] == "ok"
    assert checks["shared"]["failure"]["code"] == "shared_open_to_others"
    assert order in checks["shared"]["failure"]["change"]

    project(f"chmod g-w {PLACE}/direct")
    assert f"{PLACE}/direct/bin belongs to {MEMBER} (" in reason(koala)
    assert project(f"ls {PLANTED} 2>/dev/null || true") == ""

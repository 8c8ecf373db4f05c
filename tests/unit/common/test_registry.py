"""Every group of entry points is used: what is registered there is what a file can name."""

import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from koalapy.common.registry import registered
from koalapy.config import SWEEP_POLICIES
from koalapy.config.maintenance import MAINTENANCE
from koalapy.config.schema import VACATING
from koalapy.config.site import SITE_POLICIES
from koalapy.experiments.interop.experiment import Settings as InteropSettings
from koalapy.model.errors import RequestError
from koalapy.model.settings import Scavenging, Settings
from koalapy.policies.fairshare import EQUIPARTITION_ALL
from koalapy.policies.idleness import any_idle
from koalapy.policies.reclaim import oldest_first
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.sweep_order import BACK_HOME, IN_ORDER
from koalapy.runtime.load_policies import scavenging_policies

ROOT = Path(__file__).parents[3]


def test_the_defaults_are_those_of_the_policies() -> None:
    assert scavenging_policies(Settings(clusters=())) == ScavengingPolicies()


def test_each_is_found_by_its_name() -> None:
    named = Scavenging(policy="equipartition-all", idleness="any-idle", reclaim="oldest-first", order="back-home")
    chosen = scavenging_policies(Settings(clusters=(), scavenging=named))
    assert (chosen.fairshare, chosen.idleness) == (EQUIPARTITION_ALL, any_idle)
    assert (chosen.reclaim, chosen.order) == (oldest_first, BACK_HOME)


def test_an_order_of_another_package_may_be_named_by_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mine-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[koalapy.sweep_order]\nmine = my_orders:ORDER\n")
    (tmp_path / "my_orders.py").write_text("from koalapy.policies.sweep_order import IN_ORDER as ORDER\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert scavenging_policies(Settings(clusters=())).orders["mine"] is IN_ORDER


def test_a_package_that_is_installed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert "late" not in registered("koalapy.sweep_order")
    package = tmp_path / "late-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[koalapy.sweep_order]\nlate = my_orders:ORDER\n")
    assert "late" in registered("koalapy.sweep_order")


def test_one_that_is_not_registered_is_refused() -> None:
    with pytest.raises(RequestError, match="Nothing called worst-first is registered"):
        scavenging_policies(Settings(clusters=(), scavenging=Scavenging(reclaim="worst-first")))


def test_one_whose_package_is_broken_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mine-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[koalapy.sweep_order]\nbroken = no_such_module_of_mine:ORDER\n")
    monkeypatch.syspath_prepend(tmp_path)
    reported = r"broken is registered under koalapy.sweep_order, but cannot be loaded \(ModuleNotFoundError: No module"
    with pytest.raises(RequestError, match=reported):
        scavenging_policies(Settings(clusters=(), scavenging=Scavenging(order="broken")))


@pytest.mark.parametrize("group", [*SWEEP_POLICIES, VACATING, *SITE_POLICIES, "placement", "queueing"])
def test_every_registered_policy_can_be_loaded(group: str) -> None:
    points = registered(f"koalapy.{group}")
    assert len(points) >= 2
    assert all(point.load() for point in points.values())


@pytest.mark.parametrize(("group", "key"), [("delegation", "delegation"), ("targets", "targets")])
def test_a_policy_of_sites_from_another_package_may_be_named_by_an_experiment(
    group: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mine-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (package / "entry_points.txt").write_text(f"[koalapy.{group}]\nmine = my_sites:POLICY\n")
    with pytest.raises(ValidationError, match="is not a "):
        InteropSettings.model_validate({key: "mine"})
    monkeypatch.syspath_prepend(tmp_path)
    assert getattr(InteropSettings.model_validate({key: "mine"}), key) == "mine"


def test_every_group_of_entry_points_is_resolved_somewhere() -> None:
    """The groups in `config` are resolved by these lists; every other one is named where it is resolved."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"].keys() - {"pytest11"}
    listed = {f"koalapy.{each}" for each in (*SWEEP_POLICIES, MAINTENANCE)}
    sources = "".join(path.read_text() for path in (ROOT / "koalapy").rglob("*.py"))
    assert listed < groups
    assert not [group for group in sorted(groups - listed) if f'("{group}"' not in sources]

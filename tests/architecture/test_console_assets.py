"""The console's pages run the scripts that were pinned, and no others."""

import pytest

from tools.console_assets import ASSETS, STATIC


@pytest.mark.parametrize("name", ASSETS)
def test_the_carried_scripts_are_those_of_the_pinned_packages(name: str) -> None:
    assert (STATIC / name).read_bytes() == ASSETS[name].read_bytes()


def test_every_carried_script_but_the_consoles_own_is_pinned() -> None:
    assert {path.name for path in STATIC.glob("*.js")} == {*ASSETS, "console.js", "fleet.js"}

"""Where the agent asks DCGM's host engine."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from nodeheal.agent.checks import dcgm, dcgm_host
from nodeheal.agent.checks.dcgm_host import dcgmi
from nodeheal.agent.evidence.evidence_commands import evidence_commands
from nodeheal.agent.runtime.config import ConfigError, parse
from tests.unit.agent.checks.places import Node

UNIX = "unix:///run/nvidia-dcgm/nv-hostengine"


def test_dcgmi_is_left_to_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcgm_host, "SOCKET", tmp_path / "no-socket")

    assert dcgmi(Node(tmp_path).place.config, "health", "-c") == ["dcgmi", "health", "-c"]


def test_a_host_engine_that_listens_on_a_socket_only_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name may have 107 bytes
    path = Path("engine")
    monkeypatch.setattr(dcgm_host, "SOCKET", path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))

        assert dcgmi(Node(tmp_path).place.config, "diag") == ["dcgmi", "diag", "--host", "unix://engine"]

    path.unlink()
    path.write_text("no socket")
    assert dcgmi(Node(tmp_path).place.config, "diag") == ["dcgmi", "diag"]


def test_the_configuration_says_where_it_listens(tmp_path: Path) -> None:
    place = Node(tmp_path).place
    config = replace(place.config, dcgm_host=UNIX)

    node = Node(tmp_path)
    dcgm.look(replace(node.place, config=config), {})

    assert node.ran == [f"dcgmi health -c -j --host {UNIX}"]
    asked = [
        exhibit.command for exhibit in evidence_commands(config, with_bug_report=False) if "dcgmi" in exhibit.command
    ]
    assert asked
    assert all(command[-2:] == ("--host", UNIX) for command in asked)


@pytest.mark.parametrize(
    ("host", "is_taken"), [(UNIX, True), ("10.0.0.4:5555", True), ("unix://x", False), ("a b", False)]
)
def test_a_host_that_dcgmi_would_not_understand_is_refused(host: str, is_taken: bool) -> None:
    known = {
        "node_id": "mi-0a1b2c3d",
        "cluster": "c",
        "pool": "p",
        "provider": "hybrid",
        "scheduler": "ECS",
        "region": "eu-west-1",
    }

    if is_taken:
        assert parse({**known, "dcgm_host": host}).dcgm_host == host
    else:
        with pytest.raises(ConfigError, match="dcgm_host"):
            parse({**known, "dcgm_host": host})

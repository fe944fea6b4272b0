"""The configuration of a pod is completed by what the node's own Node object says of its machine."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.commands import node_config
from nodeheal.agent.commands.node_config import configured
from nodeheal.agent.kubernetes.own_node import OwnNode
from nodeheal.agent.runtime.config import ConfigError, load
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider

COMMON = 'cluster = "training"\nscheduler = "KUBERNETES"\nregion = "eu-central-1"\n[labels]\nrack = "r7"\n'


def node(provider_id: str, pool: str = "h100") -> dict[str, Any]:
    return {"spec": {"providerID": provider_id}, "metadata": {"labels": {names.KUBERNETES_POOL_LABEL: pool}}}


def written(monkeypatch: pytest.MonkeyPatch, folder: Path, found: dict[str, Any], common: str = COMMON) -> Path:
    (folder / "common.toml").write_text(common)
    monkeypatch.setattr(OwnNode, "of_environment", lambda: OwnNode("n", "127.0.0.1", 1, folder))
    monkeypatch.setattr(OwnNode, "read", lambda self: found)
    to = folder / "agent.toml"
    assert node_config.carry_out(argparse.Namespace(source=folder / "common.toml", to=to)) == 0
    return to


@pytest.mark.parametrize(
    ("provider_id", "node_id", "provider"),
    [
        ("aws:///eu-central-1a/i-0a1b2c3d4e5f60718", "i-0a1b2c3d4e5f60718", Provider.ec2),
        (
            "aws:///usw2-az2/sagemaker/cluster/hyperpod-a1b2c3d4e5f6-i-0a1b2c3d4e5f60718",
            "i-0a1b2c3d4e5f60718",
            Provider.hyperpod,
        ),
        ("eks-hybrid:///eu-central-1/training/mi-0a1b2c3d4e5f67890", "mi-0a1b2c3d4e5f67890", Provider.hybrid),
    ],
)
def test_a_node_is_named_after_its_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provider_id: str, node_id: str, provider: Provider
) -> None:
    config = load(written(monkeypatch, tmp_path, node(provider_id)))

    assert (config.node_id, config.provider, config.pool, dict(config.labels)) == (
        node_id,
        provider,
        "h100",
        {"rack": "r7"},
    )


@pytest.mark.parametrize(
    "provider_id", ["", "kind://docker/kind/node", 'aws:///a/i-0a1b2c3d"\nbus = "x', "gce://p/z/n"]
)
def test_another_machine_is_refused(provider_id: str) -> None:
    with pytest.raises(ConfigError, match="names no machine"):
        configured(COMMON, node(provider_id))


@pytest.mark.parametrize("pool", ["", 'h100"\nbus = "x', "a" * 65])
def test_a_node_without_a_pool_is_refused(pool: str) -> None:
    with pytest.raises(ConfigError, match=r"label nodeheal\.io/pool"):
        configured(COMMON, node("aws:///a/i-0a1b2c3d4e5f60718", pool))


@pytest.mark.parametrize("common", ['pool = "other"\n' + COMMON, "cluster =", COMMON.replace("cluster", "clutser")])
def test_a_configuration_that_does_not_fit_names_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, common: str
) -> None:
    with pytest.raises(ConfigError, match=r"common\.toml, with node_id, provider and pool of this node: "):
        written(monkeypatch, tmp_path, node("aws:///a/i-0a1b2c3d4e5f60718"), common)


def test_elsewhere_it_says_what_it_is_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NODEHEAL_NODE_NAME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError, match="no pod of nodeheal's chart"):
        node_config.carry_out(argparse.Namespace(source=tmp_path, to=tmp_path))

"""`nodeheal-agent node-config`: as the init container of a pod, completes the agent's configuration for this node.

Its id and its provider are in `spec.providerID` of its Node object, which only the kubelet's registration sets; its
pool is a label.
"""

import argparse
import re
import tomllib
from pathlib import Path

from nodeheal.agent.kubernetes.own_node import Object, OwnNode
from nodeheal.agent.runtime import config as configuration
from nodeheal.agent.runtime.config import ConfigError
from nodeheal.agent.runtime.safe_files import replace_file
from nodeheal.contract import names
from nodeheal.contract import words as patterns
from nodeheal.contract.vocabulary import Provider

EXIT_DONE = 0
MODE = 0o644
_PROVIDER_IDS = (
    (Provider.hyperpod, re.compile(r"aws:///[a-z0-9-]+/sagemaker/cluster/hyperpod-[a-z0-9]+-(i-[0-9a-f]{8,17})")),
    (Provider.ec2, re.compile(r"aws:///[a-z0-9-]+/(i-[0-9a-f]{8,17})")),
    (Provider.hybrid, re.compile(r"eks-hybrid:///[a-z0-9-]+/[A-Za-z0-9_-]+/(mi-[0-9a-f]{17})")),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the file of all nodes, and this node's own."""
    parser.add_argument("--source", type=Path, required=True, help="agent.toml without node_id, provider and pool")
    parser.add_argument("--to", type=Path, required=True, help="the whole configuration of this node")


def carry_out(arguments: argparse.Namespace) -> int:
    """Write the configuration; returns the exit code. Raises ConfigError, OSError."""
    node = OwnNode.of_environment()
    if node is None:
        raise ConfigError("this is no pod of nodeheal's chart: its variables are missing")
    text = configured(arguments.source.read_text("utf-8"), node.read())
    try:
        configuration.parse(tomllib.loads(text))
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{arguments.source}, with node_id, provider and pool of this node: {error}") from error
    replace_file(arguments.to, text, MODE)
    return EXIT_DONE


def configured(common: str, node: Object) -> str:
    """Return the configuration of one node. Raises ConfigError where its Node object does not say which machine it is,
    or has no pool.
    """
    provider_id = str(node.get("spec", {}).get("providerID", ""))
    provider, node_id = next(
        ((provider, match[1]) for provider, form in _PROVIDER_IDS if (match := form.fullmatch(provider_id))),
        (None, ""),
    )
    if provider is None:
        raise ConfigError(
            f"spec.providerID {provider_id[:128]!r} names no machine of EC2, HyperPod or EKS Hybrid Nodes"
        )
    pool = str(node.get("metadata", {}).get("labels", {}).get(names.KUBERNETES_POOL_LABEL, ""))
    if not re.fullmatch(patterns.POOL, pool):
        raise ConfigError(f"the node has no label {names.KUBERNETES_POOL_LABEL} with its pool")
    lines = (f'node_id = "{node_id}"', f'provider = "{provider.value}"', f'pool = "{pool}"')
    return "\n".join((*lines, common))

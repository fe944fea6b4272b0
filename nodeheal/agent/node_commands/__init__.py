"""`nodeheal-agent run COMMAND`: the commands that the control plane sends to a node by SSM.

Each module of this folder is one command, which its `COMMAND` describes. A new one is a new module; nothing lists them.
"""

import argparse
import pkgutil
from importlib import import_module

from nodeheal.agent import config as configuration
from nodeheal.agent.node_command import NodeCommand


def all_commands() -> dict[str, NodeCommand]:
    """Each order by its name, sorted by module."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: list[NodeCommand] = [import_module(f"{__name__}.{name}").COMMAND for name in modules]
    return {order.name: order for order in found}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every order, under `run`."""
    stale = argparse.ArgumentParser(add_help=False)
    stale.add_argument("--boot-id", required=True, help="the boot that the order is meant for; another one refuses it")
    stale.add_argument("--expires-at", type=float, required=True, help="epoch seconds; refused from then on")
    orders, parents = parser.add_subparsers(dest="order", required=True), [configuration.option(), stale]
    for name, order in all_commands().items():
        order.add_arguments(orders.add_parser(name, parents=parents, help=order.help))


def carry_out(arguments: argparse.Namespace) -> int:
    """Do what is ordered; the exit code. 3: refused, because it is stale."""
    config = configuration.given(arguments)
    return all_commands()[arguments.order].carry_out(arguments, config)

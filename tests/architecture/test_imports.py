"""Imports stand at the top of a module. Those in functions are listed here, each with what it is good for."""

import ast
from collections import Counter

from stacks.settings import REPOSITORY

# By file: how many imports of nodeheal's modules stand in functions, and why. A command needs none to start fast: its
# modules come late, by the table in nodeheal/cli/late.py.
IN_FUNCTIONS = {
    "nodeheal/cli/entry.py": (1, "where a package is missing, it says which extra brings it"),
    "nodeheal/adapters/schedulers.py": (5, "a function loads only the schedulers of the nodes that it meets"),
    "nodeheal/agent/checks/gpu_state.py": (1, "NVML takes 2.7 MiB, and only nodes with NVIDIA's GPUs have it"),
    "nodeheal/agent/checks/nvidia_smi.py": (1, "the parser of XML is needed only in the check's own process"),
    "nodeheal/agent/checks/own.py": (1, "ctypes is needed only in the check's own process"),
    "nodeheal/agent/commands/command_line.py": (2, "who watches keeps no parser, and other commands load no watch"),
    "nodeheal/agent/main.py": (1, "what is put off has to be known before the command line is imported"),
    "nodeheal/agent/slurm/verbs.py": (1, "each drain and requeue would load the doctor, which takes 0.3 s"),
    "nodeheal/agent/transport/connect.py": (1, "2.3 MiB, only for those who ask for a page of metrics"),
    "nodeheal/api/incident_queries.py": (2, "41 modules that only an incident with an open question needs"),
}


def is_ours(node: ast.AST) -> bool:
    """Whether it imports something of nodeheal's."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").startswith("nodeheal")
    return isinstance(node, ast.Import) and any(name.name.startswith("nodeheal") for name in node.names)


def in_functions(source: str) -> int:
    """How many imports of nodeheal's modules stand in the functions of this source."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return len({node for function in functions for node in ast.walk(function) if is_ours(node)})


def test_imports_in_functions_are_those_of_the_table() -> None:
    files = (REPOSITORY / "nodeheal").rglob("*.py")
    counts = Counter({str(file.relative_to(REPOSITORY)): in_functions(file.read_text("utf-8")) for file in files})

    assert +counts == {file: count for file, (count, _) in IN_FUNCTIONS.items()}


def test_an_import_in_a_function_of_a_function_counts_once() -> None:
    source = "import nodeheal\ndef f():\n    import json\n    def g():\n        from nodeheal.api import aws\n"

    assert in_functions(source) == 1

"""Reads the agent's configuration, one TOML file. An invalid key is refused by name."""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nodeheal.agent.identity.node_identity import Identity
from nodeheal.agent.runtime.config_value import (
    LONG_CHARACTERS,
    WORD_CHARACTERS,
    checked,
    count,
    is_address,
    labels,
    number,
    path,
    text,
    words,
)
from nodeheal.agent.runtime.config_value import ConfigError as ConfigError
from nodeheal.agent.runtime.thresholds import THRESHOLDS, Threshold
from nodeheal.contract import names
from nodeheal.contract import words as patterns
from nodeheal.contract.vocabulary import Provider, SchedulerKind

if TYPE_CHECKING:
    import argparse

DEFAULT_PATH = Path("/etc/nodeheal/agent.toml")
ENV_CONFIG = "NODEHEAL_AGENT_CONFIG"

BYTE_ORDER_MARK = "\ufeff"  # some editors write it at the start of a file

_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{1,127}")  # health_event.NODE_ID_PATTERN; a test compares them
# PutEvents' form of a bus name: it refuses every event for any other.
_WORDS = {"pool": patterns.POOL, "cluster": patterns.CLUSTER, "product": patterns.WORD, "address": patterns.ADDRESS}
_BUS = re.compile(r"(arn:aws[a-z-]*:events:[a-z0-9-]+:[0-9]{12}:event-bus/)?[A-Za-z0-9._/-]+")
_DCGM_HOST = re.compile(r"unix:///[A-Za-z0-9._/-]+|[A-Za-z0-9.:-]+")
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
METRICS_OFF, METRICS_LEVELS = "off", ("nodes", "gpus")
LABELS = 16  # health_event.LABELS
_LOG_KINDS = ("kmsg", "file", "journald")
_PATHS = (
    *("boot_id_file", "state_dir", "orders_dir", "checkpoint_dir", "progress_dir", "dcgm_drills_file"),
    "checks_dir",
)
_SECONDS = {
    "heartbeat_seconds": (0.1, 3600.0),
    "fallback_seconds": (0.1, 86_400.0),
    "reboot_force_seconds": (10.0, 1800.0),
}
_OWN_SECONDS = {"interval_seconds": (10.0, 86_400.0), "deadline_seconds": (1.0, 300.0)}
# More accelerators than any machine has, and more disk than a node's events need in a year: such a value is a typing
# error.
_COUNTS = {"accelerators": (0, 1024), "spool_mib": (1, 16_384)}


Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True)
class KernelLog:
    """A source of kernel messages: `kmsg` (the device), `file` (what a syslog daemon writes) or `journald`."""

    kind: str
    path: str = ""  # journald: the folder of the journal's files; empty: this machine's own


@dataclass(frozen=True)
class OwnCheck:
    """The interval and the deadline of an operator's own check."""

    interval_seconds: float = 60.0
    deadline_seconds: float = 30.0


@dataclass(frozen=True)
class AgentConfig:
    """All settings of one agent."""

    node_id: str
    cluster: str
    pool: str
    provider: Provider
    scheduler: SchedulerKind  # which one places work on this node
    region: str
    instance_id: str = ""  # only the node's own id is valid; kept because older configurations have it
    bus: str = names.BUS
    endpoint_url: str | None = None
    kernel_log: tuple[KernelLog, ...] = (KernelLog("kmsg", "/dev/kmsg"),)
    boot_id_file: str = "/proc/sys/kernel/random/boot_id"
    state_dir: str = "/var/lib/nodeheal"
    # Root's alone: in a folder of its own, the agent's user could mislead root.
    orders_dir: str = "/var/lib/nodeheal-orders"
    checkpoint_dir: str = "/run/nodeheal/checkpoint"  # visible to tasks that take part; lost at a reboot
    dcgm_drills_file: str = "/run/nodeheal-agent/dcgm-drills.json"  # in a folder of root's; lost at a reboot
    dcgm_host: str = ""  # where DCGM's host engine listens; empty: detected
    heartbeat_seconds: float = 60.0
    # After this many seconds without an accepted event, grave findings are published to SNS as well.
    fallback_seconds: float = 120.0
    # systemd allows a service 90 s to stop, kills it, and then stops its dependencies. What is left after this time
    # cannot be killed. systemd's own limit for a whole reboot is half an hour.
    reboot_force_seconds: float = 150.0
    address: str | None = None
    accelerators: int | None = None
    drills: bool = False  # treat injected faults, which carry names.DRILL_MARK, as real ones
    spool_mib: int = 64
    product: str | None = None  # the accelerator, e.g. H100: some faults depend on the product
    checks: tuple[str, ...] | None = None  # by name; None: every check that this node supports
    checks_dir: str = "/etc/nodeheal/checks.d"  # each file in it is one of the operator's own checks
    own_checks: Mapping[str, OwnCheck] = field(default_factory=dict)  # by file name; others have the defaults
    mounts: tuple[str, ...] = ()  # shared file systems that jobs need here
    progress_dir: str = "/run/nodeheal/progress"  # where jobs report their steps
    nvidia_smi_beside_nvml: bool = False  # it reopens the driver at each run: docs/accelerator-checks.md
    cloudwatch_metrics: str = ""  # of METRICS_LEVELS; empty: none, since each metric costs money: docs/metrics.md
    prometheus_port: int = 0  # on loopback; 0: none
    labels: Mapping[str, str] = field(default_factory=dict)  # what it shares with other nodes: rack, switch, fabric
    thresholds: Mapping[str, float] = field(default_factory=dict)  # by name; others have the defaults

    @property
    def identity(self) -> Identity:
        """Return this node's identity."""
        who = (self.node_id, self.cluster, self.pool, self.provider, self.scheduler, self.product)
        return Identity(*who, dict(self.labels))

    def limit(self, threshold: Threshold) -> float:
        """Return the value of the threshold on this node."""
        return self.thresholds.get(threshold.name, threshold.default)

    def boot_id(self) -> str:
        """Return the id of the running boot. Raises OSError, or ConfigError where the file has none."""
        boot_id = Path(self.boot_id_file).read_text(encoding="ascii", errors="replace").strip()
        if not boot_id:
            raise ConfigError(f"{self.boot_id_file}: contains no boot id")
        return boot_id


def option() -> "argparse.ArgumentParser":
    """Return a parent parser with `--config`, which may stand before or behind the command's name."""
    import argparse  # the watching agent gets no help text, to save memory

    parent = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    parent.add_argument("--config", metavar="FILE", help=f"default: ${ENV_CONFIG}, else {DEFAULT_PATH}")
    return parent


def config_path(argument: str | None) -> Path:
    """Return the path to read: from the command line, else the environment, else the default."""
    return Path(argument or os.environ.get(ENV_CONFIG) or DEFAULT_PATH)


def given(arguments: "argparse.Namespace") -> AgentConfig:
    """Load the configuration that the command line names. Raises ConfigError."""
    return load(config_path(getattr(arguments, "config", None)))


def load(path: Path) -> AgentConfig:
    """Read and check the file. Raises ConfigError, and OSError where the disk is at fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8").removeprefix(BYTE_ORDER_MARK))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except OSError as error:
        # An error during the read does not name the file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: is not UTF-8: byte {error.start + 1} is {error.object[error.start]:#04x}"
        ) from error
    except (ValueError, RecursionError) as error:  # also raised for numbers with more digits than Python reads
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    try:
        return parse(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse(document: dict[str, object]) -> AgentConfig:
    """Parse a TOML document. Raises ConfigError, which names the key."""
    known = {known.name: known for known in fields(AgentConfig)}
    for key in document:
        _known(key, known)
    for key, setting in known.items():
        if setting.default is MISSING and setting.default_factory is MISSING and key not in document:
            raise ConfigError(f"key {key!r} is missing")
    values = {key: _value(key, value) for key, value in document.items()}
    config = AgentConfig(**values)  # type: ignore[arg-type]  # every value has been checked under its key
    if config.instance_id not in ("", config.node_id):
        raise ConfigError("key 'instance_id' must be the node's own id; remove the key")
    if config.checks == () and config.cloudwatch_metrics:
        raise ConfigError("key 'cloudwatch_metrics' sends the results of checks, but key 'checks' selects none")
    return config


def _known(key: str, known: Collection[str], table: str = "") -> None:
    if key in known:
        return
    from difflib import get_close_matches  # imported only for an error: it would stay in memory

    nearest = get_close_matches(key, known, n=1)
    hint = f"did you mean {table + nearest[0]!r}?" if nearest else f"known are {', '.join(sorted(known))}"
    raise ConfigError(f"unknown key {table + key!r}; {hint}")


def _value(key: str, value: object) -> object:
    if key == "kernel_log":
        return _kernel_logs(value)
    if key == "provider":
        return _one_of(Provider, key, value)
    if key == "scheduler":
        return _one_of(SchedulerKind, key, value)
    if key == "cloudwatch_metrics":
        return _metrics_level(value)
    if key in ("drills", "nvidia_smi_beside_nvml"):
        return checked(key, value, isinstance(value, bool), "true or false")
    if key in _SECONDS:
        return number(key, value, "seconds", *_SECONDS[key])
    if key in _COUNTS:
        return count(key, value, *_COUNTS[key])
    if key == "prometheus_port":
        return 0 if value == 0 and value is not False else count(key, value, 1024, 65_535)  # those below are root's
    if key == "labels":
        return labels(key, value, LABELS)
    if key == "thresholds":
        return _thresholds(value)
    if key == "own_checks":
        return _own_checks(value)
    if key == "checks":
        return words(key, value)
    if key == "mounts":
        return tuple(path(key, mount) for mount in words(key, value))
    return _text(key, value)


def _metrics_level(value: object) -> str:
    levels = (METRICS_OFF, *METRICS_LEVELS)
    checked("cloudwatch_metrics", value, value in levels, f"one of {', '.join(levels)}")
    return "" if value == METRICS_OFF else str(value)


def _text(key: str, value: object) -> str:
    if key in _PATHS:
        return path(key, value)
    content = text(key, value, LONG_CHARACTERS if key == "endpoint_url" else WORD_CHARACTERS)
    if key == "node_id":
        checked(key, value, _NODE_ID.fullmatch(content) is not None, "an instance id such as mi-0a1b2c3d4e5f67890")
    if key in _WORDS:
        checked(key, value, re.fullmatch(_WORDS[key], content) is not None, f"of the form {_WORDS[key].strip('^$')}")
    if key == "bus":
        checked(key, value, _BUS.fullmatch(content) is not None, "the name of an event bus, or its ARN")
    if key == "endpoint_url":
        checked(key, value, is_address(content), "an http or https address")
    if key == "dcgm_host":
        expected = "unix:///run/nvidia-dcgm/nv-hostengine, or a host's name with or without a port"
        checked(key, value, _DCGM_HOST.fullmatch(content) is not None, expected)
    if key == "region":
        checked(key, value, _REGION.fullmatch(content) is not None, "a Region such as eu-central-1")
    return content


def _one_of(words: type[Word], key: str, value: object) -> Word:
    known = [word.value for word in words]
    checked(key, value, value in known, f"one of {', '.join(known)}")
    return words(str(value))


def _thresholds(value: object) -> dict[str, float]:
    """Parse the thresholds. Raises ConfigError, which names the threshold and its allowed values."""
    expected = "a table of numbers, such as { disk_full_percent = 95 }"
    checked("thresholds", value, isinstance(value, dict), expected)
    table = value if isinstance(value, dict) else {}
    known = {threshold.name: threshold for threshold in THRESHOLDS}
    for name in table:
        _known(name, known, "thresholds.")
    return {
        name: number(f"thresholds.{name}", limit, known[name].unit, known[name].least, known[name].most)
        for name, limit in table.items()
    }


def _own_checks(value: object) -> dict[str, OwnCheck]:
    """Parse `own_checks`, by name. Raises ConfigError, which names the check and its allowed values."""
    expected = "a table of tables, such as [own_checks.inodes] with interval_seconds = 300"
    checked("own_checks", value, isinstance(value, dict), expected)
    checks = {}
    for name, terms in value.items() if isinstance(value, dict) else ():
        key = f"own_checks.{name}"
        is_name = re.fullmatch(patterns.OWN_NAME, name) is not None
        checked("own_checks", name, is_name, f"names of the form {patterns.OWN_NAME.strip('^$')}")
        checked(key, terms, isinstance(terms, dict), expected)
        for word in terms:
            _known(word, _OWN_SECONDS, f"{key}.")
        checks[name] = OwnCheck(
            **{word: number(f"{key}.{word}", amount, "seconds", *_OWN_SECONDS[word]) for word, amount in terms.items()}
        )
    return checks


def _kernel_logs(value: object) -> tuple[KernelLog, ...]:
    expected = 'a list of tables such as { kind = "kmsg" or "file", path = "…" } or { kind = "journald" }, at least one'
    checked("kernel_log", value, isinstance(value, list) and bool(value), expected)
    logs = []
    for entry in value if isinstance(value, list) else []:
        for key in entry if isinstance(entry, dict) else ():
            _known(key, ("kind", "path"), "kernel_log.")
        kind = str(entry.get("kind")) if isinstance(entry, dict) else ""
        is_log = kind in _LOG_KINDS and ("path" in entry or kind == "journald")
        checked("kernel_log", entry, is_log, expected)
        logs.append(KernelLog(kind, path("kernel_log.path", entry["path"]) if "path" in entry else ""))
    return tuple(logs)

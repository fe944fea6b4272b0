"""The agent's configuration: one TOML file, read once. A wrong key is refused by name."""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from nodeheal.agent.identity import Identity
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider

if TYPE_CHECKING:
    import argparse

DEFAULT_PATH = Path("/etc/nodeheal/agent.toml")
ENV_CONFIG = "NODEHEAL_AGENT_CONFIG"

_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{1,127}")  # health_event.NODE_ID_PATTERN; a test compares them
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_WORD_CHARACTERS = 128
LABELS = 16  # health_event.LABELS
_LOG_KINDS = ("kmsg", "file", "journald")
_LONG_KEYS = (
    *("endpoint_url", "boot_id_file", "state_dir", "orders_dir", "checkpoint_dir", "progress_dir"),
    "kernel_log.path",
)


class ConfigError(Exception):
    """The configuration cannot be used; the message names the file and the key."""


@dataclass(frozen=True)
class KernelLog:
    """Where the kernel's words are read: `kmsg` (the device), `file` (what a syslog daemon writes) or `journald`."""

    kind: str
    path: str = ""  # journald: the folder of the journal's files; empty: this machine's own


@dataclass(frozen=True)
class AgentConfig:
    """Everything that an operator can set about one agent."""

    node_id: str
    cluster: str
    pool: str
    provider: Provider
    region: str
    instance_id: str = ""  # the node id, unless the scheduler's id is another than the cloud's
    bus: str = names.BUS
    endpoint_url: str | None = None
    kernel_log: tuple[KernelLog, ...] = (KernelLog("kmsg", "/dev/kmsg"),)
    boot_id_file: str = "/proc/sys/kernel/random/boot_id"
    state_dir: str = "/var/lib/nodeheal"
    orders_dir: str = "/var/lib/nodeheal-orders"  # root's alone: the agent's user could lead root astray in its own
    checkpoint_dir: str = "/run/nodeheal/checkpoint"  # tasks that take part see it too; gone with the boot
    heartbeat_seconds: float = 60.0
    fallback_seconds: float = 120.0  # the bus has taken nothing for so long: what is grave goes by way of SNS as well
    address: str | None = None
    accelerators: int | None = None
    drills: bool = False  # take injected faults, which carry names.DRILL_MARK, for real ones
    spool_mib: int = 64
    product: str | None = None  # the accelerator, e.g. H100: some faults mean another thing on another product
    checks: tuple[str, ...] | None = None  # by name; None: every one that this node supports
    mounts: tuple[str, ...] = ()  # shared file systems that jobs need here
    progress_dir: str = "/run/nodeheal/progress"  # where jobs show their steps
    cloudwatch_metrics: bool = False  # it costs money: docs/metrics.md
    prometheus_port: int = 0  # on loopback; 0: none
    labels: Mapping[str, str] = field(default_factory=dict)  # what it shares with others: rack, switch, fabric

    @property
    def identity(self) -> Identity:
        """Who this node says it is."""
        instance_id = self.instance_id or self.node_id
        return Identity(
            self.node_id, self.cluster, self.pool, self.provider, instance_id, self.product, dict(self.labels)
        )

    def boot_id(self) -> str:
        """The id of the running boot. Raises OSError, or ConfigError where there is none."""
        boot_id = Path(self.boot_id_file).read_text(encoding="ascii", errors="replace").strip()
        if not boot_id:
            raise ConfigError(f"{self.boot_id_file}: holds no boot id")
        return boot_id


def option() -> "argparse.ArgumentParser":
    """`--config`, for every command to have as a parent: it may stand before or behind the command's name."""
    import argparse  # the agent that watches is told nothing, and has no room for it

    parent = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    parent.add_argument("--config", metavar="FILE", help=f"default: ${ENV_CONFIG}, else {DEFAULT_PATH}")
    return parent


def config_path(argument: str | None) -> Path:
    """The file to read: the command line's, else the environment's, else the default."""
    return Path(argument or os.environ.get(ENV_CONFIG) or DEFAULT_PATH)


def given(arguments: "argparse.Namespace") -> AgentConfig:
    """The configuration that the command line asks for. Raises ConfigError."""
    return load(config_path(getattr(arguments, "config", None)))


def load(path: Path) -> AgentConfig:
    """Read and check the file. Raises ConfigError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: is not UTF-8: byte {error.start + 1} is {error.object[error.start]:#04x}"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    try:
        return _parse(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _parse(document: dict[str, object]) -> AgentConfig:
    known = {known.name: known for known in fields(AgentConfig)}
    for key in document:
        _known(key, known)
    for key, one in known.items():
        if one.default is MISSING and one.default_factory is MISSING and key not in document:
            raise ConfigError(f"key {key!r} is missing")
    values = {key: _value(key, value) for key, value in document.items()}
    config = AgentConfig(**values)  # type: ignore[arg-type]  # every value has been checked under its key
    if config.checks == () and (config.cloudwatch_metrics or config.prometheus_port):
        key = "cloudwatch_metrics" if config.cloudwatch_metrics else "prometheus_port"
        raise ConfigError(f"key {key!r} asks for what checks measure, and key 'checks' says that there are none")
    return config


def _known(key: str, known: Collection[str], table: str = "") -> None:
    if key in known:
        return
    from difflib import get_close_matches  # only where something is wrong: it would stay in memory

    nearest = get_close_matches(key, known, n=1)
    hint = f"did you mean {table + nearest[0]!r}?" if nearest else f"known are {', '.join(sorted(known))}"
    raise ConfigError(f"unknown key {table + key!r}; {hint}")


def _value(key: str, value: object) -> object:
    if key == "kernel_log":
        return _kernel_logs(value)
    if key == "provider":
        return _provider(value)
    if key in ("drills", "cloudwatch_metrics"):
        return _checked(key, value, isinstance(value, bool), "true or false")
    if key == "heartbeat_seconds":
        return _checked(key, value, _is_number(value) and 0 < float(value) <= 3600, "seconds, over 0, at most 3600")  # type: ignore[arg-type]
    if key == "fallback_seconds":
        return _checked(key, value, _is_number(value) and 0 < float(value) <= 86_400, "seconds, over 0, at most 86400")  # type: ignore[arg-type]
    if key == "accelerators":
        return _checked(key, value, _is_count(value, 0), "a whole number, 0 or more")
    if key == "spool_mib":
        return _checked(key, value, _is_count(value, 1), "a whole number of MiB, 1 or more")
    if key == "prometheus_port":
        is_port = _is_count(value, 1024) and int(str(value)) <= 65_535  # those below are root's
        return _checked(key, value, value is not False and (value == 0 or is_port), "0 or a port of 1024 to 65535")
    if key == "labels":
        return _labels(value)
    if key in ("checks", "mounts"):
        return _names(key, value)
    return _text(key, value)


def _text(key: str, value: object) -> str:
    limit = 4096 if key in _LONG_KEYS else _WORD_CHARACTERS
    is_text = isinstance(value, str) and 0 < len(value) <= limit and value.isprintable()
    _checked(key, value, is_text, f"text of 1 to {limit} printable characters")
    if key == "node_id":
        _checked(key, value, _NODE_ID.fullmatch(str(value)) is not None, "an instance id such as mi-0a1b2c3d4e5f67890")
    if key == "endpoint_url":
        _checked(key, value, _is_address(str(value)), "an http or https address")
    if key == "region":
        _checked(key, value, _REGION.fullmatch(str(value)) is not None, "a Region such as eu-central-1")
    return str(value)


def _is_address(text: str) -> bool:
    from urllib.parse import urlsplit  # an endpoint of one's own is rare

    try:
        address = urlsplit(text)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # a port that is none, a bracket that is not closed
        return False


def _provider(value: object) -> Provider:
    known = [provider.value for provider in Provider]
    _checked("provider", value, value in known, f"one of {', '.join(known)}")
    return Provider(str(value))


def _kernel_logs(value: object) -> tuple[KernelLog, ...]:
    expected = 'a list of tables such as { kind = "kmsg" or "file", path = "…" } or { kind = "journald" }, at least one'
    _checked("kernel_log", value, isinstance(value, list) and bool(value), expected)
    logs = []
    for entry in value if isinstance(value, list) else []:
        for key in entry if isinstance(entry, dict) else ():
            _known(key, ("kind", "path"), "kernel_log.")
        kind = str(entry.get("kind")) if isinstance(entry, dict) else ""
        is_log = kind in _LOG_KINDS and ("path" in entry or kind == "journald")
        _checked("kernel_log", entry, is_log, expected)
        logs.append(KernelLog(kind, _text("kernel_log.path", entry["path"]) if "path" in entry else ""))
    return tuple(logs)


def _labels(value: object) -> dict[str, str]:
    expected = f'a table of at most {LABELS} texts, such as {{ rack = "r7", switch = "leaf-3" }}'
    labels = value if isinstance(value, dict) else {}
    words = [word for pair in labels.items() for word in pair]
    is_good = isinstance(value, dict) and len(labels) <= LABELS
    is_good = is_good and all(isinstance(word, str) and 0 < len(word) <= _WORD_CHARACTERS for word in words)
    _checked("labels", value, is_good, expected)
    return labels


def _names(key: str, value: object) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(name, str) and name for name in value)
    _checked(key, value, is_list, "a list of names")
    return tuple(value) if isinstance(value, list) else ()


def _checked(key: str, value: object, is_good: bool, expected: str) -> object:
    if not is_good:
        raise ConfigError(f"key {key!r} must be {expected}, not {value!r}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least

"""The configuration says what is wrong with it."""

import errno
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.commands.command_line import EXIT_CANNOT_START, EXIT_CONFIG
from nodeheal.agent.main import main
from nodeheal.agent.runtime import config as configuration
from nodeheal.agent.runtime.config import ConfigError, KernelLog, config_path, load
from nodeheal.contract.health_event import LABELS, NODE_ID_PATTERN
from sandbox.toml import toml
from tests.support.agent_config import LEAST, written

REPOSITORY = Path(__file__).parents[3]


def test_five_keys_are_enough(tmp_path: Path) -> None:
    config = load(written(tmp_path))

    assert config.identity.node_id == "mi-0a1b"
    assert config.kernel_log == (KernelLog("kmsg", "/dev/kmsg"),)
    assert (config.bus, config.heartbeat_seconds, config.state_dir) == ("nodeheal", 60.0, "/var/lib/nodeheal")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert load(path) == load(written(tmp_path))


def test_the_example_that_is_shipped_is_valid() -> None:
    assert load(REPOSITORY / "packaging" / "agent.toml.example").accelerators == 8


@pytest.mark.parametrize(
    ("key", "nearest"), [("heartbeat", "heartbeat_seconds"), ("node-id", "node_id"), ("acelerators", "accelerators")]
)
def test_an_unknown_key_is_refused_by_name_with_the_nearest_one(tmp_path: Path, key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"agent\.toml: unknown key '{key}'; did you mean '{nearest}'\?"):
        load(written(tmp_path, **{key: 60}))


def test_an_unknown_key_that_is_like_no_other_is_told_them_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'zzz'; known are accelerators, .*spool_mib"):
        load(written(tmp_path, zzz=1))


def test_an_unknown_key_of_a_log_is_refused_by_its_whole_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'kernel_log\.paths'; did you mean 'kernel_log\.path'"):
        load(written(tmp_path, kernel_log=[{"kind": "file", "paths": "/var/log/messages"}]))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(toml({key: value for key, value in LEAST.items() if key != "pool"}))

    with pytest.raises(ConfigError, match=r"agent\.toml: key 'pool' is missing"):
        load(path)


def test_the_journal_is_this_machines_unless_a_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(toml(LEAST | {"kernel_log": [{"kind": "journald"}, {"kind": "journald", "path": "/host/journal"}]}))

    config = load(path)

    assert config.kernel_log == (KernelLog("journald"), KernelLog("journald", "/host/journal"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node_id", "-x"),
        ("node_id", 7),
        ("pool", ""),
        ("pool", "p" * 129),
        ("provider", "gcp"),
        ("scheduler", "NOMAD"),
        ("endpoint_url", "events.example.org"),
        ("kernel_log", []),
        ("kernel_log", [{"kind": "journal", "path": "/x"}]),
        ("kernel_log", [{"kind": "file"}]),
        ("kernel_log.path", [{"kind": "journald", "path": ""}]),
        ("kernel_log", ["/dev/kmsg"]),
        ("kernel_log.path", [{"kind": "file", "path": 7}]),
        ("state_dir", "/var/lib\0"),
        ("state_dir", "var/lib/nodeheal"),
        ("orders_dir", "./orders"),
        ("checkpoint_dir", "~/checkpoint"),
        ("progress_dir", "progress"),
        ("boot_id_file", "boot_id"),
        ("kernel_log.path", [{"kind": "file", "path": "messages"}]),
        ("kernel_log.path", [{"kind": "journald", "path": "journal"}]),
        ("mounts", ["/fsx", "scratch"]),
        ("mounts", "/fsx"),
        ("accelerators", 1025),
        ("spool_mib", 16_385),
        ("heartbeat_seconds", 3601),
        ("heartbeat_seconds", 0.09),
        ("fallback_seconds", 86_401),
        ("fallback_seconds", 0.09),
        ("heartbeat_seconds", 0),
        ("heartbeat_seconds", True),
        ("heartbeat_seconds", "60"),
        ("accelerators", -1),
        ("accelerators", 1.5),
        ("drills", "yes"),
        ("spool_mib", 0),
        ("cloudwatch_metrics", 1),
        ("cloudwatch_metrics", "each"),
        ("nvidia_smi_beside_nvml", "yes"),
        ("prometheus_port", 1023),
        ("prometheus_port", 65_536),
        ("prometheus_port", -1),
        ("prometheus_port", "9100"),
        ("prometheus_port", False),
        ("bus", "node heal"),
        ("bus", "arn:aws:events:eu-central-1:1:event-bus/nodeheal"),
        ("region", 5),
        ("region", "eu-central-1."),
        ("region", "eu central"),
        ("endpoint_url", "http://[::1"),
        ("endpoint_url", "https://bus:70000"),
        ("endpoint_url", "https://bus:https"),
        ("endpoint_url", "https://:443"),
        ("product", ""),
        ("labels", ["rack"]),
        ("labels", {"rack": 7}),
        ("labels", {"": "r7"}),
        ("labels", {f"label-{n}": "x" for n in range(17)}),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"key '{key}' must be"):
        load(written(tmp_path, **{key.partition(".")[0]: value}))


def test_what_is_just_not_absurd_is_taken(tmp_path: Path) -> None:
    config = load(written(tmp_path, accelerators=1024, spool_mib=16_384, heartbeat_seconds=3600, mounts=["/fsx"]))

    assert (config.accelerators, config.spool_mib, config.heartbeat_seconds) == (1024, 16_384, 3600.0)
    assert config.mounts == ("/fsx",)


@pytest.mark.parametrize("bus", ["nodeheal", "arn:aws-cn:events:cn-north-1:111122223333:event-bus/team/nodeheal_2.x"])
def test_a_bus_is_named_by_its_name_or_its_arn(tmp_path: Path, bus: str) -> None:
    assert load(written(tmp_path, bus=bus)).bus == bus


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400"])
def test_what_is_no_number_of_seconds_is_refused_with_its_key(tmp_path: Path, number: str) -> None:
    path = written(tmp_path)
    path.write_text(f"heartbeat_seconds = {number}\n{path.read_text()}")

    with pytest.raises(ConfigError, match="key 'heartbeat_seconds' must be seconds, "):
        load(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "key 'node_id' is missing"),
        (b'{"node_id": "mi-0a1b"}', "is not TOML: .*line 1"),
        (b"node_id = ", "is not TOML"),
        (b"a = 1\na = 2", "is not TOML"),
        (b"a = " + b"[" * 20_000, "is not TOML"),
        (b'node_id = "\xff"', "is not UTF-8: byte 12 is 0xff"),
        (b"\0", "is not TOML"),
        (b"spool_mib = " + b"9" * 5000, "is not TOML"),
    ],
    ids=["empty", "JSON", "cut off", "twice", "deep", "bytes", "nothing", "digits"],
)
def test_a_file_that_is_no_toml_is_refused_by_name(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=rf"agent\.toml: {why}"):
        load(path)


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        load(tmp_path / "nowhere.toml")


def test_the_command_line_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEHEAL_AGENT_CONFIG", "/from/environment")

    assert config_path("/from/command") == Path("/from/command")
    assert config_path(None) == Path("/from/environment")


def test_cloudwatch_wants_checks_that_measure_and_prometheus_has_faults_without_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="key 'cloudwatch_metrics' sends the results of checks"):
        load(written(tmp_path, checks=[], cloudwatch_metrics="nodes"))

    assert load(written(tmp_path, checks=["disk"], cloudwatch_metrics="nodes")).checks == ("disk",)
    assert load(written(tmp_path, checks=[], prometheus_port=9100)).prometheus_port == 9100


@pytest.mark.parametrize(("value", "level"), [("off", ""), ("nodes", "nodes"), ("gpus", "gpus")])
def test_what_cloudwatch_is_told_is_a_level(tmp_path: Path, value: str, level: str) -> None:
    assert load(written(tmp_path, cloudwatch_metrics=value)).cloudwatch_metrics == level


def test_metrics_are_off_unless_they_are_asked_for(tmp_path: Path) -> None:
    config = load(written(tmp_path))

    assert (config.cloudwatch_metrics, config.prometheus_port) == ("", 0)
    assert load(written(tmp_path, checks=[], prometheus_port=0)).prometheus_port == 0


def test_what_a_node_shares_with_others_goes_into_its_identity(tmp_path: Path) -> None:
    config = load(written(tmp_path, product="H100", labels={"rack": "r7"}))

    assert (config.identity.product, config.identity.labels) == ("H100", {"rack": "r7"})


def test_as_many_labels_as_the_contract_takes() -> None:
    assert configuration.LABELS == LABELS


def test_node_ids_are_held_to_the_contracts_pattern() -> None:
    assert f"^{configuration._NODE_ID.pattern}$" == NODE_ID_PATTERN


def test_a_configuration_that_names_a_check_that_is_none_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = main(["config", "--config", str(written(tmp_path, checks=["dsk"]))])

    assert code == EXIT_CONFIG
    assert "key 'checks': there is no check 'dsk'" in str(caplog.records[-1].__dict__["why"])


@pytest.mark.parametrize(
    ("error", "code"), [(OSError(errno.EIO, "Input/output error"), EXIT_CANNOT_START), (PermissionError(), EXIT_CONFIG)]
)
def test_a_disk_that_does_not_answer_is_tried_again_and_not_taken_for_a_wrong_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: OSError, code: int
) -> None:
    file = written(tmp_path)

    def fails(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(Path, "read_text", fails)

    assert main(["config", "--config", str(file)]) == code
    assert str(file) in str(vars(caplog.records[-1])["why"])

"""The wheelhouse, who may read it, and the install document run from it with this machine's Python and pip.

No index can be reached: the address that pip would ask leads nowhere.
"""

import base64
import hashlib
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import botocore.session
import pytest
from botocore.validate import ParamValidator

from nodeheal import __version__
from nodeheal.contract import names
from stacks import wheelhouse
from stacks.agent_release import document, fetcher
from stacks.settings import REPOSITORY, Settings, SettingsError, load_settings
from stacks.wheelhouse import Wheelhouse, build, download_commands
from tests.infrastructure.synthesis import NO_BUNDLING, Template, synthesize
from tests.support.node_root import NodeRoot, executable

OLDER = "0.0.9"
KEY = "wheels.zip"
# TEST-NET-1: nothing answers there.
NOWHERE = {"PIP_INDEX_URL": "http://192.0.2.1/simple", "PIP_RETRIES": "0", "PIP_TIMEOUT": "1"}
# SSM's own limit for a document, in bytes.
DOCUMENT_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def built() -> Wheelhouse:
    """What a user's stack carries."""
    return build(Settings())


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of an earlier version."""
    source = tmp_path_factory.mktemp("older")
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(REPOSITORY / "nodeheal", source / "nodeheal", ignore=shutil.ignore_patterns("__pycache__"))
    module = source / "nodeheal" / "__init__.py"
    module.write_text(module.read_text().replace(__version__, OLDER))
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    return source / "dist" / f"nodeheal-{OLDER}-py3-none-any.whl"


@pytest.fixture(scope="module")
def both(older: Path) -> Wheelhouse:
    """A wheelhouse with two versions of the agent."""
    return build(Settings(agent_wheels=(str(older),)))


class Bucket(http.server.ThreadingHTTPServer):
    """One object, for those who sign."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = b""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Bucket

    def do_GET(self) -> None:
        is_signed = "Credential=AKIDEXAMPLE/" in self.headers.get("Authorization", "")
        is_found = self.path == f"/assets/{KEY}"
        self.send_response(200 if is_signed and is_found else 403)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        """Not in the output of tests."""


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    running = Bucket()
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


class Node(NodeRoot):
    """A node with this machine's Python, without pip and without a way to any index."""

    bucket: Bucket
    wheels: Wheelhouse

    def install(
        self, version: str = __version__, config: str | None = None, action: str = "install"
    ) -> "subprocess.CompletedProcess[str]":
        places = {"BUCKET": "assets", "KEY": KEY, "REGION": "eu-central-1", "DOMAIN": "example.com"}
        content = document({**places, "SHA256": self.wheels.sha256, "FETCHER": fetcher()})
        environment = {
            "AWS_SHARED_CREDENTIALS_FILE": str(self.root / "credentials"),
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.bucket.server_port}",
            **NOWHERE,
        }
        return self.send(content, action, version, config, **environment)

    @property
    def version(self) -> str:
        agent = self.base / "bin" / "nodeheal-agent"
        said = subprocess.run([str(agent), "--version"], env={}, capture_output=True, text=True, timeout=60, check=True)
        return said.stdout.strip()


@pytest.fixture
def node(tmp_path: Path, bucket: Bucket, both: Wheelhouse) -> Node:
    config = {"node_id": "mi-0a1b2c3d4e5f67890", "cluster": "training", "pool": "h100", "provider": "hybrid"}
    config["scheduler"] = "ECS"
    made = Node(tmp_path / "root", {**config, "region": "eu-central-1"})
    executable(made.tools / "python3", f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 "$@"\n')
    keys = "aws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = secret\n"
    (made.root / "credentials").write_text(f"[default]\n{keys}")
    made.bucket, made.wheels = bucket, both
    bucket.content = both.archive.read_bytes()
    return made


def rebuilt(wheels: Wheelhouse, folder: Path, wheel: str, content: bytes) -> Wheelhouse:
    """The same wheelhouse, with another content of one wheel."""
    archive = folder / "rebuilt.zip"
    with zipfile.ZipFile(wheels.archive) as old, zipfile.ZipFile(archive, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name == wheel else old.read(name))
    return Wheelhouse(archive, hashlib.sha256(archive.read_bytes()).hexdigest())


def test_a_node_installs_upgrades_goes_back_and_removes_the_agent_without_any_index(node: Node) -> None:
    first = node.install(OLDER)
    assert first.returncode == 0, first.stderr
    assert node.version == f"nodeheal-agent {OLDER}"

    second = node.install(config="")
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[-1] == f"nodeheal-agent {__version__}: active"
    assert len(node.left_versions) == 1
    assert not list(node.base.rglob("*.whl"))

    back = node.install(OLDER, config="")
    assert back.returncode == 0, back.stderr
    assert node.version == f"nodeheal-agent {OLDER}"

    gone = node.install(action="remove")
    assert gone.returncode == 0, gone.stderr
    assert node.left == []


def test_a_wheel_that_is_not_the_pinned_one_is_not_installed(node: Node, older: Path, tmp_path: Path) -> None:
    node.install(OLDER)
    wheel = f"nodeheal-{__version__}-py3-none-any.whl"
    node.wheels = rebuilt(node.wheels, tmp_path, wheel, older.read_bytes())
    node.bucket.content = node.wheels.archive.read_bytes()

    ended = node.install(config="")

    assert ended.returncode == 1
    assert "DO NOT MATCH THE HASHES" in ended.stderr
    assert hashlib.sha256(older.read_bytes()).hexdigest() in ended.stderr
    assert node.version == f"nodeheal-agent {OLDER}"
    assert len(node.left_versions) == 1


def test_an_archive_that_is_not_the_one_of_the_document_is_not_unpacked(node: Node) -> None:
    node.bucket.content = node.bucket.content[:-1] + b"?"

    ended = node.install()

    assert ended.returncode == 1
    assert f"its SHA-256 is {hashlib.sha256(node.bucket.content).hexdigest()}" in ended.stderr
    assert node.left_versions == []


def test_a_node_whose_role_may_not_read_the_wheelhouse_is_told_so(node: Node) -> None:
    (node.root / "credentials").write_text("[default]\naws_access_key_id = B\naws_secret_access_key = s\n")

    ended = node.install()

    assert ended.returncode == 1
    assert "403 Forbidden; does the role of this node have the policy AgentDownloadPolicyArn" in ended.stderr


def test_the_wheelhouse_holds_the_agent_pip_and_what_to_install(built: Wheelhouse) -> None:
    with zipfile.ZipFile(built.archive) as archive:
        held = archive.namelist()
        requirements = archive.read(f"requirements-{__version__}.txt").decode()
        own = hashlib.sha256(archive.read(f"nodeheal-{__version__}-py3-none-any.whl")).hexdigest()

    others = [
        name
        for name in held
        if not name.startswith(("cffi-", "cryptography-", "pycparser-", "nvidia_ml_py-", "prometheus_client-"))
    ]
    for machine in ("x86_64", "aarch64"):
        assert sum(name.startswith("cryptography-") and machine in name for name in held) == 1
        for python in ("cp311", "cp312", "cp313", "cp314"):
            assert sum(name.startswith("cffi-") and machine in name and f"-{python}-" in name for name in held) == 1
    assert sorted(re.sub(r"^pip-[0-9.]+-", "pip-", name) for name in others) == [
        f"nodeheal-{__version__}-py3-none-any.whl",
        "pip-py3-none-any.whl",
        f"requirements-{__version__}.txt",
    ]
    assert requirements.splitlines()[0] == f"nodeheal=={__version__} --hash=sha256:{own}"
    assert hashlib.sha256(built.archive.read_bytes()).hexdigest() == built.sha256


def test_building_again_gives_the_same_bytes(built: Wheelhouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")  # some build services set the day

    assert build(Settings()).sha256 == built.sha256


def test_the_bytes_do_not_depend_on_the_machines_zlib(built: Wheelhouse, tmp_path: Path) -> None:
    with zipfile.ZipFile(built.archive) as archive:
        members = archive.infolist()
        own = archive.extract(f"nodeheal-{__version__}-py3-none-any.whl", tmp_path)
    with zipfile.ZipFile(own) as wheel:
        members += wheel.infolist()

    assert {member.compress_type for member in members} == {zipfile.ZIP_STORED}
    assert {member.date_time for member in members} == {wheelhouse.ZIP_EPOCH}


def test_packages_of_the_agent_come_pinned_for_every_processor_and_python() -> None:
    commands = [" ".join(command) for command in download_commands(Path("to"), "orjson==3.11.0 --hash=sha256:00\n")]

    assert all("--require-hashes --only-binary=:all:" in command for command in commands)
    targets = {tuple(re.findall(r"2014_(\w+)|--python-version (\S+)", command)) for command in commands[1:]}
    assert len(targets) == len(wheelhouse.MACHINES) * len(wheelhouse.PYTHONS)
    assert len(list(download_commands(Path("to"), "# nothing\n"))) == 1


def test_the_program_that_downloads_needs_nothing_of_ours() -> None:
    program = fetcher()

    assert "from nodeheal" not in program
    assert "import nodeheal" not in program
    compile(program, "fetcher", "exec")
    # SSM would take these for a parameter.
    assert "{{" not in program


def test_a_role_of_nodes_may_read_one_object_and_nothing_else(real: Template) -> None:
    [(name, policy)] = [p for p in real.of_type("AWS::IAM::ManagedPolicy") if p[0].startswith("AgentRelease")]
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]

    assert (statement["Effect"], statement["Action"]) == ("Allow", "s3:GetObject")
    assert re.fullmatch(r"/[0-9a-f]{64}\.zip", statement["Resource"]["Fn::Join"][1][-1])
    holders = [who for who, role in real.of_type("AWS::IAM::Role") if {"Ref": name} in managed_policies(role)]
    assert [re.sub(r"[0-9A-F]{8}$", "", who) for who in holders] == ["NodeRole"]


def managed_policies(role: dict[str, Any]) -> list[Any]:
    return list(role["Properties"].get("ManagedPolicyArns", ()))


def install_document(template: Template) -> dict[str, Any]:
    [found] = [
        resource["Properties"]
        for _, resource in template.of_type("AWS::SSM::Document")
        if resource["Properties"]["Name"] == names.INSTALL_DOCUMENT
    ]
    return dict(found)


def test_the_deployed_document_names_the_object_and_its_hash(real: Template, built: Wheelhouse) -> None:
    text = json.dumps(install_document(real)["Content"])

    assert f"checksum='{built.sha256}'" in text
    assert re.search(r"key='[0-9a-f]{64}\.zip'", text)
    assert re.findall(r"@[A-Z0-9]+@", text) == []
    assert len(text.encode()) < DOCUMENT_BYTES


WHOLE = 'cluster = "training"\nscheduler = "ECS"\npool = "h100"\n'


@pytest.fixture
def pool_config(tmp_path: Path) -> Path:
    path = tmp_path / "h100.toml"
    path.write_text(WHOLE)
    return path


def test_a_pool_gets_the_agent_by_one_association(pool_config: Path) -> None:
    template = synthesize({"nodeheal": {"agent_pools": {"h100": str(pool_config)}}})

    [(_, association)] = template.of_type("AWS::SSM::Association")
    given = association["Properties"]
    assert given["Targets"] == [{"Key": "tag:nodeheal:agent-pool", "Values": ["h100"]}]
    assert (
        given["ScheduleExpression"] == "rate(1 day)"
    )  # or a node that failed, or came meanwhile, is never tried again
    assert (given["MaxConcurrency"], given["MaxErrors"]) == ("10%", "10%")
    # A new version changes the association, and State Manager runs an association that was changed.
    assert given["Parameters"]["Version"] == [__version__]
    assert base64.b64decode(given["Parameters"]["Config"][0]) == pool_config.read_bytes()
    assert {re.sub(r"[0-9A-F]{8}$", "", name) for name in association["DependsOn"]} >= {
        "AgentReleaseInstallAgentDocument",
        "AgentReleaseDownload",
        "IngestFunction",
    }
    refused = refusals("CreateAssociation", given)
    assert refused == ""


def test_canaries_of_a_pool_get_a_version_first_and_the_pool_only_where_it_has_succeeded(pool_config: Path) -> None:
    given = {"agent_pools": {"h100": str(pool_config)}, "agent_canaries": ["h100"]}

    found = {
        each["Properties"]["AssociationName"]: (name, each)
        for name, each in synthesize({"nodeheal": given}).of_type("AWS::SSM::Association")
    }

    (name, canaries), (_, pool) = found["nodeheal-install-agent-canary-h100"], found["nodeheal-install-agent-h100"]
    assert canaries["Properties"]["Targets"] == [{"Key": "tag:nodeheal:agent-canary", "Values": ["h100"]}]
    assert canaries["Properties"]["WaitForSuccessTimeoutSeconds"] == 1_800
    assert name in pool["DependsOn"]
    for _, each in found.values():  # whatever is added later
        assert each["Properties"]["ScheduleExpression"]
        assert not str(each["Properties"]["MaxErrors"]).isdecimal()
    assert canaries["Properties"]["Parameters"] == pool["Properties"]["Parameters"]


def test_a_canary_without_its_pool_is_refused() -> None:
    with pytest.raises(SettingsError, match="agent_canaries names 'h200', which is not in agent_pools"):
        load_settings(cdk.App(context={"nodeheal": {"agent_canaries": ["h200"]}}).node)


def test_nodes_may_decrypt_by_the_staging_buckets_own_key_and_only_through_s3() -> None:
    key = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d"

    [policy] = [
        each
        for name, each in synthesize({"nodeheal": {"staging_key": key}}).of_type("AWS::IAM::ManagedPolicy")
        if name.startswith("AgentReleaseDownload")
    ]

    [decrypt] = [one for one in policy["Properties"]["PolicyDocument"]["Statement"] if one["Action"] == "kms:Decrypt"]
    assert decrypt["Resource"] == key
    assert list(decrypt["Condition"]["StringEquals"]) == ["kms:ViaService"]


def refusals(operation: str, given: dict[str, Any]) -> str:
    """What botocore's model of SSM says against a request."""
    model = botocore.session.get_session().get_service_model("ssm").operation_model(operation)
    assert model.input_shape is not None
    return str(ParamValidator().validate(given, model.input_shape).generate_report())


def test_no_pool_gets_an_association_that_was_not_asked_for(real: Template) -> None:
    assert list(real.of_type("AWS::SSM::Association")) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('node_id = "mi-1"\n', r"h100\.toml must not contain node_id"),
        ("cluster =", r"h100\.toml must be a TOML file"),
        (f"{WHOLE}hartbeat_seconds = 30\n", r"h100\.toml: unknown key 'hartbeat_seconds'; did you mean 'heartbeat_sec"),
        (f'{WHOLE}heartbeat_seconds = "30"\n', r"h100\.toml: key 'heartbeat_seconds' must be seconds"),
        ('pool = "h100"\n', r"h100\.toml: key 'cluster' is missing"),
    ],
)
def test_a_configuration_that_cannot_serve_a_pool_is_refused(pool_config: Path, text: str, why: str) -> None:
    pool_config.write_text(text)
    app = cdk.App(context={**NO_BUNDLING, "nodeheal": {"agent_pools": {"h100": str(pool_config)}}})

    with pytest.raises(SettingsError, match=why):
        load_settings(app.node)


def test_a_wheel_of_another_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other-1.0-py3-none-any.whl").touch()
    app = cdk.App(context={"nodeheal": {"agent_wheels": [str(tmp_path / "other-1.0-py3-none-any.whl")]}})

    with pytest.raises(SettingsError, match="must be the file of a wheel of nodeheal"):
        load_settings(app.node)

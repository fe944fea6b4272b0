"""Whom the agent believes: never more than the machine does, and AWS without loading everybody else."""

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeheal.agent.ca_bundle import CaBundle
from nodeheal.agent.connection import Connection, Response
from tests.unit.agent.authority import Authority, found_authority
from tests.unit.agent.fakes import FakeEventBridge

AWS, OTHER = "Amazon Root CA 1", "an authority of the operator's"
Serve = Callable[[Authority], FakeEventBridge]


@pytest.fixture
def authority(tmp_path: Path) -> Callable[[str], Authority]:
    def found(name: str) -> Authority:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return found_authority(folder, name)

    return found


@pytest.fixture
def serve() -> Iterator[Serve]:
    begun: list[FakeEventBridge] = []

    def begin(authority: Authority) -> FakeEventBridge:
        begun.append(FakeEventBridge(authority.server()))
        begun[-1].start()
        return begun[-1]

    yield begin
    for bus in begun:
        bus.stop()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A machine that believes these, in one file."""

    def believes(*authorities: Authority) -> Path:
        bundle = tmp_path / "bundle.pem"
        bundle.write_text("# who is believed\n" + "\n".join(one.certificate.read_text() for one in authorities))
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
        return bundle

    return believes


def ask(bus: FakeEventBridge, trust: CaBundle, host: str = "127.0.0.1") -> Response:
    connection = Connection(host, int(bus.url.rpartition(":")[2]), 5.0, trust)
    try:
        return connection.request(
            "POST", "/", {"X-Amz-Target": "AWSEvents.PutEvents"}, json.dumps({"Entries": []}).encode()
        )
    finally:
        connection.close()


def test_for_aws_nobody_elses_authorities_are_loaded(
    authority: Callable[[str], Authority], machine: Callable[..., Path], serve: Serve
) -> None:
    aws, other = authority(AWS), authority(OTHER)
    machine(other, aws)
    trust = CaBundle()

    answer = ask(serve(aws), trust)

    assert answer.status == 200
    assert trust.context().cert_store_stats()["x509_ca"] == 1


def test_whom_the_machine_believes_is_believed_and_from_then_on_at_once(
    authority: Callable[[str], Authority], machine: Callable[..., Path], serve: Serve
) -> None:
    aws, other = authority(AWS), authority(OTHER)
    machine(aws, other)
    bus, trust = serve(other), CaBundle()

    answers = [ask(bus, trust).status for _ in range(3)]

    assert answers == [200, 200, 200]
    assert trust.context().cert_store_stats()["x509_ca"] == 2
    assert bus.connections == 3  # those that were believed


@pytest.mark.parametrize("name", [AWS, OTHER])
def test_whom_the_machine_does_not_believe_is_not_believed_whatever_his_name(
    authority: Callable[[str], Authority], machine: Callable[..., Path], serve: Serve, name: str
) -> None:
    machine(authority(AWS), authority(OTHER))
    bus, trust = serve(authority(name)), CaBundle()

    for _ in range(2):
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(bus, trust)


def test_a_certificate_of_another_host_is_not_believed(
    authority: Callable[[str], Authority], machine: Callable[..., Path], serve: Serve
) -> None:
    aws = authority(AWS)
    machine(aws)

    with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
        ask(serve(aws), CaBundle(), host="localhost")


def test_two_threads_that_met_the_same_stranger_both_try_again(
    authority: Callable[[str], Authority], machine: Callable[..., Path]
) -> None:
    machine(authority(AWS), authority(OTHER))
    trust = CaBundle()
    tried = trust.context()

    first, second = trust.wider(tried), trust.wider(tried)

    assert first is not None
    assert first is second
    assert trust.wider(first) is None


def test_where_none_of_aws_is_in_the_file_the_machines_own_way_is_taken(
    authority: Callable[[str], Authority], machine: Callable[..., Path], serve: Serve
) -> None:
    other = authority(OTHER)
    machine(other)

    answer = ask(serve(other), CaBundle())

    assert answer.status == 200


@pytest.mark.parametrize("block", ["Amazon", "Q" * 64, "QW1hem9uIFJvb3QgQ0EganVuaw=="])
def test_a_file_that_is_spoilt_is_left_to_the_machines_own_way(
    authority: Callable[[str], Authority], machine: Callable[..., Path], block: str
) -> None:
    bundle = machine(authority(AWS))
    bundle.write_text(f"-----BEGIN CERTIFICATE-----\n{block}\n-----END CERTIFICATE-----\n{bundle.read_text()}")

    context = CaBundle().context()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_without_any_authorities_nobody_is_believed(
    authority: Callable[[str], Authority], machine: Callable[..., Path], serve: Serve
) -> None:
    aws = authority(AWS)
    bundle = machine(aws)
    bundle.unlink()

    with pytest.raises(ssl.SSLCertVerificationError, match=f"authorities in {bundle} .cannot be read: No such file"):
        ask(serve(aws), CaBundle())

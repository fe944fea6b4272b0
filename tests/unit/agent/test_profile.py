"""The credentials file is read as the SDKs read it, and no message quotes it."""

import configparser
from pathlib import Path

import pytest

from nodeheal.agent.transport.profile import BadProfile, read_profile
from nodeheal.agent.transport.sigv4 import Credentials

KEYS = "aws_access_key_id = AKID\naws_secret_access_key = s3cret\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "credentials"


@pytest.mark.parametrize(
    "text",
    [
        f"[default]\n{KEYS}",
        f"[default]\r\n{KEYS}aws_session_token=t\r\n",
        f"# of the SSM agent\n\n[default]\n; both\n{KEYS}  # indented\n",
        "[default]\nAWS_Access_Key_Id: AK=ID\naws_secret_access_key  =  a:b=c/+ d \n",
        f"[prod]\naws_access_key_id = ADMIN\n[default]\n{KEYS}[dev]\naws_secret_access_key = x\n",
        "[default]\n  aws_access_key_id = AKID\n  aws_secret_access_key = s3cret\n",
        f"[default]\ns3 =\n  aws_secret_access_key = nested\n{KEYS}region = eu-central-1\n",
        f"  [default]\n{KEYS}",
        "[prod]\nregion = x\n[default]\n  aws_access_key_id = AKID\n  aws_secret_access_key = s3cret\n",
        f"[default]\n{KEYS}aws_session_token =\n",
        f"[default]\n{KEYS}aws_session_token = t # no comment\n",
    ],
)
def test_what_a_file_says_is_what_the_standard_library_reads_there(file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    parser = configparser.RawConfigParser()
    parser.read_string(file.read_text())
    said = parser["default"]

    read = read_profile(file)

    assert read == Credentials(
        said["aws_access_key_id"], said["aws_secret_access_key"], said.get("aws_session_token") or None
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "aws_access_key_id"),
        (b"[prod]\n" + KEYS.encode(), "aws_access_key_id"),
        (b"[default]\naws_access_key_id = AKID\n", "aws_secret_access_key"),
        (b"[default]\naws_access_key_id = AKID\naws_secret_access_key =\n", "aws_secret_access_key"),
        (KEYS.encode(), "line 1"),
        (b"[default]\n= s3cret\n", "line 2"),
        (b"[default]\ns3cret\n", "line 2"),
        (b"[default]\n" + KEYS.encode() + b"aws_secret_access_key = s3cret2\n", "line 4"),
        (b"[default\n" + KEYS.encode(), "line 1"),
        (b"[default]\naws_access_key_id = s3cret\xff\n", "UTF-8"),
    ],
)
def test_a_file_that_holds_no_credentials_is_named_and_not_quoted(file: Path, text: bytes, why: str) -> None:
    file.write_bytes(text)

    with pytest.raises(BadProfile) as refused:
        read_profile(file)

    assert str(file) in str(refused.value)
    assert why in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None

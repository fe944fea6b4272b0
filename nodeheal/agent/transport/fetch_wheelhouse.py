"""Downloads one object from S3 with the node's own credentials, before anything of nodeheal is installed.

The install document carries the text of this module, after those of `sigv4` and `profile`, and runs it with the node's
Python. So it may import the standard library and these two modules, and nothing else.
"""

import hashlib
import http.client
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from nodeheal.agent.transport.profile import BadProfile, read_profile
from nodeheal.agent.transport.sigv4 import Credentials, CredentialScope, signed_headers

METADATA = "http://169.254.169.254"
ROLE_PATH = "/latest/meta-data/iam/security-credentials/"
METADATA_SECONDS = 5.0
S3_SECONDS = 60.0
ATTEMPTS = 3
PAUSE_SECONDS = 2.0
# IAM is eventually consistent: a role that has just got its policy is refused for some seconds.
DENIED_FOR_SECONDS, DENIED_PAUSE_SECONDS = 60.0, 5.0
_CODE = re.compile(r"<Code>(\w+)</Code>")


class NotFetched(Exception):
    """The object was not downloaded. The message says why, and contains no secret."""


@dataclass(frozen=True)
class WheelhouseLocation:
    """The location of the object. `domain` is that of the partition, AWS::URLSuffix."""

    bucket: str
    key: str
    region: str
    domain: str

    def url(self, environment: Mapping[str, str]) -> str:
        """Return the object's URL. AWS_ENDPOINT_URL_S3 replaces the Region's endpoint."""
        endpoint = environment.get("AWS_ENDPOINT_URL_S3")
        if endpoint:
            return f"{endpoint}/{self.bucket}/{self.key}"
        return f"https://{self.bucket}.s3.{self.region}.{self.domain}/{self.key}"


def node_credentials(environment: Mapping[str, str]) -> Credentials:
    """Find credentials in the environment, the SSM agent's file, or the instance's role. Raises NotFetched."""
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        return Credentials(
            environment["AWS_ACCESS_KEY_ID"],
            environment["AWS_SECRET_ACCESS_KEY"],
            environment.get("AWS_SESSION_TOKEN"),
        )
    path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "/root/.aws/credentials")
    try:
        return read_profile(path)
    except (OSError, BadProfile) as error:
        no_file = error
    try:
        return _role_credentials(environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", METADATA))
    except (OSError, http.client.HTTPException, ValueError, LookupError) as error:
        raise NotFetched(f"no AWS credentials, neither in {no_file}, nor from the instance metadata: {error}") from None


def fetch(place: WheelhouseLocation, destination: Path, environment: Mapping[str, str]) -> None:
    """Download the object into the file. Retries when S3 is busy, out of reach or denies it. Raises NotFetched."""
    credentials, failed, denied_until = node_credentials(environment), 0, time.monotonic() + DENIED_FOR_SECONDS
    while True:
        try:
            _download(place, destination, environment, credentials)
            return
        except urllib.error.HTTPError as error:
            why, is_denied = f"S3 answered {_refusal(error)}", error.code == http.HTTPStatus.FORBIDDEN
            is_final = error.code < 500 and not (is_denied and time.monotonic() < denied_until)
        except (OSError, http.client.HTTPException) as error:
            why, is_denied, is_final = str(error), False, False
        failed += not is_denied
        if is_final or failed == ATTEMPTS:
            raise NotFetched(f"{place.url(environment)}: {why}")
        time.sleep(DENIED_PAUSE_SECONDS if is_denied else PAUSE_SECONDS)


def _download(
    place: WheelhouseLocation, destination: Path, environment: Mapping[str, str], credentials: Credentials
) -> None:
    url = place.url(environment)
    address = urlsplit(url)
    headers = {"Host": address.netloc, "X-Amz-Content-Sha256": hashlib.sha256(b"").hexdigest()}
    scope = CredentialScope(place.region, "s3")
    signed = signed_headers(headers, b"", address.path, credentials, scope, datetime.now(UTC), method="GET")
    request = urllib.request.Request(url, headers=signed)
    with urllib.request.urlopen(request, timeout=S3_SECONDS) as answer, destination.open("wb") as file:
        shutil.copyfileobj(answer, file)


def _refusal(error: urllib.error.HTTPError) -> str:
    code = _CODE.search(error.read(2000).decode("utf-8", "replace"))
    advice = (
        "; does the role of this node have the policy AgentDownloadPolicyArn of the stack? If the bucket is encrypted"
        " with a KMS key of your own, name it under staging_key in cdk.json, and look whether the key's policy and the"
        " bucket's allow the role"
    )
    return f"{error.code} {code.group(1) if code else error.reason}{advice if error.code == 403 else ''}"


def _role_credentials(metadata: str) -> Credentials:
    # These requests must not go through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path: str, method: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(metadata + path, headers=headers, method=method)
        with opener.open(request, timeout=METADATA_SECONDS) as answer:
            return str(answer.read().decode("utf-8"))

    token = ask("/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    header = {"X-aws-ec2-metadata-token": token}
    role = ask(ROLE_PATH, "GET", header).split("\n")[0].strip()
    keys = json.loads(ask(ROLE_PATH + role, "GET", header))
    return Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"])


def main(words: Sequence[str]) -> int:
    """Run with BUCKET KEY REGION DOMAIN FILE. Returns 0, or 1 after a message on stderr."""
    *place, destination = words
    try:
        fetch(WheelhouseLocation(*place), Path(destination), os.environ)
    except NotFetched as error:
        sys.stderr.write(f"nodeheal: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

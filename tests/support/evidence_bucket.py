"""The bucket that evidence is sent to."""

import base64
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

KEY = "incidents/inc-1/inc-1-2.tar.gz"


@dataclass
class FakeBucket:
    """S3's POST on loopback: it keeps what it is sent, and answers with `status`."""

    status: int = 204
    forms: list[dict[str, bytes]] = field(default_factory=list)

    def start(self) -> None:
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                bucket.forms.append(parts(body, self.headers["Content-Type"]))
                self.send_response(bucket.status)
                self.end_headers()
                self.wfile.write(b"<Error><Code>AccessDenied</Code></Error>" if bucket.status >= 300 else b"")

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def ticket(self) -> str:
        post = {"url": f"http://127.0.0.1:{self.server.server_port}/evidence", "fields": {"key": KEY, "policy": "p"}}
        return base64.urlsafe_b64encode(json.dumps(post).encode()).decode().rstrip("=")

    def archive(self) -> tarfile.TarFile:
        return tarfile.open(fileobj=io.BytesIO(self.forms[-1]["file"]))

    def manifest(self) -> dict[str, Any]:
        file = self.archive().extractfile("manifest.json")
        assert file is not None
        read: dict[str, Any] = json.loads(file.read())
        return read

    def item(self, name: str) -> dict[str, Any]:
        [found] = [item for item in self.manifest()["items"] if item["name"] == name]
        return dict(found)


def parts(body: bytes, kind: str) -> dict[str, bytes]:
    found = {}
    for part in body.split(b"--" + kind.partition("boundary=")[2].encode())[1:-1]:
        head, _, value = part.partition(b"\r\n\r\n")
        found[head.split(b'name="')[1].split(b'"')[0].decode()] = value.removesuffix(b"\r\n")
    return found


@pytest.fixture
def bucket() -> Iterator[FakeBucket]:
    made = FakeBucket()
    made.start()
    yield made
    made.server.shutdown()

"""Makes the volumes of one pod on this machine, and says where each of a container's paths is then.

Containers here have no file system of their own. So a path of a mount is replaced by the folder of its volume wherever
it stands in the container's command, its variables, and the texts of its ConfigMaps.
"""

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sandbox.kubernetes.api import Api

Object = Mapping[str, Any]
HostPath = Callable[[str], Path]  # where a folder of the node is on this machine


class Volumes:
    """The volumes of one pod. `api`: as the node's kubelet, which may read what its pods refer to."""

    def __init__(self, pod: Object, folder: Path, host_path: HostPath, api: Api) -> None:
        self._pod, self._folder, self._host_path, self._api = pod, folder, host_path, api
        self._namespace = str(pod["metadata"]["namespace"])
        self._places = {volume["name"]: self._place(volume) for volume in pod["spec"].get("volumes", [])}

    def mount(self) -> None:
        """Create them with what is in them. Raises ApiError where the API server does not give it out."""
        for volume in self._pod["spec"].get("volumes", []):
            place = self._places[volume["name"]]
            place.mkdir(parents=True, exist_ok=True)
            sources = volume.get("projected", {}).get("sources", [volume])
            for source in sources:
                for name, data in self._files(source).items():
                    (place / name).write_bytes(data)

    def mounts(self, spec: Object) -> dict[str, Path]:
        """Return where each path that a container mounts is on this machine."""
        return {mount["mountPath"]: self._places[mount["name"]] for mount in spec.get("volumeMounts", [])}

    def _files(self, source: Object) -> dict[str, bytes]:
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            audiences = [wanted["audience"]] if "audience" in wanted else []
            return {wanted["path"]: self._token(audiences, int(wanted.get("expirationSeconds", 3600))).encode()}
        if "configMap" in source:
            wanted = source["configMap"]
            path = f"/api/v1/namespaces/{self._namespace}/configmaps/{wanted['name']}"
            data = self._api.get(path).get("data", {})
            keys = {item["key"]: item["path"] for item in wanted.get("items", [])} or {key: key for key in data}
            return {to: self._placed(data[key]).encode() for key, to in keys.items()}
        if "secret" in source:
            path = f"/api/v1/namespaces/{self._namespace}/secrets/{source['secret']['secretName']}"
            return {key: base64.b64decode(value) for key, value in self._api.get(path).get("data", {}).items()}
        return {}

    def _placed(self, text: str) -> str:
        spec = self._pod["spec"]
        for container in (*spec.get("initContainers", []), *spec["containers"]):
            text = place_paths(text, self.mounts(container))
        return text

    def _token(self, audiences: list[str], seconds: int) -> str:
        metadata, account = self._pod["metadata"], self._pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound}
        return str(self._api.create(path, {**request, "spec": spec})["status"]["token"])

    def _place(self, volume: Object) -> Path:
        if "hostPath" in volume:
            return self._host_path(str(volume["hostPath"]["path"]))
        return self._folder / "volumes" / str(volume["name"])


def place_paths(text: str, mounts: Mapping[str, Path]) -> str:
    """Return a text with each path of a mount, or below one, as it is on this machine."""
    if not mounts:
        return text
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({paths})(?![\w.-])", lambda match: str(mounts[match[1]]), text)

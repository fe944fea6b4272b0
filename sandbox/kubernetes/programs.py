"""Finds the programs of Kubernetes and their manifests.

They are not part of nodeheal: `make kubernetes` builds them. They stand in the folder that KUBEBUILDER_ASSETS names,
or in `build/kubernetes/bin`, each under its name or packed as `NAME.xz`.
"""

import fcntl
import lzma
import os
import shutil
from pathlib import Path

ASSETS = "KUBEBUILDER_ASSETS"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
JOB_CONTROLLERS = ("training-operator", "jobset-controller")
KUEUE = ("kueue",)
CUSTOM_RESOURCES = ("manifests/kubeflow.org_pytorchjobs.yaml", "manifests/jobset.x-k8s.io_jobsets.yaml")
JOBSET_WEBHOOKS = "manifests/jobset-webhooks.yaml"
KUEUE_RESOURCES = "manifests/kueue"
KUEUE_WEBHOOKS = "manifests/kueue-webhooks.yaml"
WITH_JOBS = (*CONTROL_PLANE, *JOB_CONTROLLERS, *CUSTOM_RESOURCES, JOBSET_WEBHOOKS)
WITH_KUEUE = (*WITH_JOBS, *KUEUE, KUEUE_RESOURCES, KUEUE_WEBHOOKS)

_BUILD = Path(__file__).parents[2] / "build" / "kubernetes"
_HINT = f"build them with `make kubernetes`, or name their folder in {ASSETS}"
_COPY_BYTES = 1 << 20


def why_missing(*names: str) -> str:
    """Return which of these programs and manifests are not here, and how to get them; empty: none is missing."""
    absent = [name for name in names if _find(name) is None]
    return f"{', '.join(absent)} not found: {_HINT}" if absent else ""


def program(name: str) -> Path:
    """Return the program, unpacked once for all processes of this checkout.

    Raises FileNotFoundError, with what to do, if it is not here.
    """
    found = _find(name)
    if found is None:
        raise FileNotFoundError(why_missing(name))
    return _unpack(found, _BUILD / "unpacked" / name) if found.suffix == ".xz" else found


def manifest(name: str) -> Path:
    """Return the file, or the folder, of a manifest, which is named from beside the programs' folder.

    Raises FileNotFoundError, with what to do, if it is not here.
    """
    found = _find(name)
    if found is None:
        raise FileNotFoundError(why_missing(name))
    return found


def _find(name: str) -> Path | None:
    """Return the first path of a program in a folder of programs, or of a manifest beside it."""
    assets = [Path(folder) for folder in [os.environ.get(ASSETS, "")] if folder]
    for folder in [*assets, _BUILD / "bin"]:
        paths = [folder.parent / name] if "/" in name else [folder / name, folder / f"{name}.xz"]
        for path in paths:
            if path.exists():
                return path.absolute()
    return None


def _unpack(packed: Path, target: Path) -> Path:
    """Unpack a program whole or not at all, and again only after its archive has changed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = packed.stat().st_mtime_ns
        if not target.exists() or target.stat().st_mtime_ns != changed:
            part = target.with_name(f"{target.name}.part")
            with lzma.open(packed) as source, part.open("wb") as copy:
                shutil.copyfileobj(source, copy, _COPY_BYTES)
            part.chmod(0o755)
            os.utime(part, ns=(changed, changed))
            part.rename(target)
    return target

"""Searches a directory: its format, its checkpoints (newest first), and which are whole."""

from collections.abc import Callable, Iterator, Sequence

from nodeheal.checkpoints import hugging_face, megatron, nemo, neuronx, single_files, torch_distributed
from nodeheal.checkpoints.found import Candidate, Checkpoint, CheckpointBroken, DirectoryListing, Distrusted
from nodeheal.checkpoints.place import CheckpointRoot
from nodeheal.contract.vocabulary import CheckpointFormat

PROBLEM_CHARACTERS = 300
JUDGED_AT_MOST = 200  # checkpoints of one directory, the newest; a job may write any number of names there
_LOOKS: dict[CheckpointFormat, Callable[[CheckpointRoot, Sequence[str]], list[Candidate]]] = {
    # The order of detection: the more distinctive names first.
    CheckpointFormat.megatron: megatron.candidates,
    CheckpointFormat.hugging_face: hugging_face.candidates,
    CheckpointFormat.numpy: single_files.numpy_candidates,
    CheckpointFormat.neuronx: neuronx.candidates,
    CheckpointFormat.nemo: nemo.candidates,
    CheckpointFormat.torch_distributed: torch_distributed.candidates,
    CheckpointFormat.torch_save: single_files.torch_candidates,
}


def list_checkpoints(
    directory: str,
    wanted: CheckpointFormat = CheckpointFormat.auto,
    *,
    to_newest_valid: bool = False,
    distrusted: Distrusted | None = None,
) -> DirectoryListing:
    """Return all of them with verdicts; or those down to the newest valid one. A distrusted one is not valid. Never
    raises, since the caller needs an answer.
    """
    try:
        place = CheckpointRoot(directory)
        kind, candidates = _candidates(place, place.names(), wanted)
        newest = _newest_first(place, candidates)[:JUDGED_AT_MOST]
        judged = _judge(place, newest, to_newest_valid, distrusted)
        return DirectoryListing(directory, kind, tuple(judged), left_out=max(0, len(candidates) - JUDGED_AT_MOST))
    except Exception as error:  # others may have written any bytes there: an error means that the file is wrong
        return DirectoryListing(directory, wanted, problem=_said(error))


def _candidates(
    place: CheckpointRoot, names: Sequence[str], wanted: CheckpointFormat
) -> tuple[CheckpointFormat, list[Candidate]]:
    if wanted is not CheckpointFormat.auto:
        return wanted, _LOOKS[wanted](place, names)
    for known, look in _LOOKS.items():
        candidates = look(place, names)
        if candidates:
            return known, candidates
    return wanted, []


def _newest_first(place: CheckpointRoot, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Sort by step where all resumable ones have one, else by modification time."""
    if any(candidate.step is None for candidate in candidates):
        return sorted(
            candidates,
            key=lambda candidate: (place.changed_at(candidate.name), candidate.step or 0, candidate.name),
            reverse=True,
        )
    return sorted(
        candidates,
        key=lambda candidate: (candidate.step or 0, place.changed_at(candidate.name), candidate.name),
        reverse=True,
    )


def _judge(
    place: CheckpointRoot, candidates: Sequence[Candidate], to_newest_valid: bool, distrusted: Distrusted | None
) -> Iterator[Checkpoint]:
    for candidate in candidates:
        judged = _judged(place, candidate, distrusted)
        yield judged
        if to_newest_valid and judged.is_valid:
            return


def _judged(place: CheckpointRoot, candidate: Candidate, distrusted: Distrusted | None) -> Checkpoint:
    path = f"{place.root.rstrip('/')}/{candidate.name}" if candidate.name else place.root
    shown = path.encode("utf-8", "replace").decode()
    if distrusted is not None and distrusted.holds(candidate.step, place.changed_at(candidate.name)):
        return Checkpoint(shown, candidate.step, "written when the loss was not a number")
    try:
        return Checkpoint(
            shown, candidate.step, remark=candidate.check(), written_at=place.changed_at(candidate.name) or None
        )
    except Exception as error:  # see list_checkpoints; one that crashes its reader must not hide the one before
        return Checkpoint(shown, candidate.step, _said(error))


def _said(error: Exception) -> str:
    text = str(error) if isinstance(error, CheckpointBroken) else f"it cannot be read: {type(error).__name__}: {error}"
    return text.encode("utf-8", "replace").decode()[:PROBLEM_CHARACTERS]

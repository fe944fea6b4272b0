"""A job's file from the disk, refused with the line and the field of everything that is wrong."""

from pathlib import Path

from nodeheal.api.job_file import JobFileRefused, parse_job_file
from nodeheal.cli.say import refuse
from nodeheal.contract.job_spec import JobSpec
from nodeheal.parsers.sbatch import is_batch_script


def read_job_file(file: Path) -> JobSpec:
    """The file's job; refused with a line for each complaint."""
    raw = bytes_of(file)
    try:
        return parse_job_file(raw)
    except JobFileRefused as refused:
        if is_batch_script(raw):
            refuse(f"{file}: it is a batch script; with --slurm it is handed to sbatch")
        refuse(*(f"{file}:{complaint.line}: {complaint}" for complaint in refused.complaints))


def bytes_of(file: Path) -> bytes:
    """What the file holds; refused where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        refuse(f"{file}: {error.strerror}")

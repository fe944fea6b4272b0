"""JSON Schemas, generated, committed and diffed: the events', for whoever writes an agent of their own, and job.yaml's,
for editors."""

from pathlib import Path

FOLDER = Path(__file__).parent

"""JSON Schemas, generated, committed and diffed: of the events, for other agents' authors, and of job.yaml, for
editors.
"""

from pathlib import Path

FOLDER = Path(__file__).parent

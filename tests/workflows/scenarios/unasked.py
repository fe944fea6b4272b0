"""What nobody waits for, what was not asked for, and what is not there to be had.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from typing import Any

Json = dict[str, Any]

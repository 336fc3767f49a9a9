"""The identity of a launch as it lies on disk: its compared groups, and the digest over them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

IDENTITY_SCHEMA: Final = 1
COMPARED: Final = ("experiment", "software", "hardware", "environment")
"""The groups that are compared; a fifth, ``provenance``, is only told."""


def identity_digest(identity: Mapping[str, Any]) -> str:
    """Return the SHA-256 hex digest of the compared groups as canonical JSON (sorted keys, no white space)."""
    groups = {group: identity.get(group) for group in COMPARED}
    return hashlib.sha256(json.dumps(groups, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

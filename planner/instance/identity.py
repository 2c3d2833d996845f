"""The name of an instance: a hash of its canonical JSON."""

import hashlib
import json

from planner.instance.instance import Instance


def instance_sha256(instance: Instance) -> str:
    """Return the SHA-256 of an instance's JSON with sorted keys and no spaces."""
    text = json.dumps(instance.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

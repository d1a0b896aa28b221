"""Programs that a test needs, from Debian packages that `scripts/prerequisites` installs."""

import os
import shutil

import pytest


def only_with(part: str, *programs: str):
    """Skips a test where a program is missing. Where nothing may be (SHUNT_SKIP=nothing), that is an error. `part` is the word
    for scripts/prerequisites."""
    missing = [name for name in programs if shutil.which(name) is None]
    reason = f"{', '.join(missing)} missing: scripts/prerequisites {part}" if missing else ""
    if missing and os.environ.get("SHUNT_SKIP") == "nothing":
        raise RuntimeError(reason)
    return pytest.mark.skipif(bool(missing), reason=reason or "nothing is missing")

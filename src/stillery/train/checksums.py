"""Checksums of the files in a folder, to find out later whether one was damaged, cut short or removed."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

__all__ = ["CHECKSUMS", "damage_in", "write_checksums"]

CHECKSUMS = "checksums.json"
"""The file of a folder that lists the size and CRC-32 of all others."""

_AT_ONCE = 1 << 22


def write_checksums(folder: Path) -> None:
    """List the files of a folder in `checksums.json` there.

    CRC-32 finds every flipped bit and is read at several GB/s; a cryptographic hash would take five times as long.
    """
    files = {path.name: _stamp(path) for path in sorted(folder.iterdir()) if path.name != CHECKSUMS}
    (folder / CHECKSUMS).write_text(json.dumps({"files": files}, indent=1), encoding="utf-8")


def damage_in(folder: Path) -> str | None:
    """Return what is wrong with the files of a folder that has checksums; None if they are as they were written."""
    try:
        files = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))["files"]
        wanted = {str(name): (stamp["bytes"], stamp["crc32"]) for name, stamp in files.items()}
    except FileNotFoundError:
        return f"{CHECKSUMS} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{CHECKSUMS} cannot be read"
    for name, (size, checksum) in wanted.items():
        try:
            found = _stamp(folder / name)
        except FileNotFoundError:
            return f"{name} is missing"
        except (OSError, ValueError) as error:
            return f"{name} cannot be read ({getattr(error, 'strerror', None) or error})"
        if found["bytes"] != size:
            return f"{name} has {found['bytes']} bytes instead of {size}"
        if found["crc32"] != checksum:
            return f"{name} does not match its checksum"
    return None


def _stamp(file: Path) -> dict[str, Any]:
    checksum, size = 0, 0
    with file.open("rb") as opened:
        while found := opened.read(_AT_ONCE):
            checksum, size = zlib.crc32(found, checksum), size + len(found)
    return {"bytes": size, "crc32": f"{checksum:08x}"}

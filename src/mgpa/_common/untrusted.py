"""Check the names, texts and descriptions in files against limits, before memory is allocated."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StudyError, TableError, first_few
from .files import special_kind

#: Maximum number of characters in a column or feature name, in a JSON description, and in a study file.
MAX_NAME, MAX_DESCRIPTION, MAX_STUDY = 1000, 2**24, 2**20
#: Maximum nesting of a description, and maximum number of names joined by dots in a key of a study.
MAX_DEPTH = 16
#: Types of the ``info`` entries that mgpa reads; other entries are the user's own.
INFO_TYPES: dict[str, type | tuple[type, ...]] = {
    "encoder": Mapping,
    "signals": Mapping,
    "feature_names": (list, tuple),
    **dict.fromkeys(("unit", "source_column", "corrected_by", "coordinates", "decimal"), str),
}
#: The bytes before the digest at the end of an archive.
SEAL = b"mgpa sha256 "
_DOTTED = re.compile(
    r"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}""" % MAX_DEPTH  # noqa: UP031
)


def require_plausible(claimed: int, stored: int, what: str = "numbers") -> None:
    """Raise, before allocating memory, if a file claims far more bytes than it can hold."""
    if claimed > max(2**26, 100 * stored):  # embeddings hardly compress
        raise TableError(f"claims {claimed} bytes of {what} and has {stored}; it is damaged or malicious.")


def require_room(name: str, longest: int, n_rows: int, stored: int) -> None:
    """Raise if a text column, padded to its longest text, needs far more memory than its file."""
    if (claimed := 4 * longest * n_rows) > max(2**26, 100 * stored):
        raise TableError(
            f"{name} has a text of {longest} characters, and its {n_rows} rows would take {claimed} bytes of "
            "memory; shorten it, or leave the column out (columns)."
        )


def seal_end(path: Path) -> None:
    """Write the digest of a file into its last 64 bytes, which are reserved for the digest."""
    with open(path, "r+b") as stream:
        digest = _digest(stream)
        stream.seek(-64, 2)
        stream.write(digest)


def require_sealed(stream: Any) -> None:
    """Raise unless a file ends with the digest of its content, as :func:`seal_end` writes it."""
    stream.seek(-64 - len(SEAL), 2)
    if stream.read() != SEAL + _digest(stream):
        raise TableError("damaged: its content does not match its checksum.")


def _digest(stream: Any) -> bytes:
    digest, left = hashlib.sha256(), stream.seek(0, 2) - 64
    stream.seek(0)
    while left > 0:
        block = stream.read(min(left, 2**20))
        digest.update(block)
        left -= len(block) or left
    return digest.hexdigest().encode()


def require_names(names: Iterable[str]) -> None:
    """Raise if a column's name is too long, or two columns have the same name."""
    names = list(names)
    if longest := max((name for name in names if len(name) > MAX_NAME), key=len, default=""):
        raise TableError(
            f"A column name has {len(longest)} characters ({longest[:30]}…); the limit is {MAX_NAME}."
        )
    if twice := sorted(name for name, n in Counter(names).items() if n > 1):
        raise TableError(f"Several columns have the name {first_few(twice)}; rename them.")


def require_unicode(values: NDArray[Any], name: str) -> None:
    """Raise if an array of text has invalid characters, which numpy does not check."""
    if values.dtype.kind != "U":
        return
    codes = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))).reshape(-1).view(np.uint32)
    if ((codes > 0x10FFFF) | (codes >> 11 == 0x1B)).any():
        raise TableError(f"{name} has text that is not valid Unicode; it is damaged.")


def checked_info(info: Any) -> dict[str, Any]:
    """Return the ``info`` of a table, or raise if an entry that mgpa reads has the wrong type."""
    if not isinstance(info, dict):
        raise TableError(f"info must be a dict; got {type(info).__name__}.")
    for name in INFO_TYPES.keys() & info.keys():
        if info[name] is not None and not isinstance(info[name], INFO_TYPES[name]):
            kinds = {Mapping: "names with values", str: "text"}.get(INFO_TYPES[name], "a list of names")  # type: ignore[call-overload]
            raise TableError(f"info[{name!r}] must be {kinds}; got {type(info[name]).__name__}.")
    return info


def read_description(text: str | bytes) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Return the row shape and the info in the JSON description of a table."""
    if len(text) > MAX_DESCRIPTION:
        raise TableError(f"damaged: its description takes {len(text)} bytes; the limit is {MAX_DESCRIPTION}.")
    try:
        document: Any = json.loads(text)
        shape, info = tuple(map(int, document["shape"])), document.get("info", {})
        version = document["format"]
        newer = version > 1
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        shape, info, version, newer = (), {}, 1, False
    if newer:
        raise TableError(f"written by a newer mgpa (format {version}; this one reads 1); upgrade mgpa.")
    if len(shape) not in (1, 2) or min(shape) < 1 or not isinstance(info, dict) or _depth(info) > MAX_DEPTH:
        raise TableError("damaged: its description cannot be read.")
    names = info.get("feature_names")
    require_names(set(map(str, names)) if isinstance(names, list) else ())
    return shape, checked_info(info)


def _depth(value: Any, at: int = 0) -> int:
    """Return the nesting depth of a value, or the first depth beyond the limit."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if at > MAX_DEPTH or not inner:
        return at
    return max((_depth(item, at + 1) for item in inner if isinstance(item, dict | list)), default=at)


def read_study_text(path: Path) -> str:
    """Return the text of a study file; raise if it is too long, not UTF-8, or has control characters."""
    if kind := special_kind(path):  # reading a pipe would block
        raise StudyError(f"{path} is {kind}, not a file.")
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_STUDY + 1)
        if len(content) > MAX_STUDY:
            raise StudyError(f"{path} is longer than {MAX_STUDY} bytes; studies are short TOML files.")
        text = content.decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} cannot be read as text in UTF-8: {error}.") from None
    # TOML allows no control characters except tabs; others can reverse the direction of displayed text.
    turns = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
    if hidden := {
        c for c in set(text) if c in turns or (unicodedata.category(c) == "Cc" and c not in "\t\n")
    }:
        raise StudyError(f"{path} has control characters ({min(hidden)!a}); remove them.")
    if dotted := _DOTTED.search(text):
        line = text.count("\n", 0, dotted.start()) + 1
        raise StudyError(f"{path}: line {line} joins more than {MAX_DEPTH} names by dots.")
    return text

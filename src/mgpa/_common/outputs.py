"""Output folders: only files that mgpa itself wrote are ever replaced."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

#: Lists, one a line, the files that mgpa wrote into the folder it is in.
MARKER = ".mgpa-files"


def claim(folder: str | os.PathLike[str], *names: str) -> list[Path]:
    """Return the paths of files that may be written into a folder, which must be new, empty or ours.

    Every name is put on the list of our files (``.mgpa-files``) before its file is written, so a run that is
    killed can be repeated. Several processes may add to one list.

    Parameters
    ----------
    folder : path
        Created, with its parents, when there are names. Without names the folder is only checked.
    *names : str
        Files relative to the folder, with "/" between folders. Their folders are created.

    Raises
    ------
    FileExistsError
        If the folder holds files of somebody else and none of ours, if a name exists that we did not write,
        or if a name differs from another one only in case or in how its letters are encoded.
    ValueError
        If a name leads out of the folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     [table] = claim(parent + "/audit", "table.csv")
    ...     _ = table.write_text("S,.5")
    ...     [again] = claim(parent + "/audit", "table.csv")
    >>> again == table
    True
    """
    folder = Path(folder)
    listed = _listed(folder)
    if not names:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    root, paths, added = folder.resolve(), [], []
    twins = {_folded(name): name for name in listed}
    for name in names:
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).name or "\n" in name:
            raise ValueError(f"{name!r} leads out of the folder {folder}.")
        if path.is_symlink() or not path.parent.resolve().is_relative_to(root):
            raise FileExistsError(f"{path} is a link, or lies behind one; remove it or name another folder.")
        twin = twins.setdefault(_folded(name), name)
        if twin != name:
            raise FileExistsError(f"{name!r} and {twin!r} are the same file on some systems; rename one.")
        if name not in listed and path.exists():
            raise FileExistsError(f"{path} was not written by mgpa; move it, or name another output folder.")
        if name not in listed:
            added.append(name)
        paths.append(path)
    if added:
        with open(folder / MARKER, "a", encoding="utf-8") as marker:
            marker.write("".join(f"{name}\n" for name in dict.fromkeys(added)))
            marker.flush()
            os.fsync(marker.fileno())
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    return paths


def _listed(folder: Path) -> set[str]:
    """Return the names on a folder's list; raise if the folder is somebody else's."""
    marker = folder / MARKER
    if marker.is_file() and not marker.is_symlink():
        return set(marker.read_text(encoding="utf-8").splitlines())
    if os.path.lexists(folder) and not folder.is_dir():
        raise FileExistsError(f"{folder} is not a folder; name another output folder.")
    # A folder that holds nothing but folders of ours is ours.
    others = (
        [name for name in os.listdir(folder) if not (folder / name / MARKER).is_file()]
        if folder.is_dir()
        else []
    )
    if others:
        raise FileExistsError(
            f"The folder {folder} holds files that mgpa did not write ({min(others)}); name another one."
        )
    return set()


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()

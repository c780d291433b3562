"""Where a table gathers until it is complete: ``<name>.partial``, beside its place.

A folder is moved to its place at once. Objects of a store cannot be moved; the store copies them, and what
tells readers that they are a table comes last: the description of a Zarr group, or the last of the Parquet
parts, each of which says how many there are. Whoever is killed meanwhile, at any point, has the next one for
the same job go on from there.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from ..._common.files import put_in_place, remove, replacing, scratch_folder
from ..._common.remote import Place, RemotePath, copy_all, remove_all
from ...errors import StoreError

# Without it nobody takes the rest for a Zarr group.
DESCRIPTION = "zarr.json"
_OURS = re.compile(r"plan\.json|publishing\.json|published|done/\d+|table/.+")


class LocalDraft:
    """A table that is being written into a folder beside its place.

    Attributes
    ----------
    partial : Path
        Where it is, with a plan of it and marks of the parts that are done.
    table : Path
        The table itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self.table = self.partial / "table"
        self._begun: tuple[int, int] | None = None

    def begin(self, plan: str, create: Callable[[Path], object]) -> None:
        """Make the folder, with what ``create`` writes; or go on with one that has the same plan."""
        stored = self.partial / "plan.json"
        if stored.exists() and not self.table.exists():
            self._clear()  # all was done but to remove it
        if stored.exists():
            if stored.read_text(encoding="utf-8") != plan:
                raise _another_job(self.partial, "folder")
            self._begun = _identity(self.table)
            return
        with suppress(OSError):
            self.partial.rmdir()  # empty, if that was all there was left to do
        if os.path.lexists(self.partial):
            raise _something_else(self.partial)
        try:
            with replacing(self.partial) as temporary:
                (temporary / "done").mkdir(parents=True)
                create(temporary / "table")
                (temporary / "plan.json").write_text(plan, encoding="utf-8")
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self.begin(plan, create)  # somebody else began it meanwhile
        else:
            self._begun = _identity(self.table)

    @property
    def done(self) -> frozenset[int]:
        """Parts that are complete."""
        return frozenset(int(entry.name) for entry in (self.partial / "done").iterdir())

    def mark(self, part: int) -> None:
        """Say that a part is complete. Zarr makes folders as it needs them: none stays in what is gone."""
        if self.gone:
            if self.path.suffix == ".zarr" and not (self.table / DESCRIPTION).exists():
                with suppress(OSError):  # a third writer may be at it, too
                    remove(self.table)
                    self.partial.rmdir()
            raise FileNotFoundError(f"There is no plan in {self.partial}.")
        (self.partial / "done" / str(part)).touch()

    @property
    def gone(self) -> bool:
        """Whether somebody else has published or removed it, even if a folder of its name is there again."""
        return self._begun is None or _identity(self.table) != self._begun

    def tidy(self) -> None:
        """Remove what processes that were killed, here or elsewhere, left of a part."""
        _clear_unfinished(self.table)

    def publish(self, overwrite: bool) -> None:
        """Move the table to its place, and remove the rest."""
        put_in_place(self.table, self.path, even_folder=overwrite)
        _clear_unfinished(self.path)  # what another writer of the same table was at meanwhile
        self._clear()

    def _clear(self) -> None:
        """Remove what is left when the table is in its place, and nothing that somebody else put there."""
        # A process that did the same may have been killed anywhere in between.
        for mark in (self.partial / "done").glob("*"):
            mark.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            (self.partial / "done").rmdir()
        (self.partial / "plan.json").unlink(missing_ok=True)
        with suppress(OSError):
            self.partial.rmdir()


class RemoteDraft:
    """A table that is being written to a store, under another name than its own.

    Attributes
    ----------
    partial, table : RemotePath
        As those of :class:`LocalDraft`. While the table is copied to its place there is also a list of what
        it replaces (``publishing.json``), and when it is there a mark (``published``), until all is removed.
    """

    def __init__(self, path: RemotePath) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self.table = self.partial / "table"
        self._plan, self._publishing, self._published = (
            self.partial / name for name in ("plan.json", "publishing.json", "published")
        )

    def begin(self, plan: str, create: Callable[[Path], object]) -> None:
        """Put down the plan, and what ``create`` writes; or go on with a draft that has the same plan."""
        before = self.partial.files()
        try:
            self._plan.write_bytes(plan.encode(), new=True)
        except FileExistsError:
            if self._plan.read_bytes() != plan.encode():
                raise _another_job(self.partial, "objects") from None
        else:
            self._clear_leftovers(before)
        if not (self.table / DESCRIPTION).exists():
            with scratch_folder() as folder:
                create(folder / "table")
                self._upload(folder / "table")

    def _clear_leftovers(self, before: dict[str, RemotePath]) -> None:
        """Remove what workers left that were thought lost, and wrote after all; refuse other people's."""
        if any(not _OURS.fullmatch(name) for name in before):
            self._plan.unlink(missing_ok=True)
            raise _something_else(self.partial)
        remove_all(before.values())

    @property
    def done(self) -> frozenset[int]:
        """Parts that are complete."""
        return frozenset(int(name) for name in (self.partial / "done").files())

    def mark(self, part: int) -> None:
        """Say that a part is complete. In what is gone, where a store lets anybody write, nothing stays."""
        if self.gone:
            self._clear()
            raise FileNotFoundError(f"There is no plan in {self.partial}.")
        (self.partial / "done" / str(part)).write_bytes(b"")

    @property
    def gone(self) -> bool:
        """Whether somebody else has published or removed it."""
        return not self._plan.exists()

    def tidy(self) -> None:
        """Do nothing: an object is there as a whole or not at all."""

    def publish(self, overwrite: bool) -> None:
        """Have the table copied to its place, what makes it a table last, and remove the rest.

        Whoever calls has made sure that what is there may be replaced.
        """
        if not self._publishing.exists():
            there = sorted(self.path.files()) if overwrite and self.path.is_dir() else []
            self._publishing.write_bytes(json.dumps(there).encode())
        replaced = json.loads(self._publishing.read_bytes())
        files = self.table.files()
        if self.path.is_file():
            self.path.unlink()
        if DESCRIPTION in replaced:
            (self.path / DESCRIPTION).unlink(missing_ok=True)
        remove_all(self.path / name for name in replaced if name not in files)
        for names in (
            [name for name in files if name != DESCRIPTION],
            [name for name in files if name == DESCRIPTION],
        ):
            copy_all([files[name] for name in names], [self.path / name for name in names])
        copied = self.path.files()
        for name, file in files.items():
            if name not in copied or copied[name].size != file.size:
                raise StoreError(f"{self.path / name} was not copied; run it again.")
        self._published.write_bytes(b"")
        self._clear()

    def publish_folder(self, folder: Path, overwrite: bool) -> None:
        """Publish a table that is complete in a folder of this machine, whatever was begun here before."""
        plan = json.dumps({"whole": secrets.token_hex(8)})
        if self._plan.exists() and "whole" not in json.loads(self._plan.read_bytes()):
            raise _another_job(self.partial, "objects")
        if self._publishing.exists():  # what is there is the half of another
            half = {*self.table.files(), *json.loads(self._publishing.read_bytes())}
            remove_all(self.path / name for name in half)
        self._clear_leftovers(self.partial.files())
        self._plan.write_bytes(plan.encode())
        self._upload(folder)
        if self._plan.read_bytes() != plan.encode():
            raise FileExistsError(f"Another process has begun to write {self.path}; let one of them finish.")
        self.publish(overwrite)

    def clear_published(self) -> bool:
        """Remove what is left of a draft that is in its place; return whether one is on its way there."""
        if self._published.exists():
            self._clear()
            return False
        return self._publishing.exists()

    def _upload(self, folder: Path) -> None:
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        for file in sorted(files, key=lambda file: file == folder / DESCRIPTION):
            (self.table / file.relative_to(folder)).upload(file)

    def _clear(self) -> None:
        files = self.partial.files()
        remove_all(file for name, file in files.items() if _OURS.fullmatch(name) and name != "published")
        self._published.unlink(missing_ok=True)


Draft: TypeAlias = LocalDraft | RemoteDraft


def draft_of(path: Place) -> Draft:
    """Return where a table gathers until it can go to its place."""
    return RemoteDraft(path) if isinstance(path, RemotePath) else LocalDraft(path)


def _clear_unfinished(table: Path) -> None:
    for leftover in table.glob(".mgpa-*.tmp"):
        remove(leftover)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another of its name, or None if there is none."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _another_job(partial: Place, what: str) -> FileExistsError:
    return FileExistsError(
        f"{partial} holds unfinished output of another job (other rows, columns or settings); finish that "
        f"one, or remove the {what}."
    )


def _something_else(partial: Place) -> FileExistsError:
    return FileExistsError(
        f"{partial} is where output gathers, and holds something else; rename or remove it."
    )

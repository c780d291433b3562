"""Every command's own ``--help``, asked for while the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from rich.console import Console
from sphinx.application import Sphinx

WIDTH = 84


def commands(app: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, groups before what is in them."""
    for name in app:
        if not name.startswith("-"):
            yield (*path, name)
            yield from commands(app[name], (*path, name))


def help_text(app: Any, words: tuple[str, ...]) -> str:
    """Return what ``mgpa … --help`` prints."""
    stream = StringIO()
    console = Console(file=stream, width=WIDTH, force_terminal=False, color_system=None)
    app.help_print(list(words), console=console)
    return "\n".join(line.rstrip() for line in stream.getvalue().strip("\n").splitlines())


class CommandHelp(Directive):
    """A section for the application, and for each of its commands."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        from mgpa.cli import app

        sections: list[nodes.Node] = []
        for words in ((), *commands(app)):
            title = " ".join(("mgpa", *words))
            section = nodes.section("", ids=["-".join(("mgpa", *words))], names=[title])
            section += nodes.title(title, title)
            text = help_text(app, words)
            section += nodes.literal_block(text, text, language="none")
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

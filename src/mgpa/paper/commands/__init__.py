"""The commands ``mgpa data`` and ``mgpa study``; importing this package registers them."""

from . import data, study

__all__ = ["data", "study"]

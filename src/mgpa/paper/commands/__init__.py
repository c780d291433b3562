"""The commands ``mgpa data`` and ``mgpa study``. Importing this package adds them."""

from . import data, study

__all__ = ["data", "study"]

"""Use S as a scorer in scikit-learn's cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from ..estimators.tokens import token_mean
from ..labels import to_numpy
from ..tables.table import Table
from .design import find_design
from .ranks import between_auroc, within_auroc
from .readers import run_readers
from .settings import bank_of


def source_scorer(
    readers: Any = None, *, greater_is_better: bool = True, random_state: int = 0
) -> Callable[..., float]:
    """Return a scorer of S for ``cross_validate`` and ``GridSearchCV``; higher is less readable.

    It corrects the held-out rows with the fitted estimator, trains readers on one half of the held-out
    participants, scores the other half, and then exchanges the halves. The score is 1 - S, so a search
    maximises 1 - S; with ``greater_is_better=False``, the score is S.

    Parameters
    ----------
    readers : str, dict or None
        As in :func:`mgpa.audit.run`; None: the readers without networks.
    greater_is_better : bool
        Whether a higher score means a less readable source.
    random_state : int
        Seed of the halves.

    Returns
    -------
    callable
        Called as ``scorer(estimator, X, y=None, *, source, groups=None)``; returns a float. ``source`` and
        ``groups`` (participants) are passed by metadata routing (below). Without groups, every row is a
        separate participant.

    Examples
    --------
    >>> import numpy as np, sklearn
    >>> from sklearn.model_selection import GroupKFold, cross_validate
    >>> from mgpa.baselines import make_method
    >>> rng = np.random.default_rng(0)
    >>> who, source = np.repeat(np.arange(16), 20), np.tile(["dry", "wet"], 160)
    >>> X = rng.normal(size=(320, 4)) + 3 * (source == "wet")[:, None] * np.eye(4)[0]
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     leace = make_method("leace").set_fit_request(source=True)
    ...     scores = cross_validate(
    ...         leace, X, cv=GroupKFold(2), scoring=source_scorer(),
    ...         params={"source": source, "groups": who},
    ...     )
    >>> bool(scores["test_score"].min() > 0.25)  # uncorrected: below .05
    True
    """
    bank = bank_of({"restarts": 0} if readers is None else readers)
    return _SourceScorer(bank, greater_is_better, random_state)


class _SourceScorer:
    """The scorer of :func:`source_scorer`, with metadata requests."""

    def __init__(self, bank: dict[str, Any], greater_is_better: bool, random_state: int) -> None:
        self.bank, self.greater_is_better, self.random_state = bank, greater_is_better, random_state

    def __repr__(self) -> str:
        return f"source_scorer({self.bank['bank']!r})"

    def get_metadata_routing(self) -> Any:
        """Return the metadata requests of the scorer: ``source`` and ``groups``."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        for name in ("source", "groups"):
            request.score.add_request(param=name, alias=True)
        return request

    def __call__(self, estimator: Any, X: Any, y: Any = None, *, source: Any, groups: Any = None) -> float:
        sources, held = to_numpy(source, "source"), _corrected(estimator, X, source)
        people = np.arange(len(held)) if groups is None else to_numpy(groups, "groups")
        table = Table(held, source=sources, participant=people)
        names, units = np.unique(table.participant, return_inverse=True)
        if len(names) < 4 or len(table.sources) < 2:
            raise ValueError(
                f"The held-out rows have {len(names)} participants and {len(table.sources)} sources; S needs "
                "four participants (two to train readers, two to score) and two sources. Use fewer folds."
            )
        design, codes = find_design(table), np.searchsorted(table.sources, table.source)
        half = self._halves(design, names)[units]
        areas = []
        for train, score in ((half, ~half), (~half, half)):
            read = run_readers(held[train], table.source[train], held[score], **self.bank)
            scores, who = np.stack([*read.values()], axis=1), np.unique(units[score], return_inverse=True)[1]
            if design.within:
                each = within_auroc(scores, codes[score], who)
            else:
                each = between_auroc(scores, codes[score], who, np.zeros(len(who), np.int64))
            areas.append(np.nanmean(each, axis=0))
        S = float(np.mean(areas, axis=0).max())
        return 1.0 - S if self.greater_is_better else S

    def _halves(self, design: Any, names: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the participants who train readers first (half of each stratum)."""
        rng, first = np.random.default_rng(self.random_state), np.zeros(len(names), bool)
        strata = np.array([design.stratum[name] for name in names.tolist()])
        dealt = 0
        for stratum in np.unique(strata):
            members = rng.permutation(np.flatnonzero(strata == stratum))
            first[members[(np.arange(len(members)) + dealt) % 2 == 0]] = True
            dealt += len(members)
        return first


def _corrected(estimator: Any, X: Any, source: Any) -> NDArray[Any]:
    """Return rows corrected by a fitted estimator or pipeline; tokens by their mean."""
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    told = getattr(getattr(last, "tags", None), "source_blind", True) is False
    corrected = to_numpy(estimator.transform(X, source=source) if told else estimator.transform(X))
    return np.asarray(token_mean(corrected)) if corrected.ndim == 3 else corrected

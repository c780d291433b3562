"""Paired measurements: ids, labels, contrasts and the effects they give."""

from dataclasses import replace

import numpy as np
import pandas as pd

from factories import several_sources
from mgpa import ClosedFormMGPA


def test_pair_ids_with_gaps_as_pandas_makes_them():
    data = several_sources(K=2)
    ids = data.pair_id
    gaps = pd.Series(ids).where(ids >= 0)
    assert gaps.dtype == float
    expected = data.fit(ClosedFormMGPA()).transform(data.X)
    with_gaps = replace(data, pair_id=gaps).fit(ClosedFormMGPA())
    np.testing.assert_array_equal(with_gaps.transform(data.X), expected)

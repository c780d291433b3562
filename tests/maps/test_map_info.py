"""What a map says of its fit: features that never varied."""

from dataclasses import replace

import numpy as np
import pytest

from factories import random_affine_map, random_routed_map, random_staged_map
from mgpa.errors import MapError
from mgpa.maps import AffineMap, MapInfo
from mgpa.maps.io.mapfile import map_digest


def test_all_features_vary_but_those_that_are_constant():
    np.testing.assert_array_equal(random_affine_map(d=4).varies, [True] * 4)
    m = AffineMap.identity(4, info=MapInfo(constant_features=(3, 1)))
    assert m.varies.dtype == bool
    np.testing.assert_array_equal(m.varies, [True, False, True, False])
    assert "4; 2 constant in the fit" in m.summary()


def test_maps_made_of_a_map_know_its_constant_features():
    staged, routed = (
        replace(m, info=replace(m.info, constant_features=(2,)))
        for m in (random_staged_map(), random_routed_map())
    )
    for m in (staged[:2], staged.prefix(3, 0.5), staged.with_strength(0.5), staged.with_notes("x")):
        assert m.info.constant_features == (2,)
    assert np.flatnonzero(~routed.for_source("wet").varies) == [2]


@pytest.mark.parametrize("wrong", [(4,), (-1,), (1, 1), (1.0,), (True,), ("1",), (None,), (np.int64(1),)])
def test_positions_that_name_no_feature_or_one_twice_are_refused(wrong):
    with pytest.raises(MapError, match=r"constant_features are .*expected distinct integers \(int\), 0 to 3"):
        AffineMap.identity(4, info=MapInfo(constant_features=wrong))


def test_the_checksum_tells_maps_apart_whose_movement_is_measured_on_other_features():
    plain = AffineMap.identity(4)
    assert map_digest(plain) == map_digest(plain.with_notes("x"))
    assert map_digest(plain) != map_digest(replace(plain, info=MapInfo(constant_features=(1,))))


def test_a_notebook_shows_what_the_summary_says_and_names_as_text():
    m = AffineMap.identity(4, info=MapInfo(method="Mine", notes="<script>alert(1)</script> & \x1b[2J"))
    shown = m._repr_html_()
    assert "<th>method</th><td>Mine</td>" in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; \\x1b[2J" in shown
    assert "<script" not in shown
    for line in m.summary().splitlines()[1:]:
        assert f"<th>{line.split()[0]}" in shown

"""Embedding tables refuse what would spoil an audit, and roles never share a person."""

from dataclasses import replace

import numpy as np
import pytest

from mgpa.audit import run
from mgpa.tables import Table, TableError, assign_roles


def small(**changes):
    columns = {
        "X": np.arange(12.0).reshape(6, 2),
        "source": ["a", "b"] * 3,
        "participant": [1, 1, 2, 2, 3, 3],
        "role": ["FIT", "FIT", "HEAD", "HEAD", "EVAL", "EVAL"],
        "label": [0, 0, 1, 1, 0, 0],
        "pair_id": [0, 0, 1, 1, 2, 2],
    }
    return Table(**(columns | changes))


def test_rows_and_views():
    table = small()
    assert len(table) == 6
    assert table.sources.tolist() == ["a", "b"]
    head = table.rows("HEAD")
    assert head.participant.tolist() == ["2", "2"]
    assert np.array_equal(head.X, table.X[2:4])
    first, second = table.paired_views()
    assert table.source[first].tolist() == ["a"] * 3
    assert np.array_equal(table.pair_id[first], table.pair_id[second])
    assert small(pair_id=None).paired_views() is None
    assert small(pair_id=[-1] * 6).paired_views() is None
    assert small(role=["fit"] * 6).role.tolist() == ["FIT"] * 6


def test_the_digest_sees_every_column():
    base = small().digest
    assert small().digest == base
    for changes in (
        {"X": np.arange(12.0).reshape(6, 2) + 1e-12},
        {"source": ["b", "a"] * 3},
        {"label": None},
        {"pair_id": None},
        {"participant": [1, 1, 2, 2, 4, 4]},
        {"X": np.arange(12.0, dtype=np.float32).reshape(6, 2)},
    ):
        assert small(**changes).digest != base


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"role": ["FIT", "FIT", "HEAD", "HEAD", "EVAL", "TEST"]}, r"role has \['TEST'\] \(first: row 5\)"),
        ({"participant": [1, 1, 2, 2, 2, 3]}, r"'2' has rows in EVAL and in HEAD \(rows 4 and 2"),
        (
            {"source": ["a", "a"] * 3},
            "pair_id 0 occurs more than once .* rows 0 and 1.*ids restart .* PARTICIPANT.ID to",
        ),
        ({"source": ["a", "b"] * 2}, "source has shape"),
        ({"label": [0, 0, 1, 1, 0, None]}, "label is missing"),
        ({"X": np.full((6, 2), np.nan)}, "NaN or infinite values in 6 of 6 rows"),
        ({"X": np.zeros(6)}, "expected embeddings"),
    ],
)
def test_bad_tables_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@pytest.mark.parametrize("n_people", [4, 5, 7, 10, 41])
def test_roles_are_disjoint_seeded_and_near_their_shares(n_people):
    person = np.random.default_rng(0).permutation(np.repeat(np.arange(n_people), 3))
    role = assign_roles(person, random_state=3)
    assert np.array_equal(role, assign_roles(person, random_state=3))
    owners = {p: set(role[person == p]) for p in range(n_people)}
    assert all(len(roles) == 1 for roles in owners.values())
    counts = {r: sum(r in roles for roles in owners.values()) for r in ("FIT", "VAL", "HEAD", "EVAL")}
    assert min(counts.values()) >= 1
    assert abs(counts["FIT"] - 0.4 * n_people) <= 2
    if n_people == 41:
        assert not np.array_equal(role, assign_roles(person, random_state=4))


def test_roles_are_stratified():
    person = np.arange(40)
    old = person < 20
    role = assign_roles(person, stratify=old, random_state=0)
    for name, share in (("FIT", 8), ("VAL", 4), ("HEAD", 4), ("EVAL", 4)):
        assert (role[old] == name).sum() == share
        assert (role[~old] == name).sum() == share


def test_only_matched_ids_make_pairs():
    with pytest.raises(TableError, match=r"2 pair ids have a single row .* \(first: 1, row 3\)"):
        small(pair_id=[0, 0, -1, 1, 2, -1]).require_pairs()
    with pytest.raises(TableError, match="lacks pair_id"):
        small(pair_id=None).require_pairs()
    assert small().require_pairs().pair_id.tolist() == [0, 0, 1, 1, 2, 2]


def test_shares_need_not_add_up_and_a_role_without_a_share_gets_nobody():
    with pytest.raises(ValueError, match="3 participants cannot fill the 4 roles"):
        assign_roles([1, 2, 3])
    with pytest.raises(ValueError, match="constant within a participant"):
        assign_roles([1, 1, 2, 3, 4], stratify=[0, 1, 0, 0, 0])
    person = np.arange(12)
    role = assign_roles(person, {"FIT": 0.5, "EVAL": 0.25, "VAL": 0.0})
    assert {name: int((role == name).sum()) for name in np.unique(role)} == {"FIT": 8, "EVAL": 4}
    assert set(assign_roles([1, 2], {"FIT": 0.1, "EVAL": 0.9})) == {"FIT", "EVAL"}  # each has a role
    for wrong in ({}, {"FIT": 0.0, "EVAL": 0.0}, {"FIT": 1.0, "EVAL": -0.5}):
        with pytest.raises(ValueError, match="shares must be non-negative and not all zero"):
            assign_roles(person, wrong)


def test_views_of_one_event_share_participant_and_label():
    with pytest.raises(ValueError, match=r"pair_id 1 has rows of participant \['2', '9'\] \(rows 2, 3\)"):
        small(participant=[1, 1, 2, 9, 3, 3], role=None)
    with pytest.raises(ValueError, match=r"pair_id 2 has rows of label \[0, 5\] \(rows 4, 5\)"):
        small(label=[0, 0, 1, 1, 0, 5])
    unpaired = small(label=[0, 7, 1, 1, 0, 0], pair_id=[-1, -1, 1, 1, 2, 2])  # these rows may differ
    assert unpaired.label[1] == 7


def test_only_embeddings_are_required():
    bare = Table(np.ones((3, 2)))
    assert bare.columns == {}
    assert bare.source is bare.participant is bare.role is None
    assert bare.paired_views() is None
    assert len(bare.take([0, 2])) == 2
    with pytest.raises(TableError, match="The table lacks source, role; it has no columns but X"):
        bare.require("source", "role")
    with pytest.raises(TableError, match="The table lacks role; it has label, age"):
        Table(np.ones((1, 2)), label=[1], other={"age": [3]}).rows("FIT")
    with pytest.raises(
        TableError, match=r"lacks participant; it has .*rename the column to both: pair_id\+participant\."
    ):
        run(small(participant=None))
    assert small().require("source", "label").source.tolist() == ["a", "b"] * 3


@pytest.mark.parametrize("names", [("p1", "p1 "), (" p1", "p1"), ("Zo\u00e9", "Zoe\u0301")])
def test_one_person_under_names_that_read_alike_is_refused(names):
    with pytest.raises(ValueError, match=r"^participant has .* which look alike; use one spelling\.$"):
        Table(np.ones((2, 2)), participant=names, role=["FIT", "EVAL"])
    assert len(Table(np.ones((0, 2)), participant=[])) == 0


@pytest.mark.parametrize("column", ["source", "participant", "label", "pair_id"])
@pytest.mark.parametrize("text", ["nan", "<NA>", "NaT", "None", ""])
def test_a_missing_value_as_text_is_no_label(column, text):
    values = {column: np.array(["a", text, "b", text])}
    if (column, text) == ("pair_id", ""):
        assert Table(np.ones((4, 2)), **values).pair_id.tolist() == ["a", "", "b", ""]
        return
    with pytest.raises(ValueError, match=rf"{column} is '{text}', a missing value as text, in 2 of 4 rows"):
        Table(np.ones((4, 2)), **values)


@pytest.mark.parametrize(("name", "proposed"), [("subject", "NAME"), ("Participant", "Participant")])
def test_no_column_is_proposed_for_a_missing_one_but_by_its_very_name(name, proposed):
    with pytest.raises(TableError, match=rf"name, pass rename=\{{'{proposed}': 'participant'\}}\.$"):
        Table(np.ones((1, 2)), other={"age": [31], name: ["s1"]}).require("participant")


def test_other_columns_follow_their_rows():
    table = small(
        other={"age": np.arange(6, dtype="u1"), "snr": [1, np.nan, 2, 3, 4, 5], "on": ["2024-01-02"] * 6}
    )
    head = table.rows("HEAD")
    assert head.other["age"].tolist() == [2, 3]
    assert head.other["age"].dtype == np.uint8
    assert np.isnan(table.take([1]).other["snr"][0])
    assert table.digest == small().digest
    dates = Table(np.ones((2, 1)), other={"on": np.array(["2024-01-02", "2024-01-03"], "M8[D]")})
    assert dates.other["on"].tolist() == ["2024-01-02", "2024-01-03"]
    both = Table.concatenate([head, table.rows("EVAL")])
    assert both.other["age"].tolist() == [2, 3, 4, 5]
    named = [replace(part, info={"from": name}) for part, name in ((head, "a"), (table.rows("EVAL"), "b"))]
    assert Table.concatenate(named).info == {"from": "a"}
    assert len(Table.concatenate([head])) == 2
    with pytest.raises(
        TableError, match=r"Table 1 differs from the first in age: missing instead of unsigned"
    ):
        Table.concatenate([head, small()])
    with pytest.raises(TableError, match=r"differs from the first in age: text instead of unsigned"):
        Table.concatenate([head, head.with_columns(age=["2", "3"])])
    with pytest.raises(TableError, match="No tables"):
        Table.concatenate([])


def test_setting_columns_drops_no_others():
    table = Table(
        np.zeros((4, 2)),
        source=list("abab"),
        pair_id=[0, 0, 1, 1],
        info={"encoder": {"name": "x"}},
        other={"age": [3] * 4},
    )
    made = table.with_columns(participant=["s1", "s1", "s2", "s2"], site="Ulm", pair_id=None)
    assert set(made.columns) == {"source", "participant", "age", "site"}
    assert made.other["site"].tolist() == ["Ulm"] * 4
    assert made.info == {"encoder": {"name": "x"}}
    assert set(table.columns) == {"source", "pair_id", "age"}
    with pytest.raises(ValueError, match="participant has shape"):
        table.with_columns(participant=["s1"])
    with pytest.raises(ValueError, match="Participant 's1' has rows in EVAL and in FIT"):
        made.with_columns(role=["FIT", "EVAL", "FIT", "FIT"])


def test_equal_columns_have_equal_bytes():
    wide = small(
        source=np.array(["a", "b"] * 3, dtype="U40"), label=np.array([0, 0, 1, 1, 0, 0], dtype=">i8")
    )
    assert wide.digest == small().digest
    assert small(source=["a", "b"] * 2 + ["a", "long"]).rows("FIT").source.dtype == "<U1"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"X": [1] * 6}, "other has X, a reserved name"),
        ({"label": [1] * 6}, "other has label"),
        ({"age": [1] * 5}, r"age has shape \(5,\)"),
        ({"age": np.ones((6, 2))}, r"age has shape \(6, 2\)"),
        ({"note": ["a", None] * 3}, r"note is missing \(None or NaN\) in 3 of 6 rows \(first: row 1\)"),
        ({"z": np.ones(6, complex)}, "z has dtype complex128"),
        ({3: [1] * 6}, "a column named 3; names are printable"),
    ],
)
def test_bad_other_columns_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        small(other=other)


def test_rows_of_a_role_are_found_however_it_is_written_and_no_role_is_an_error():
    table = Table(np.zeros((3, 2)), participant=["a", "b", "c"], role=["FIT", "EVAL", "fit"])
    assert table.rows("fit").participant.tolist() == table.rows("FIT").participant.tolist() == ["a", "c"]
    with pytest.raises(ValueError, match=r"role has \['TRAIN'\]"):
        table.rows("train")

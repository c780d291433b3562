"""Studies are checked before anything is computed, and what is wrong is said with its place."""

import re
from pathlib import Path

import pytest

from mgpa.paper import StudyError, load_study
from small_studies import RECORDED, TINY, written


def test_a_study_says_what_it_said(tmp_path):
    study = load_study(written(tmp_path))
    assert list(study.methods) == ["LEACE_50 %", "CF", "Iter"]
    assert study.data.table == tmp_path / "rows.npz"
    assert study.gate.rank == 2
    assert study.methods["Iter"].budget == 0.05
    assert not study.simulated
    assert load_study(tmp_path / "my.toml", gate={"rank": 3}).gate.rank == 3
    assert load_study(tmp_path / "my.toml", recordings="other.npz").data.table == Path("other.npz")
    one_way = "[[contrasts]]\na = 'CF'\nmetrics = ['T_f dry → wet']\n"
    assert load_study(written(tmp_path, f"{TINY}\n{one_way}")).contrasts[2].metrics == ("T_f dry → wet",)


def test_overlays_replace_values_and_leave_methods_out(tmp_path):
    overlay = (
        "[quick]\nseeds = [1]\n[quick.methods]\nIter = false\n'LEACE_50 %' = false\n[quick.gate]\nrank = 1\n"
    )
    path = written(tmp_path, TINY + overlay)
    whole, quick = load_study(path), load_study(path, quick=True)
    assert (whole.seeds, quick.seeds) == ((17,), (1,))
    assert (whole.gate.rank, quick.gate.rank) == (2, 1)
    assert list(quick.methods) == ["CF"]
    assert [(c.a, c.b) for c in quick.contrasts] == [("CF", "identity")]
    assert len(whole.contrasts) == 2


def test_another_encoder_does_not_keep_the_parameters_of_the_first(tmp_path):
    text = RECORDED.replace('name = "temporal_bins"', 'name = "temporal_bins"\nparameters = { width = 0.1 }')
    text += '[simulated.encoder]\nname = "band_power"\n'
    assert load_study(written(tmp_path, text)).encoder.parameters == {}
    assert load_study(tmp_path / "my.toml", recordings=tmp_path).encoder.parameters == {"width": 0.1}


WRONG = {
    "[gate]\nrnk = 2": r"gate\.rnk: unknown setting",
    "[roles.people]\nTRAIN = ['a']": r"roles\.people\.TRAIN.*: Input should be 'FIT', 'VAL', 'HEAD'",
    "[roles]\nrotations = [1]\npeople = { FIT = ['a'] }": r"roles: give people or rotations",
    "[[contrasts]]\na = 'MGPA'": r"contrasts name 'MGPA'; the methods are CF, Iter, LEACE_50 %, identity",
    "[[contrasts]]\nb = 'CF'": r"contrasts\.2\.a: is missing",
    "[[contrasts]]\na = 'CF'\nmetrics = ['T']": r"contrasts\.2: No metric 'T'\. Metrics: S, home, .*T_f",
    "[[contrasts]]\na = 'CF'\npaper = { S = [0.1, 0.0] }": r"contrasts\.2\.paper\.S: .*3 items",
    "[methods.R]\nmethod = 'iterative_mgpa'\ngate = 'random'": r"methods\.R: gate_seeds is required .*random",
    "[methods.R]\nmethod = 'iterative_mgpa'\ngate_seeds = [1]": r"methods\.R: .*and only there",
    "[methods.R]\nmethod = 'iterative_mgpa'\ngate = 'pca'\ntokens = 'joint'": "leave tokens out",
    "[methods.R]\nmethod = 'iterative_mgpa'\ngate = 'best'": r"methods\.R\.gate: .*'measurement'.*got 'best'",
    "[methods.R]\nmethod = 'leace'\ngrid = { ridge = [0, 1] }": r"methods\.R\.grid: only \[reuse\]",
    "[methods.identity]\nmethod = 'identity'": r"'identity' is always measured",
    "[encoder]\nname = 'band_power'": r"a table holds embeddings already; leave \[encoder\] and",
    "[reuse]\ndevelopment = 'a'\ntasks = ['b']": r"reuse: development is 'a', which is not among tasks",
    "[reuse]\ndevelopment = 'a'\ntasks = ['a']": r"reuse\.tasks are a; the data have",
    "[readers]\nrestarts = 'many'": r"readers\.restarts: .*integer.*got 'many'",
}


@pytest.mark.parametrize("extra", WRONG)
def test_what_is_wrong_is_said_in_one_line_with_its_place(extra, tmp_path):
    section = extra.partition("\n")[0]
    text = (
        TINY if section.startswith("[[") else re.sub(rf"(?m)^{re.escape(section)}\n(?:[^\[].*\n)*", "", TINY)
    )
    path = written(tmp_path, f"{text}\n{extra}\n")
    with pytest.raises(StudyError, match=WRONG[extra]) as error:
        load_study(path)
    first, *lines = str(error.value).splitlines()
    assert first == f"{path} is not a study that can be run:"
    assert len(lines) == 1


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(StudyError, match=r"(?s)name: is missing.*title: is missing.*methods: is missing"):
        load_study(written(tmp_path, "[data]\nkind = 'table'\ntable = 'rows.npz'\n"))
    without = RECORDED.replace('[encoder]\nname = "temporal_bins"\n', "")
    with pytest.raises(StudyError, match=r"the study: recordings need an \[encoder\]"):
        load_study(written(tmp_path, without))
    for change, said in (
        ({"kind": "table"}, "data: kind = 'table' needs table = 'file.parquet'"),
        ({"tasks": []}, r"data: neuroscan_flex needs tasks, as tasks = \['N170'\]"),
        ({"tasks": ["N170", "oddball_active"]}, r"only \[reuse\] has several recorded tasks$"),
    ):
        with pytest.raises(StudyError, match=said):
            load_study(written(tmp_path, RECORDED), data=change)


def test_what_is_no_study_is_said(tmp_path):
    with pytest.raises(StudyError, match=r"is not TOML: .*line 2"):
        load_study(written(tmp_path, "name = 'a'\ntitle = \n"))
    with pytest.raises(StudyError, match="No study 'controled'"):
        load_study("controled")
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe4'")
    for name, reason in (("none", "No such file or directory"), ("latin", "invalid continuation byte")):
        with pytest.raises(StudyError, match=rf"{name}\.toml cannot be read as text in UTF-8: .*{reason}"):
            load_study(tmp_path / f"{name}.toml")
    with pytest.raises(StudyError, match="is not TOML"):
        load_study(written(tmp_path, "a = " + "[" * 100_000))
    for key in ("data", "encoder", "methods", "quick", "simulated"):
        with pytest.raises(StudyError, match=rf"my\.toml: {key} is 3; it must be a section, \[{key}\]"):
            load_study(written(tmp_path, f"name = 'a'\ntitle = 'b'\n{key} = 3\n"))


def test_everything_the_template_comments_out_is_known(tmp_path):
    """Each commented setting of the template, without its mark, is one that studies have."""
    from importlib.resources import files

    text = files("mgpa.paper.studies").joinpath("template.toml").read_text("utf-8")
    text = text.replace('"embeddings.parquet"', '"rows.npz"')
    # Alternatives to each other, or to the table: one at a time.
    for wanted in ("seed = ", "people = ", "rotations = ", "gamma = ", "components = ", "restarts = "):
        lines, section = [], False
        for line in text.splitlines():
            bare = line.removeprefix("# ")
            if line.startswith("# ["):
                section = wanted in text.partition(line)[2].partition("\n\n")[0]
            lines.append(bare if bare.startswith(wanted) or (section and line.startswith("# [")) else line)
        assert "\n".join(lines) != text
        load_study(written(tmp_path, "\n".join(lines)))

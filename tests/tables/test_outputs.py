"""Output folders: new, empty or ours; only what we wrote is replaced."""

import subprocess
import sys

import pytest

from mgpa._common.files import MARKER, claim
from mgpa.tables import write_table
from simulated import simulated_table


def test_a_folder_of_ours_is_written_again_and_nothing_else_is_touched(tmp_path):
    [table] = claim(tmp_path / "out", "figures/table.csv")
    table.write_text("1")
    notes = tmp_path / "out" / "notes.txt"
    notes.write_text("mine")
    assert claim(tmp_path / "out", "figures/table.csv", "report.html")[0] == table
    with pytest.raises(FileExistsError, match="not written by mgpa"):
        claim(tmp_path / "out", "notes.txt")
    assert notes.read_text() == "mine"


def test_a_foreign_folder_is_refused_and_stays_as_it_is(tmp_path):
    (tmp_path / "table.csv").write_text("mine")
    for names in ([], ["table.csv"], ["report.html"]):
        with pytest.raises(FileExistsError, match="did not write"):
            claim(tmp_path, *names)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["table.csv"]


def test_a_folder_whose_list_was_not_written_yet_is_ours(tmp_path):
    (tmp_path / "study" / "work").mkdir(parents=True)  # as after a kill in between
    assert claim(tmp_path / "study") == []
    (tmp_path / "study" / "work" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"did not write \(work\)"):
        claim(tmp_path / "study")


def test_checking_creates_nothing(tmp_path):
    assert claim(tmp_path / "new") == []
    assert not (tmp_path / "new").exists()


def test_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    claim(tmp_path / "out", "a")
    (tmp_path / "out" / "link").symlink_to(outside)
    (tmp_path / "out" / "file").symlink_to(outside / "x")
    for name in ("link/a", "file", "../a", "/etc/passwd", "a/../../b"):
        with pytest.raises(FileExistsError, match="is outside the output folder"):
            claim(tmp_path / "out", name)


def test_two_processes_add_to_one_list(tmp_path):
    claim(tmp_path / "out", "a")
    claim(tmp_path / "out", "b", "b")
    assert (tmp_path / "out" / MARKER).read_text() == "a\nb\n"


@pytest.mark.slow
def test_two_audits_into_one_folder_at_once_leave_one_whole_result(tmp_path):
    write_table(simulated_table(n_people=12), tmp_path / "t.npz")
    command = [sys.executable, "-m", "mgpa", "audit", "t.npz", "--quick", "--methods", "leace", "--out"]
    subprocess.run([*command, "alone"], cwd=tmp_path, check=True, capture_output=True)
    both = [subprocess.Popen([*command, "both"], cwd=tmp_path, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate()[1].decode() for process in both]
    assert 0 in [process.returncode for process in both], said
    assert all(process.returncode in (0, 2) for process in both), said
    assert "Traceback" not in "".join(said)
    for name in ("table.csv", "figures/tradeoff.svg"):
        assert (tmp_path / "both" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    listed = (tmp_path / "both" / MARKER).read_text().splitlines()
    assert {"report.html", "table.csv", "figures/tradeoff.svg"} <= set(listed)

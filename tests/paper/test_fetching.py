"""Public files: how repositories list them, and how they arrive, whole, checked, and only where they may."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from server import as_json, md5, serve_figshare, serve_osf_components, sha256

pytest.importorskip("pooch")

from mgpa.errors import DownloadError
from mgpa.paper.datasets import catalogue, neuroscan_flex
from mgpa.paper.datasets.catalogue import (
    DATASETS,
    RemoteFile,
    dataset_files,
    fetch_files,
    listing,
    verify_dataset,
)
from mgpa.paper.encoder import EEGPT_WEIGHTS


@pytest.fixture(autouse=True)
def once(monkeypatch):
    monkeypatch.setattr(catalogue, "RETRIES", 0)


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


SALINE = "Emotiv EPOC Flex Saline Validation"
RAW = {
    "Saline Raw Data/N170/behav/1013_N170.csv": b"csv",
    "Saline Raw Data/N170/eeg/emotiv/1013_N170.edf": b"edf",
    "Saline Raw Data/oddball_active/behav/1013_P300.csv": b"other",
    "Saline Raw Data/resting/1013_rest.edf": b"rest",
}
NODES = {
    "zj3f5": ("A Validation of Emotiv Flex", {"readme.txt": b"hello"}, ["saln1", "gel11"]),
    "saln1": (SALINE, RAW, ["deep1"]),
    "deep1": ("scripts", {"code/read.m": b"code"}, []),
    "gel11": ("Gel / Validation", {"Gel Raw Data/N170/behav/1013_N170.csv": b"gel"}, []),
}


def test_components_of_an_osf_project_are_followed_page_by_page(server, monkeypatch):
    monkeypatch.setenv("MGPA_OSF_API", serve_osf_components(server, NODES))
    assert {file.name: file.size for file in listing("osf:zj3f5")} == {
        **{f"{SALINE}/{name}": len(content) for name, content in RAW.items()},
        f"{SALINE}/scripts/code/read.m": 4,
        "Gel - Validation/Gel Raw Data/N170/behav/1013_N170.csv": 3,
        "readme.txt": 5,
    }


@pytest.mark.parametrize("is_component", [True, False])
def test_of_the_flex_project_only_what_is_read_is_fetched(server, monkeypatch, tmp_path, is_component):
    flat = {"zj3f5": ("Flex", {f"{SALINE}/{path}": content for path, content in RAW.items()}, [])}
    monkeypatch.setenv("MGPA_OSF_API", serve_osf_components(server, NODES if is_component else flat))
    files = dataset_files("neuroscan-flex")
    assert fetch_files(files, tmp_path) == 3
    assert sorted(contents(tmp_path).values()) == [b"csv", b"edf", b"other"]
    assert set(neuroscan_flex.find(tmp_path)) == {("1013", "N170"), ("1013", "oddball_active")}


ARTICLE = {"S001.mat": b"first", "S002.mat": os.urandom(300_000), "Subjects_Information.mat": b"who"}


@pytest.fixture
def article(server, monkeypatch):
    """The pinned version of the article, as small as it is here."""
    pinned = len(ARTICLE), sum(map(len, ARTICLE.values()))
    monkeypatch.setitem(DATASETS["wearable_ssvep"], "pinned", pinned)
    monkeypatch.setenv("MGPA_FIGSHARE_API", serve_figshare(server, ARTICLE))


def test_identifiers_are_pinned():
    assert DATASETS["wearable_ssvep"]["address"] == "figshare:13560281.v4"
    assert DATASETS["wearable_ssvep"]["pinned"] == (106, 973_933_622)
    assert DATASETS["neuroscan_flex"]["address"] == "osf:zj3f5"
    assert DATASETS["eegpt"]["address"] == EEGPT_WEIGHTS


def test_a_version_of_a_figshare_article_is_fetched_checked_and_kept(server, article, tmp_path):
    files = dataset_files("wearable-ssvep")
    assert server.requests == [("/fs/articles/13560281/versions/4", None)]
    assert [(f.name, f.checksum) for f in files] == [(n, f"md5:{md5(ARTICLE[n])}") for n in sorted(ARTICLE)]
    assert fetch_files(files, tmp_path) == 3
    assert contents(tmp_path) == ARTICLE
    n = len(server.requests)
    assert fetch_files(files, tmp_path) == 0
    assert len(server.requests) == n


def test_a_listing_of_other_files_than_the_pinned_ones_is_refused(server, article):
    serve_figshare(server, ARTICLE | {"S003.mat": b"new"})
    with pytest.raises(DownloadError, match=r"v4 lists 4 files of 300011 bytes; expected 3 of 300008"):
        dataset_files("wearable_ssvep")


def test_weights_are_fetched_like_data_and_verified(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    small = replace(EEGPT_WEIGHTS, checksum=f"sha256:{sha256(b'weights')}", size=7)
    monkeypatch.setitem(DATASETS["eegpt"], "address", small)
    server.files[small.url.removeprefix("https://huggingface.co")] = b"weights"
    assert not verify_dataset("eegpt", tmp_path).complete
    assert fetch_files(dataset_files("eegpt"), tmp_path) == 1
    assert verify_dataset("eegpt", tmp_path).complete
    (tmp_path / "model.safetensors").write_bytes(b"another")
    with pytest.raises(DownloadError, match="differs from the published file"):
        verify_dataset("eegpt", tmp_path)


# What must never happen


def remote(server, content=b"right", name="x"):
    server.files["/x"] = content
    return RemoteFile(name, f"{server.url}/x", len(content), f"sha256:{sha256(content)}")


def test_files_that_it_did_not_write_are_never_replaced(server, tmp_path):
    (tmp_path / "x").write_bytes(b"mine!")
    with pytest.raises(DownloadError, match="differs from the published file; move it away"):
        fetch_files([remote(server)], tmp_path)
    assert contents(tmp_path) == {"x": b"mine!"}
    assert server.requests == []


def test_a_file_that_is_not_what_was_announced_is_not_kept(server, tmp_path):
    wrong = replace(remote(server), checksum=f"md5:{'0' * 32}")
    with pytest.raises(DownloadError, match=r"MD5 hash .* does not match the known hash.*run it again"):
        fetch_files([wrong], tmp_path)
    assert contents(tmp_path) == {}


def test_a_server_that_stalls_is_left(server, tmp_path, monkeypatch):
    file = remote(server, bytes(1_000_000))
    server.go.clear()
    monkeypatch.setattr(catalogue, "TIMEOUT", 0.3)
    with pytest.raises(DownloadError, match="timed out"):
        fetch_files([file], tmp_path)
    assert contents(tmp_path) == {}


def test_a_lost_connection_is_tried_again(server, tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda _: None)
    file = remote(server, bytes(1_000_000))
    server.break_after = 300_000
    fetch_files([file], tmp_path)
    assert contents(tmp_path) == {"x": bytes(1_000_000)}


def test_a_full_disk_is_told_before_anything_is_fetched(server, tmp_path):
    with pytest.raises(DownloadError, match=r"of free space; the download needs 1000000\.0 GB"):
        fetch_files([replace(remote(server), size=10**15)], tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match="is a file; name a folder"):
        fetch_files([], tmp_path / "file")


def test_a_killed_fetch_is_run_again(server, article, tmp_path):
    code = (
        "from mgpa.paper.datasets.catalogue import fetch_files, listing; "
        "fetch_files(listing('figshare:13560281.v4'), 'o')"
    )
    server.go.clear()
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    for _ in range(3):  # the list stops half way too: let it and the first file pass, and stop the second
        assert server.half_way.wait(30)
        server.half_way.clear()
        server.go.set()
        server.go.clear()
    process.kill()
    process.wait()
    server.go.set()
    assert "S002.mat" not in os.listdir(tmp_path / "o")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert contents(tmp_path / "o").items() >= ARTICLE.items()
    assert [path for path, _ in server.requests].count("/storage/S001.mat?signature=1") == 1


# Repositories that answer oddly


@pytest.fixture
def answer(server, monkeypatch):
    """Return a function that sets what the repository answers."""
    monkeypatch.setenv("MGPA_FIGSHARE_API", f"{server.url}/fs/")

    def set_answer(content):
        server.files["/fs/articles/9/versions/1"] = (
            content if isinstance(content, bytes) else as_json(content)
        )

    return set_answer


ENTRY = {"name": "a b.mat", "size": 5, "computed_md5": md5(b"x"), "download_url": "http://a/b"}


@pytest.mark.parametrize(
    "name",
    [
        *("../x.mat", "/etc/x.mat", "a/../../x", "..\\x", "D:x.exe", "x.", "a /x", "a//x", "./x"),
        *("x?.mat", "x\x1b[2J.mat", "x\n.mat", "", ".bashrc", 3, None),
    ],
)
def test_names_that_are_no_file_inside_the_folder_on_every_system_are_refused(answer, name):
    answer({"files": [ENTRY | {"name": name}]})
    with pytest.raises(DownloadError, match=r"is not a safe file name|unexpected answer"):
        listing("figshare:9.v1")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"null", b"[]", b'{"files": {"a": 1}}', {"files": [ENTRY | {"size": None}]}]
)
def test_json_of_another_shape_is_an_error(answer, content):
    answer(content)
    with pytest.raises(DownloadError, match="unexpected answer"):
        listing("figshare:9.v1")


def test_lists_that_never_end_are_left(server, monkeypatch):
    nodes = {"abcde": ("a", {"x": b"x"}, ["fghij"]), "fghij": ("b", {"y": b"y"}, ["abcde"])}
    monkeypatch.setenv("MGPA_OSF_API", serve_osf_components(server, nodes))
    with pytest.raises(DownloadError, match="endless list of pages"):
        listing("osf:abcde")


def test_a_repository_without_the_files_is_explained(answer):
    with pytest.raises(DownloadError, match=r"404 .*Check the address"):
        listing("figshare:9.v1")
    answer({"files": []})
    with pytest.raises(DownloadError, match="has no files"):
        listing("figshare:9.v1")
    with pytest.raises(ValueError, match=r"expected osf:abcde or figshare:12345\.v1"):
        listing("figshare:1")

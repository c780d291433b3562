"""Files in public repositories: how they are listed, and what is no list of them."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from server import (
    FILES,
    as_json,
    killed_half_way,
    md5,
    serve_figshare,
    serve_manifest,
    serve_osf,
    serve_osf_components,
    sha256,
)

pytest.importorskip("pooch")

from mgpa.eeg.datasets import catalogue, listings
from mgpa.eeg.datasets.catalogue import DATASETS, dataset_files, fetch_files, find_dataset, remote_files
from mgpa.eeg.datasets.download import DownloadError
from mgpa.eeg.datasets.listings import RemoteFile, listing


def test_an_osf_project_is_listed_with_its_folders_and_pages(server):
    found = listing("osf:ab3de", api=serve_osf(server))
    assert [file.name for file in found] == sorted(FILES)
    for file in found:
        assert file.size == len(FILES[file.name])
        assert (file.sha256, file.md5) == (sha256(FILES[file.name]), md5(FILES[file.name]))


def test_a_figshare_article_is_listed_page_by_page(server, monkeypatch):
    entries = [
        {"name": f"S{i:03}.mat", "size": 5, "computed_md5": md5(b"hello"), "download_url": "http://a/b"}
        for i in range(130)
    ]
    for page in (1, 2):
        part = entries[(page - 1) * 100 : page * 100]
        server.files[f"/fs/articles/77/files?page={page}&page_size=100"] = as_json(part)
    monkeypatch.setenv("MGPA_FIGSHARE_API", f"{server.url}/fs/")
    found = listing("figshare:77")
    assert [file.name for file in found] == [entry["name"] for entry in entries]
    assert found[7] == RemoteFile("S007.mat", "http://a/b", 5, md5=md5(b"hello"))


SALINE, GEL = "Emotiv EPOC Flex Saline Validation", "Gel / Validation"
NODES = {
    "zj3f5": ("A Validation of Emotiv Flex", {"readme.txt": b"hello"}, ["saln1", "gel11"]),
    "saln1": (
        SALINE,
        {
            "Saline Raw Data/N170/behav/1013_N170.csv": b"csv",
            "Saline Raw Data/N170/eeg/emotiv/1013_N170.edf": b"edf",
            "Saline Raw Data/oddball_active/behav/1013_P300.csv": b"other",
            "Saline Raw Data/resting/1013_rest.edf": b"rest",
        },
        ["deep1"],
    ),
    "deep1": ("scripts", {"code/read.m": b"code"}, []),
    "gel11": (GEL, {"Gel Raw Data/N170/behav/1013_N170.csv": b"gel"}, []),
}


def test_components_of_an_osf_project_are_followed_page_by_page(server):
    listed = listing("osf:zj3f5", api=serve_osf_components(server, NODES))
    assert [file.name for file in listed] == [
        f"{SALINE}/Saline Raw Data/N170/behav/1013_N170.csv",
        f"{SALINE}/Saline Raw Data/N170/eeg/emotiv/1013_N170.edf",
        f"{SALINE}/Saline Raw Data/oddball_active/behav/1013_P300.csv",
        f"{SALINE}/Saline Raw Data/resting/1013_rest.edf",
        f"{SALINE}/scripts/code/read.m",
        "Gel - Validation/Gel Raw Data/N170/behav/1013_N170.csv",
        "readme.txt",
    ]
    assert [file.size for file in listed] == [3, 3, 5, 4, 4, 3, 5]


def test_of_the_flex_project_only_what_is_read_is_fetched_from_where_it_leads(server, monkeypatch, tmp_path):
    monkeypatch.setenv("MGPA_OSF_API", serve_osf_components(server, NODES))
    files = dataset_files("neuroscan-flex")
    assert [file.name.rpartition("/")[2] for file in files] == [
        *("1013_N170.csv", "1013_N170.edf", "1013_P300.csv"),
    ]
    assert fetch_files(files, tmp_path) == 3
    assert (tmp_path / files[0].name).read_bytes() == b"csv"
    from mgpa.eeg.datasets import neuroscan_flex

    there = neuroscan_flex.find(tmp_path)
    assert set(there) == {("1013", "N170"), ("1013", "oddball_active")}
    # The same folder, where the part is a folder of the project and not a component.
    flat = {
        "zj3f5": ("Flex", {f"{SALINE}/{path}": content for path, content in NODES["saln1"][1].items()}, [])
    }
    monkeypatch.setenv("MGPA_OSF_API", serve_osf_components(server, flat))
    assert [file.name for file in dataset_files("neuroscan_flex")] == [file.name for file in files]


BIG = np.random.default_rng(1).bytes(3_000_000)
ARTICLE = {"S001.mat": b"first", "S002.mat": BIG, "Subjects_Information.mat": b"who"}


@pytest.fixture
def article(server, monkeypatch):
    """The pinned version of the article, as small as it is here."""
    size = sum(map(len, ARTICLE.values()))
    pinned = replace(DATASETS["wearable_ssvep"], n_files=len(ARTICLE), n_bytes=size)
    monkeypatch.setitem(DATASETS, "wearable_ssvep", pinned)
    monkeypatch.setenv("MGPA_FIGSHARE_API", serve_figshare(server, ARTICLE))


def test_identifiers_are_pinned():
    assert DATASETS["wearable_ssvep"].address == "figshare:13560281.v4"
    assert (DATASETS["wearable_ssvep"].n_files, DATASETS["wearable_ssvep"].n_bytes) == (106, 973_933_622)
    assert DATASETS["neuroscan_flex"].address == "osf:zj3f5"


def test_a_version_of_a_figshare_article_is_fetched_and_checked(server, article, tmp_path):
    files = dataset_files("wearable-ssvep")
    assert server.requests == [("/fs/articles/13560281/versions/4", None)]
    assert [(file.name, file.md5) for file in files] == [
        (name, md5(ARTICLE[name])) for name in sorted(ARTICLE)
    ]
    assert fetch_files(files, tmp_path) == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == ARTICLE


def test_a_listing_of_other_files_than_the_pinned_ones_is_refused(server, article):
    changed = ARTICLE | {"S003.mat": b"new"}
    serve_figshare(server, changed)
    with pytest.raises(DownloadError, match=r"v4 lists 4 files of 3000011 bytes; expected 3 of 3000008"):
        dataset_files("wearable_ssvep")


def test_a_file_that_is_not_what_its_md5_says_is_not_kept(server, article, tmp_path):
    server.files["/storage/S002.mat"] = BIG[:-1] + b"?"
    with pytest.raises(DownloadError, match=r"its md5 is .* instead of"):
        fetch_files(dataset_files("wearable_ssvep"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["S001.mat"]


def test_a_lost_connection_is_taken_up_again_through_the_redirect(server, article, tmp_path):
    [file] = dataset_files("wearable_ssvep", ["S002*"])
    server.break_after = 1_000_000
    fetch_files([file], tmp_path)
    assert (tmp_path / "S002.mat").read_bytes() == BIG
    asked = [wanted for path, wanted in server.requests if path.startswith("/storage/S002.mat")]
    assert asked[0] is None
    assert 0 < int(asked[1].removeprefix("bytes=").removesuffix("-")) <= 1_000_000


def test_a_killed_fetch_of_an_article_goes_on_where_it_was(server, article, tmp_path):
    code = (
        "from mgpa.eeg.datasets.catalogue import fetch_files, remote_files; "
        "fetch_files(remote_files('figshare:13560281.v4', ['S002*']), '.')"
    )
    server.go.clear()
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    # The list stops half way too: let it pass, then stop the file.
    assert server.half_way.wait(30)
    server.half_way.clear()
    server.go.set()
    server.go.clear()
    part = tmp_path / "S002.mat.part"
    arrived = killed_half_way(process, part, server)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert server.requests[-1] == ("/storage/S002.mat?signature=1", f"bytes={arrived}-")
    assert (tmp_path / "S002.mat").read_bytes() == BIG


def test_a_data_set_without_an_address_says_where_to_look(monkeypatch):
    source = catalogue.PublicDataset("finger_taps", "Finger taps", "10.0/0", "https://example.org")
    monkeypatch.setitem(DATASETS, "finger_taps", source)
    with pytest.raises(
        ValueError, match=r"No address of finger_taps is known here\. Look for it at https://ex"
    ):
        dataset_files("finger_taps")


def test_a_zenodo_record_is_listed(server):
    entry = {"key": "a b.mat", "size": 5, "checksum": f"md5:{md5(b'x')}", "links": {"self": "http://a/b"}}
    server.files["/z/records/9"] = as_json({"files": [entry]})
    assert listing("zenodo:9", api=f"{server.url}/z") == [
        RemoteFile("a b.mat", "http://a/b", 5, md5=md5(b"x"))
    ]


def test_a_manifest_names_files_beside_it(server, tmp_path):
    found = listing(serve_manifest(server))
    assert fetch_files(found, tmp_path / "zwei Wörter") == 4
    for name, content in FILES.items():
        assert (tmp_path / "zwei Wörter" / name).read_bytes() == content
    assert fetch_files(found, tmp_path / "zwei Wörter") == 0


@pytest.mark.parametrize("name", ["../x.mat", "/etc/x.mat", "a/../../x", "..\\x"])
def test_names_that_leave_the_folder_are_refused(server, name):
    server.files["/m"] = f"{'0' * 64}  {name}\n".encode()
    with pytest.raises(DownloadError, match="no name inside a folder"):
        listing(f"{server.url}/m")


ODD_NAMES = [
    *("D:x.exe", "CON", "a/NUL.txt", "com1.mat", "aux.tar.gz", "x.", "x ", "a./x", "a /x", " x", "a//x"),
    *("./x", "x?.mat", "x\x1b[2J.mat", "x\n.mat", "COM\u00b9"),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_that_are_none_on_windows_are_refused_everywhere(server, tmp_path, name):
    server.files["/x"] = b"x"
    with pytest.raises(DownloadError, match="is no name of a file on every system"):
        fetch_files([RemoteFile(name, f"{server.url}/x")], tmp_path)
    assert os.listdir(tmp_path) == []
    assert server.requests == []


@pytest.mark.parametrize("names", [("S1.mat", "s1.MAT"), ("x", "x.part"), ("x.part", "x"), ("x", "x")])
def test_names_that_are_one_file_somewhere_are_refused(server, tmp_path, names):
    with pytest.raises(DownloadError, match="would be in each other's way"):
        fetch_files([RemoteFile(name, f"{server.url}/x") for name in names], tmp_path)


def test_pages_that_lead_to_each_other_end(server):
    api = serve_osf(server)
    first = f"{api}/nodes/ab3de/files/osfstorage/?page[size]=100"
    server.files["/v2/nodes/ab3de/files/osfstorage/"] = as_json({"data": [], "links": {"next": first}})
    with pytest.raises(DownloadError, match="lists pages without end"):
        listing("osf:ab3de", api=api)


def test_components_that_hold_each_other_end(server):
    nodes = {"abcde": ("a", {"x": b"x"}, ["fghij"]), "fghij": ("b", {"y": b"y"}, ["abcde"])}
    with pytest.raises(DownloadError, match="lists pages without end"):
        listing("osf:abcde", api=serve_osf_components(server, nodes))


def test_pages_that_are_all_new_end_too(server, monkeypatch):
    monkeypatch.setattr(listings, "MAX_PAGES", 5)
    entry = {"name": "x", "download_url": "http://a/b", "size": 1}
    server.files["/fs/articles/1/files"] = as_json([entry] * listings.PAGE)
    with pytest.raises(DownloadError, match="lists pages without end"):
        listing("figshare:1", api=f"{server.url}/fs")


def test_a_list_larger_than_any_is_left(server, monkeypatch):
    monkeypatch.setattr(listings, "MAX_BYTES", 1000)
    server.files["/m"] = b"#" * 2000
    with pytest.raises(DownloadError, match="larger than 1000 bytes, and no list of files"):
        listing(f"{server.url}/m")


@pytest.mark.parametrize(
    "change",
    [
        *({"size": -1}, {"size": "5"}, {"size": 5.0}, {"size": True}, {"key": 3}, {"key": None}),
        *({"checksum": "md5:xyz"}, {"checksum": 3}, {"checksum": "sha256:"}),
        *({"links": {"self": "file:///etc/passwd"}}, {"links": {"self": 3}}, {"links": []}),
    ],
)
def test_odd_json_is_an_error(server, change):
    entry = {"key": "a", "size": 5, "checksum": f"md5:{md5(b'x')}", "links": {"self": "http://a/b"}}
    server.files["/z/records/9"] = as_json({"files": [entry | change]})
    with pytest.raises(DownloadError, match="answered in a form that is not known here"):
        listing("zenodo:9", api=f"{server.url}/z")


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"\xff\xfe", b"null", b"[]", b'{"files": {"a": 1}}', b"NaN"]
)
def test_json_of_another_shape_is_an_error(server, content):
    server.files["/z/records/9"] = content
    with pytest.raises(DownloadError, match="answered in a form that is not known here"):
        listing("zenodo:9", api=f"{server.url}/z")


def test_a_repository_on_https_does_not_name_files_on_http(monkeypatch):
    entry = {"key": "a", "size": 5, "links": {"self": "http://a/b"}}
    monkeypatch.setattr(listings, "_get", lambda _: as_json({"files": [entry]}))
    with pytest.raises(DownloadError, match="does not begin with https://"):
        listing("zenodo:9")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>Download</html>", r"line 1: '<html>Download</html>' is not 'sha256  name'"),
        (b"", "has no files"),
        (f"{'0' * 64}  a\n{'1' * 64}  a\n".encode(), "lists a twice"),
    ],
)
def test_what_is_no_manifest_is_refused(server, content, message):
    server.files["/m"] = content
    with pytest.raises(DownloadError, match=message):
        listing(f"{server.url}/m")


@pytest.mark.parametrize(
    "address", ["osf:", "osf:AB-3", "figshare:abc", "figshare:1.4", "zenodo", "ftp://a/b", "x.mat"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match=r"is no address of files; it must be osf:abcde"):
        listing(address)


def test_an_answer_of_another_form_is_named(server):
    server.files["/z/records/9"] = as_json({"message": "moved"})
    with pytest.raises(DownloadError, match=r"zenodo:9: .* answered in a form that is not known here"):
        listing("zenodo:9", api=f"{server.url}/z")
    server.files["/z/records/9"] = b"<html>"
    with pytest.raises(DownloadError, match=r"zenodo:9: .* answered in a form that is not known here"):
        listing("zenodo:9", api=f"{server.url}/z")


def test_patterns_choose_files(server):
    manifest = serve_manifest(server)
    assert [f.name for f in remote_files(manifest, ["S00*"])] == [
        "S001.mat",
        "S002.mat",
        "mit Lücke/S003 (neu).mat",
    ]
    with pytest.raises(ValueError, match=r"None of the 4 files matches T\*; they are Readme.txt"):
        remote_files(manifest, ["T*"])


def test_a_disk_that_is_too_small_is_known_beforehand(server, tmp_path):
    with pytest.raises(DownloadError, match=r"GB of free space; 1000000.0 GB are still to be fetched"):
        fetch_files([RemoteFile("x", f"{server.url}/x", 10**15)], tmp_path)
    assert server.requests == []


def test_every_data_set_says_where_to_look():
    assert set(DATASETS) == {"wearable_ssvep", "neuroscan_flex"}
    for source in DATASETS.values():
        assert source.doi in source.advice
        assert source.home.startswith("http")
    with pytest.raises(ValueError, match="no data set 'ssvep'; there are wearable_ssvep"):
        find_dataset("ssvep")


def test_the_tasks_of_a_source_are_those_of_its_reader():
    from mgpa.eeg.datasets.neuroscan_flex import TASKS

    assert DATASETS["neuroscan_flex"].tasks == tuple(TASKS)

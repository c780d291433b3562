"""Files in public repositories: how they are listed, and what is no list of them."""

import pytest

from server import FILES, Server, as_json, md5, serve_manifest, serve_osf, sha256

pytest.importorskip("pooch")

from mgpa.eeg.datasets.catalogue import DATASETS, fetch_files, find_dataset, remote_files
from mgpa.eeg.datasets.download import DownloadError
from mgpa.eeg.datasets.listings import RemoteFile, listing


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


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


@pytest.mark.parametrize("address", ["osf:", "osf:AB-3", "figshare:abc", "zenodo", "ftp://a/b", "x.mat"])
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

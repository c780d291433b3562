"""`mgpa data` as its users meet it: repositories (on a local server), lost connections, missing files."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from server import Server

pytest.importorskip("cyclopts")
pytest.importorskip("pooch")

from mgpa.eeg.datasets.catalogue import DATASETS, fetch_files, find_dataset, remote_files
from mgpa.eeg.datasets.download import DownloadError
from mgpa.eeg.datasets.listings import RemoteFile, listing

RNG = np.random.default_rng(0)
FILES = {
    "S001.mat": RNG.bytes(2000),
    "S002.mat": RNG.bytes(3000),
    "mit Lücke/S003 (neu).mat": RNG.bytes(1000),
    "Readme.txt": b"hello",
}


def md5(content):
    return hashlib.md5(content).hexdigest()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def as_json(value):
    return json.dumps(value).encode()


@pytest.fixture
def server():
    server = Server()
    for name, content in FILES.items():
        server.files[f"/files/{name}"] = content
    yield server
    server.close()


def osf_file(server, name):
    content = FILES[name]
    facts = {"kind": "file", "name": name, "materialized_path": f"/{name}", "size": len(content)}
    facts["extra"] = {"hashes": {"md5": md5(content), "sha256": sha256(content)}}
    return {"attributes": facts, "links": {"download": f"{server.url}/files/{name}"}}


@pytest.fixture
def osf(server):
    """A project of two pages, the second with a folder."""
    base = f"{server.url}/v2/nodes/ab3de/files/osfstorage/"
    related = {"links": {"related": {"href": f"{base}5f/"}}}
    folder = {"attributes": {"kind": "folder", "name": "mit Lücke"}, "relationships": {"files": related}}
    first = {"data": [osf_file(server, n) for n in ("S002.mat", "S001.mat")]}
    second = {"data": [folder, osf_file(server, "Readme.txt")], "links": {"next": None}}
    inside = {"data": [osf_file(server, "mit Lücke/S003 (neu).mat")], "links": {"next": None}}
    server.files["/v2/nodes/ab3de/files/osfstorage/"] = as_json(
        first | {"links": {"next": f"{base}?page=2&page[size]=100"}}
    )
    server.files["/v2/nodes/ab3de/files/osfstorage/?page=2&page[size]=100"] = as_json(second)
    server.files["/v2/nodes/ab3de/files/osfstorage/5f/"] = as_json(inside)
    return f"{server.url}/v2"


@pytest.fixture
def manifest(server):
    lines = [f"{sha256(content)}  {name}" for name, content in FILES.items()]
    server.files["/files/SHA256SUMS"] = "\n".join([*lines, ""]).encode()
    return f"{server.url}/files/SHA256SUMS"


def test_an_osf_project_is_listed_with_its_folders_and_pages(server, osf):
    found = listing("osf:ab3de", api=osf)
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


def test_a_manifest_names_files_beside_it(server, manifest, tmp_path):
    found = listing(manifest)
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


def test_patterns_choose_files(manifest):
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


# From here on as a process.


def command(server=None, **options):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "110", "NO_COLOR": "1"}
    if server is not None:
        environment["MGPA_OSF_API"] = f"{server.url}/v2"

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mgpa", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            **options,
        )

    return run


def test_fetching_from_the_command_line(server, osf, tmp_path):
    run = command(server, cwd=tmp_path)
    listed = run("data", "fetch", "wearable_ssvep", "--from", "osf:ab3de", "--out", "x", "--dry-run")
    assert "S001.mat" in listed.stdout
    assert not (tmp_path / "x").exists()
    arguments = ("data", "fetch", "wearable_ssvep", "--from", "osf:ab3de", "--out", "für mich", "--only")
    found = run(*arguments, "S00[12]*", "*Lücke*", "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["new"] == 3
    assert sorted(p.name for p in (tmp_path / "für mich").iterdir()) == ["S001.mat", "S002.mat", "mit Lücke"]
    again = run(*arguments, "S001.mat")
    assert "0 new, 1 were there already" in again.stdout


def test_a_killed_fetch_goes_on_where_it_was(server, manifest, tmp_path):
    big = RNG.bytes(3_000_000)
    server.files["/files/S002.mat"] = big
    names = {"S001.mat": FILES["S001.mat"], "S002.mat": big}
    server.files["/files/SHA256SUMS"] = "".join(f"{sha256(c)}  {n}\n" for n, c in names.items()).encode()
    run = command(cwd=tmp_path)
    assert run("data", "fetch", "wearable_ssvep", "--from", manifest, "--out", "o", "--only", "S001*").stdout
    arguments = ("data", "fetch", "wearable_ssvep", "--from", manifest, "--out", "o")
    server.go.clear()
    # The list itself stops half way too: let it pass, then stop the file.
    process = subprocess.Popen([sys.executable, "-m", "mgpa", *arguments], cwd=tmp_path)
    assert server.half_way.wait(30)
    server.half_way.clear()
    server.go.set()
    server.go.clear()
    part = tmp_path / "o" / "S002.mat.part"
    while not (part.exists() and part.stat().st_size > 1_000_000):
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.go.set()
    arrived = part.stat().st_size
    assert run(*arguments).returncode == 0
    assert server.requests[-1] == ("/files/S002.mat", f"bytes={arrived}-")
    assert (tmp_path / "o" / "S002.mat").read_bytes() == big
    assert [path for path, _ in server.requests].count("/files/S001.mat") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fetch", "wearable_ssvep", "--out", "x"), "Where is wearable_ssvep? Pass --from osf:"),
        (("fetch", "wearable_ssvep", "--out", "x"), "https://doi.org/10.3390/s21041256"),
        (("fetch", "ssvep", "--from", "osf:ab3de", "--out", "x"), "there are wearable_ssvep, neuroscan_flex"),
        (("fetch", "neuroscan_flex", "--from", "nowhere", "--out", "x"), "'nowhere' is no address of files"),
        (("fetch", "neuroscan_flex", "--from", "osf:zzzzz", "--out", "x"), "the server answered 404"),
        (("verify", "wearable_ssvep", "nowhere"), "There is no folder nowhere"),
        (("verify", "ssvep", "."), "no data set 'ssvep'"),
    ],
)
def test_mistakes_are_answered_in_one_line(server, tmp_path, arguments, message):
    result = command(server, cwd=tmp_path)("data", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_verify_lists_exactly_what_is_missing(tmp_path):
    run = command(cwd=tmp_path)
    (tmp_path / "leer").mkdir()
    found = run("data", "verify", "neuroscan_flex", "leer", "--json")
    facts = json.loads(found.stdout)
    assert found.returncode == 2
    assert not facts["complete"]
    assert len(facts["missing"]) > facts["present"] == 0
    text = run("data", "verify", "neuroscan_flex", "leer").stdout
    named = [line.removeprefix("missing").strip() for line in text.splitlines() if line.startswith("missing")]
    assert named == facts["missing"][:10]
    assert f"and {len(facts['missing']) - 10} more; --json names all" in text
    counts = re.findall(r"lack (\d+) each: (.*)", text)
    assert sum(int(count) * len(people.split()) for count, people in counts) == len(facts["missing"])


def test_verify_looks_for_the_tasks_that_are_wanted(tmp_path):
    run = command(cwd=tmp_path)
    found = json.loads(run("data", "verify", "neuroscan_flex", ".", "--tasks", "N170", "--json").stdout)
    assert len(found["missing"]) == 60
    assert all(" N170 " in name for name in found["missing"])
    refused = run("data", "verify", "neuroscan_flex", ".", "--tasks", "N17")
    assert refused.returncode == 2
    assert "neuroscan_flex has no task N17; there are N170, oddball_active" in refused.stderr
    refused = run("data", "verify", "wearable_ssvep", ".", "--tasks", "N170")
    assert "wearable_ssvep has no tasks to choose from" in refused.stderr


def test_the_tasks_of_a_source_are_those_of_its_reader():
    from mgpa.eeg.datasets.neuroscan_flex import TASKS

    assert DATASETS["neuroscan_flex"].tasks == tuple(TASKS)


def test_simulated_recordings_are_complete_and_lack_what_is_taken_away(tmp_path):
    pytest.importorskip("mne")
    run = command(cwd=tmp_path)
    made = run("simulate", "ssvep", "--out", "ss vep", "--people", "2", "--blocks", "1")
    assert made.returncode == 0, made.stderr
    complete = run("data", "verify", "wearable_ssvep", "ss vep")
    assert complete.returncode == 0, complete.stdout + complete.stderr
    (tmp_path / "ss vep" / "S002.mat").unlink()
    found = run("data", "verify", "wearable_ssvep", "ss vep", "--json")
    assert found.returncode == 2
    assert json.loads(found.stdout)["missing"] == ["S002.mat"]
    made = run("simulate", "flex", "--out", "flex", "--people", "1", "--tasks", "N170", "--events", "8")
    assert made.returncode == 0, made.stderr
    assert len(list((tmp_path / "flex").iterdir())) >= 1
    refused = run("simulate", "flex", "--out", "y", "--tasks", "N17")
    assert "no task N17; there are N170" in refused.stderr


def test_every_data_command_teaches():
    run = command()
    listed = run("data", "list").stdout
    for source in DATASETS.values():
        assert source.name in listed
        assert source.doi in listed
    for name in ("list", "fetch", "verify"):
        assert f"Example: mgpa data {name}" in " ".join(run("data", name, "--help").stdout.split())
    for name in ("ssvep", "flex"):
        assert f"Example: mgpa simulate {name}" in " ".join(run("simulate", name, "--help").stdout.split())

"""Downloads as they go wrong: broken off, refused, missing, changed on the server, no space."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from server import killed_half_way

pytest.importorskip("pooch")

from mgpa.eeg.datasets import download
from mgpa.eeg.datasets.download import DownloadError, download_file

CONTENT = np.random.default_rng(0).bytes(3_000_000)
SHA256, MD5 = hashlib.sha256(CONTENT).hexdigest(), hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server(server):
    server.files["/data.bin"] = CONTENT
    return server


def test_a_file_arrives_whole_and_nothing_else_is_left(server, tmp_path):
    path = tmp_path / "für alle" / "data 1.bin"
    found = download_file(f"{server.url}/data.bin", path, sha256=SHA256, md5=MD5, size=len(CONTENT))
    assert found == path
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["data 1.bin"]


def test_a_file_that_is_there_is_not_fetched_again(server, tmp_path):
    for _ in range(2):
        download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256.upper())
    assert len(server.requests) == 1


def test_a_file_that_is_there_but_wrong_is_replaced(server, tmp_path):
    (tmp_path / "x").write_bytes(b"something else")
    download_file(f"{server.url}/data.bin", tmp_path / "x", md5=MD5)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_what_has_arrived_is_not_asked_for_again(server, tmp_path):
    (tmp_path / "x.part").write_bytes(CONTENT[:1_234_567])
    download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256)
    assert server.requests == [("/data.bin", "bytes=1234567-")]
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_whole_part_is_only_checked(server, tmp_path):
    (tmp_path / "x.part").write_bytes(CONTENT)
    download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256, size=len(CONTENT))
    assert server.requests == []
    (tmp_path / "y.part").write_bytes(CONTENT)
    download_file(
        f"{server.url}/data.bin", tmp_path / "y", sha256=SHA256
    )  # asks, and is told nothing follows
    assert (tmp_path / "y").read_bytes() == CONTENT


def test_a_lost_connection_is_taken_up_again(server, tmp_path):
    server.break_after = 1_000_000
    download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256)
    assert len(server.requests) == 2
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over_and_says_so(server, tmp_path):
    server.ranges = False
    (tmp_path / "x.part").write_bytes(b"?" * 1000)
    with pytest.warns(UserWarning, match="cannot resume; starting over"):
        download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_without_a_checksum_pieces_are_not_put_together(server, tmp_path):
    (tmp_path / "x.part").write_bytes(b"of an older version")
    download_file(f"{server.url}/data.bin", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert server.requests == [("/data.bin", None)]


@pytest.mark.parametrize("known", [{"sha256": "0" * 64}, {"md5": "0" * 32}, {"size": 17}])
def test_a_wrong_file_is_an_error_and_is_removed(server, tmp_path, known):
    with pytest.raises(DownloadError, match=r"not the file that was expected: it.* instead of"):
        download_file(f"{server.url}/data.bin", tmp_path / "x", **known)
    assert os.listdir(tmp_path) == []


def test_a_right_file_is_kept_when_its_replacement_is_wrong(server, tmp_path):
    (tmp_path / "x").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="sha256"):
        download_file(f"{server.url}/data.bin", tmp_path / "x", sha256="0" * 64)
    assert (tmp_path / "x").read_bytes() == b"mine"


def test_a_missing_file_and_a_refused_connection_are_told_apart(server, tmp_path):
    with pytest.raises(DownloadError, match=r"nowhere.bin: the server answered 404: there is no such file"):
        download_file(f"{server.url}/nowhere.bin", tmp_path / "x")
    server.close()
    with pytest.raises(DownloadError, match="the connection was refused"):
        download_file(f"{server.url}/data.bin", tmp_path / "x")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_named(server, tmp_path):
    (tmp_path / "x.part").symlink_to("/dev/full")
    with pytest.raises(DownloadError, match=r"No space is left in .* for x; make room"):
        download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("known", "message"),
    [({"sha256": "abc"}, "sha256 must be 64"), ({"md5": "g" * 32}, "md5 must be 32")],
)
def test_a_mistyped_checksum_is_refused_before_anything_is_fetched(server, tmp_path, known, message):
    with pytest.raises(ValueError, match=message):
        download_file(f"{server.url}/data.bin", tmp_path / "x", **known)
    assert server.requests == []


def test_a_killed_download_goes_on_where_it_was(server, tmp_path):
    server.go.clear()
    address = f"{server.url}/data.bin"
    code = f"from mgpa.eeg.datasets import download as d; d.download_file({address!r}, 'ä b', md5={MD5!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    assert server.half_way.wait(20)
    part = tmp_path / "ä b.part"
    arrived = killed_half_way(process, part, server)
    assert not (tmp_path / "ä b").exists()
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert server.requests[-1] == ("/data.bin", f"bytes={arrived}-")
    assert (tmp_path / "ä b").read_bytes() == CONTENT
    assert not part.exists()


def test_a_download_stops_when_the_promised_size_is_passed(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 3)
    server.go.clear()  # half of it is sent, and no end
    with pytest.raises(DownloadError, match="bytes or more instead of 1000"):
        download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256, size=1000)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x"])
def test_redirects_keep_to_http(server, tmp_path, target):
    server.elsewhere["/data.bin"] = target
    with pytest.raises(DownloadError, match=r"leads to .*; from there nothing is fetched"):
        download_file(f"{server.url}/data.bin", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_redirects_do_not_fall_from_https_to_http():
    from requests import Response

    answer = Response()
    answer.status_code, answer.url = 302, "https://a.org/x"
    for target in ("https://b.org/x", "/y"):
        answer.headers["location"] = target
        download.refuse_redirect(answer)
    for target in ("http://a.org/x", "HTTP://a.org/x"):
        answer.headers["location"] = target
        with pytest.raises(DownloadError, match="it is not https"):
            download.refuse_redirect(answer)


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs /dev/null")
def test_a_device_is_not_replaced_by_a_download(server, tmp_path):
    (tmp_path / "x").symlink_to("/dev/null")
    with pytest.raises(FileExistsError, match="is a device"):
        download_file(f"{server.url}/data.bin", tmp_path / "x")


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks on files")
def test_two_downloads_of_a_file_do_not_mix(server, tmp_path):
    server.go.clear()
    address = f"{server.url}/data.bin"
    code = f"from mgpa.eeg.datasets import download as d; d.download_file({address!r}, 'x', md5={MD5!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    assert server.half_way.wait(60)
    with pytest.raises(DownloadError, match="Another process is fetching x; wait until it is done"):
        download_file(address, tmp_path / "x", md5=MD5)
    server.go.set()
    assert process.wait() == 0
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_progress_says_how_much_of_what(server, tmp_path, capsys):
    (tmp_path / "x.part").write_bytes(CONTENT[:1_000_000])
    download_file(f"{server.url}/data.bin", tmp_path / "x", sha256=SHA256, verbose=True)
    assert "x 3.0 of 3.0 MB (100%)" in capsys.readouterr().err

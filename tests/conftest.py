"""Fixtures that several files share."""

import pytest

from parity import CASES, load_parity
from server import Server
from stores import new_bucket, s3_server


@pytest.fixture(scope="session", params=CASES)
def authors(request):
    """Return what the authors' code gave: see :mod:`parity`."""
    return load_parity(request.param)


@pytest.fixture(scope="module")
def one_torch_thread():
    """Let torch have one thread: more cost more than they save on tensors this small."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def server():
    """Return a server that can stop half way; see :mod:`server`."""
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3_environment():
    """Return the environment in which an S3 server on this machine is found."""
    with s3_server() as environment:
        yield environment


@pytest.fixture
def s3(s3_environment, monkeypatch):
    """Return the address of an empty bucket."""
    with new_bucket(s3_environment, monkeypatch) as address:
        yield address


@pytest.fixture
def memory():
    """Return the address of an empty folder in this process's memory."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield "memory://folder"
    store.store.clear()


@pytest.fixture
def web(tmp_path):
    """Return a web server of a folder, ``tmp_path / "web"``."""
    pytest.importorskip("aiohttp")
    folder = tmp_path / "web"
    folder.mkdir()
    server = Server(folder)
    yield server
    server.close()

"""Weights are loaded completely and checked, or not at all."""

import hashlib
import os
from pathlib import Path

import pytest

from mgpa.errors import CheckpointError, DownloadError
from mgpa.paper.datasets import catalogue
from mgpa.paper.datasets.catalogue import RemoteFile
from mgpa.paper.encoder import EEGPT_WEIGHTS, load_checkpoint

torch = pytest.importorskip("torch")
pytest.importorskip("pooch")
from safetensors.torch import save, save_file  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self, n_times=3, ids=(0, 1)):
        super().__init__()
        self.first = torch.nn.Linear(4, 2)
        self.times = torch.nn.Parameter(torch.randn(1, n_times, 2))
        self.register_buffer("chans_id", torch.tensor(ids))


def state(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def trained():
    torch.manual_seed(1)
    return Net(ids=(5, 6, 7))


@pytest.fixture
def net():
    torch.manual_seed(2)
    return Net()


@pytest.fixture
def path(trained, tmp_path):
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def refused(net, path, match, error=CheckpointError, **settings):
    """Check that loading fails with a text, and that the model is as it was."""
    before = state(net)
    with pytest.raises(error, match=match):
        load_checkpoint(net, path, **settings)
    assert same(before, state(net))


def test_everything_but_the_named_buffer_is_loaded(net, trained, path):
    record = load_checkpoint(net, path)
    assert same({**trained.state_dict(), "chans_id": torch.tensor([0, 1])}, state(net))
    content = path.read_bytes()
    expected = {"file": "w.safetensors", "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    assert record == expected


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"first.bias": None}, r"does not fit this network; nothing was.* Missing key.*first\.bias"),
        ({"head.weight": torch.ones(2)}, r'Unexpected key.*"head\.weight"'),
        ({"first.weight": torch.ones(2, 3)}, r"size mismatch for first\.weight"),
        ({"first.bias": torch.tensor([1.0, float("nan")])}, r"NaN or infinite values in first\.bias"),
    ],
)
def test_what_does_not_fit_is_listed_and_nothing_is_loaded(net, trained, tmp_path, change, match):
    content = {name: value for name, value in {**state(trained), **change}.items() if value is not None}
    save_file(content, tmp_path / "w.safetensors")
    refused(net, tmp_path / "w.safetensors", match)


def test_extra_names_are_allowed_by_prefix(net, trained, tmp_path):
    content = {**state(trained), "predictor.mask": torch.ones(3), "reconstructor.x": torch.ones(1)}
    save_file(content, tmp_path / "w.safetensors")
    refused(net, tmp_path / "w.safetensors", r"Unexpected key.*reconstructor\.x", allow_extra=("predictor.",))
    load_checkpoint(net, tmp_path / "w.safetensors", allow_extra=("predictor.", "reconstructor."))
    assert torch.equal(net.first.bias, trained.first.bias)


def test_files_that_are_damaged_foreign_or_could_run_code_are_refused(net, path, tmp_path):
    path.write_bytes(path.read_bytes()[:-5])
    torch.save(state(net), tmp_path / "w.pt")  # a pickle: never opened
    (tmp_path / "page.safetensors").write_bytes(b"<html>not found</html>")
    for name in ("w.safetensors", "w.pt", "page.safetensors"):
        refused(net, tmp_path / name, rf"{name} is not a complete \.safetensors file.*Download it again")
    refused(net, tmp_path / "none.pt", r"No file .*none\.pt.*mgpa data fetch eegpt", error=FileNotFoundError)


@pytest.fixture
def weights(server, trained, tmp_path, monkeypatch):
    """Return weights on the hub, of which the server is a mirror; the user's cache is in a folder."""
    monkeypatch.setattr(catalogue, "RETRIES", 0)
    monkeypatch.setenv("HF_ENDPOINT", f"{server.url}/")
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    content = save(trained.state_dict())
    server.files["/some/model/resolve/abc123/model.safetensors"] = content
    url = "https://huggingface.co/some/model/resolve/abc123/model.safetensors"
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return RemoteFile("model.safetensors", url, len(content), checksum)


def test_a_pipe_or_a_device_is_refused_at_once(net, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        refused(net, path, "No file", FileNotFoundError)


def test_weights_of_the_hub_are_fetched_once_and_loaded(net, trained, server, weights):
    for _ in range(2):
        record = load_checkpoint(net, weights)
    assert (record["sha256"], record["url"]) == (weights.sha256, weights.url)
    assert torch.equal(net.first.bias, trained.first.bias)
    assert len(server.requests) == 1


def test_without_a_connection_the_error_says_how_to_do_without(net, server, weights):
    server.files.clear()
    advice = f"fetch {weights.url} on another machine and pass the file's path"
    refused(net, weights, f"404.*{advice}", error=DownloadError)
    server.close()
    refused(net, weights, f"(?i)refused.*{advice}", error=DownloadError)


def test_the_papers_weights_are_pinned():
    assert EEGPT_WEIGHTS.sha256 == "fb34c20609983324679b9534f9d17a2289a232d0276dd2b8b7d5b088f876f621"
    assert EEGPT_WEIGHTS.url.endswith("/e41cb3ae2ce4fd9eb736862292c91f8128d15618/model.safetensors")

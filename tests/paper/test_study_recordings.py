"""Recordings become tables once, named by everything that their numbers come from."""

from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest

from mgpa.paper import StudyError, load_study
from mgpa.paper.studies import recordings
from mgpa.paper.studies.config import EncoderSection
from mgpa.paper.studies.recordings import Recordings, make_encoder
from small_studies import RECORDED, TINY, run, written


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        (TINY, {"data": {"labels": {"x": "moisture"}}}, "data.labels: no column 'moisture' for 'x'"),
        (TINY, {"coordinates": {"source": "gel"}}, "coordinates.source is 'gel'; the sources are dry, wet"),
        (TINY, {"gate": {"tokens": True}}, "gate.tokens is for embeddings of tokens"),
        (RECORDED, {"data": {"folder": "/none"}}, "folder /none does not exist"),
        (RECORDED, {"data": {"simulate": {"loudness": 1}}}, "data.simulate does not fit the simulator.*loud"),
    ],
)
def test_data_that_do_not_fit_are_refused(text, changes, said, tmp_path):
    with pytest.raises(StudyError, match=said):
        run(load_study(written(tmp_path, text), **changes), tmp_path / "work")


def test_an_encoders_weights_are_among_what_was_read(tmp_path):
    changes = {"data": {"folder": str(tmp_path / "recordings")}}
    text = RECORDED.replace('name = "temporal_bins"', 'name = "eegpt"\ncheckpoint = "weights.safetensors"')
    study = load_study(written(tmp_path, text), **changes)
    (tmp_path / "recordings").mkdir()
    with pytest.raises(StudyError, match=r"weights\.safetensors does not exist"):
        run(study, tmp_path / "work")
    random = {"encoder": {"parameters": {"weights": "random"}}}
    with pytest.raises(StudyError, match='"random" takes no checkpoint'):
        run(load_study(written(tmp_path, text), **changes, **random), tmp_path / "work")
    (tmp_path / "weights.safetensors").write_bytes(b"half of it")
    with pytest.raises(StudyError, match=r"(?s)no recordings.*safetensors is not the published file"):
        run(study, tmp_path / "work")
    keys = []
    for content in (b"one", b"two"):
        (tmp_path / "weights.safetensors").write_bytes(content)
        recordings = Recordings(study, tmp_path / "work")
        assert recordings.checksums == {"checkpoint weights.safetensors": sha256(content).hexdigest()}
        keys.append(recordings._key("table", "N170"))
    assert keys[0] != keys[1]


def test_tables_depend_on_the_libraries_and_networks_on_the_device(tmp_path, monkeypatch):
    def key(preset, device="cpu"):
        found = Recordings(load_study(preset, recordings=tmp_path), tmp_path, device=device)
        return found._key("table", "")

    before = key("temporal-n170")
    assert key("temporal-n170", "cuda") == before
    assert key("controlled-ssvep", "cuda") != key("controlled-ssvep")
    monkeypatch.setattr(recordings, "reader_versions", lambda: {"mne": "0.1"})
    assert key("temporal-n170") != before


def test_networks_embed_where_the_study_is_told_to(monkeypatch):
    from mgpa.paper import encoder

    monkeypatch.setattr(encoder, "eegpt", lambda channels, n_times, **options: options)
    trials = SimpleNamespace(channels=("Oz",), data=np.zeros((1, 1, 500)))
    assert make_encoder(EncoderSection(name="eegpt"), trials, "cuda")["device"] == "cuda"
    own = EncoderSection(name="eegpt", parameters={"device": "cpu"})
    assert make_encoder(own, trials, "cuda")["device"] == "cpu"

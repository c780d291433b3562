"""Frozen encoders: right tokens, right weights, right channels, or an error that says what is wrong."""

import hashlib
import importlib
import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from mgpa.eeg.trials import Trials, encode

torch = pytest.importorskip("torch")
pytest.importorskip("mne")
if importlib.util.find_spec("braindecode") is None:
    pytest.skip("braindecode is not installed", allow_module_level=True)
from mgpa.eeg import TorchEncoder, torch_encoder  # noqa: E402
from mgpa.eeg.braindecode import import_braindecode  # noqa: E402
from mgpa.errors import CheckpointError  # noqa: E402
from mgpa.paper import EEGPT_WEIGHTS, eegpt  # noqa: E402

OCCIPITAL = ["POz", "PO3", "PO4", "PO5", "PO6", "Oz", "O1", "O2"]

SMALL = {"depth": 2, "embed_dim": 32, "num_heads": 4}


def signals(channels=OCCIPITAL, n_times=500, sfreq=250.0, n=5, **settings):
    data = 1e-5 * np.random.default_rng(0).normal(size=(n, len(channels), n_times))
    return Trials(data, channels, sfreq, **settings)


def small(channels=OCCIPITAL, n_times=500, sfreq=250.0, architecture=SMALL, **settings):
    settings |= {"sfreq": sfreq, "architecture": architecture, "weights": "random"}
    with pytest.warns(UserWarning, match="random weights"):
        return eegpt(channels, n_times, **settings)


def trained(encoder, path):
    """Save an encoder's weights as if they had been trained."""
    from safetensors.torch import save_file

    save_file(encoder.module.state_dict(), path)
    return path


def close(a, b, tolerance=2e-5):
    assert a.shape == b.shape
    return np.linalg.norm(a - b) < tolerance * np.linalg.norm(a)


def test_the_papers_layouts_and_weights_through_a_file(tmp_path):
    # Full size. The weights come from a model of all 62 channels: only the table of channels may differ.
    every = import_braindecode().models.eegpt.EEGPT_CHANNELS
    path = trained(small(every, 512, architecture=None, random_state=3), tmp_path / "model.safetensors")
    assert path.stat().st_size == EEGPT_WEIGHTS.size  # of the published file: the same tensors

    controlled = eegpt(OCCIPITAL, 500, sfreq=250.0, checkpoint=path, sha256="any")
    trials = signals(n=3)
    tokens = controlled.embed(trials)
    assert (tokens.shape, tokens.dtype) == ((3, 15, 512), np.float32)

    whole = eegpt(OCCIPITAL, 256, layout="all", scaling=20e-6, resample=(2, 1), checkpoint=path, sha256="any")
    tokens = whole.embed(signals(n_times=128, sfreq=128.0, n=2))
    assert tokens.shape == (2, 28, 512)
    assert tokens[0].size == 14336


def test_tokens_are_those_of_the_network_on_inputs_prepared_as_in_the_paper():
    from scipy.signal import resample_poly

    trials = signals(n=4)
    encoder = small(layout="mean")
    x = trials.data - trials.data.mean(-1, keepdims=True)
    x = torch.tensor(x / np.maximum(x.std(-1, keepdims=True), 1e-12), dtype=torch.float32)
    with torch.no_grad():
        summaries = encoder.module(x).numpy()
    assert summaries.shape == (4, 15, 4, 32)
    assert close(summaries.mean(2), encoder.embed(trials))

    trials = signals(n_times=128, sfreq=128.0)
    encoder = small(n_times=256, sfreq=256.0, layout="all", scaling=20e-6, resample=(2, 1))
    x = resample_poly(trials.data, 2, 1, axis=-1, padtype="line") / 20e-6
    with torch.no_grad():
        summaries = encoder.module(torch.tensor(x, dtype=torch.float32)).numpy()
    assert close(summaries.reshape(5, 28, 32), encoder.embed(trials))
    assert np.array_equal(encoder.embed(trials)[:, 4:8], encoder.embed(trials).reshape(5, 7, 4, 32)[:, 1])


def test_windows_are_padded_at_the_end_and_see_only_themselves():
    encoder, trials = small(scaling=1e-5), signals()
    before = encoder.embed(trials)
    filled = Trials(np.pad(trials.data, ((0, 0), (0, 0), (0, 12))), OCCIPITAL, 250.0)
    assert np.array_equal(before, small(n_times=512, scaling=1e-5).embed(filled))
    # The last two windows hold samples 416 to 479 and 448 to 511.
    changed = trials.data.copy()
    changed[:, :, 480:] = 0
    after = encoder.embed(Trials(changed, OCCIPITAL, 250.0))
    assert close(before[:, :14], after[:, :14])
    assert not close(before[:, 14], after[:, 14], 1e-3)


def test_scaling_leaves_flat_channels_at_zero():
    x = torch.full((1, 2, 50), 0.123)
    x[0, 1] = torch.linspace(-3e-6, 5e-6, 50)
    y = torch_encoder.scaled(x, "zscore")
    assert (y[0, 0] == 0).all()
    assert abs(y[0, 1].mean()) < 1e-6
    assert y[0, 1].std(correction=0) == pytest.approx(1, abs=1e-5)


def test_channels_have_an_identity_not_an_order(tmp_path):
    first, trials = small(), signals()
    path = trained(first, tmp_path / "w.safetensors")
    settings = {"sfreq": 250.0, "architecture": SMALL, "checkpoint": path, "sha256": "any"}
    permuted = eegpt(OCCIPITAL[::-1], 500, **settings)
    assert close(first.embed(trials), permuted.embed(trials))
    renamed = ["Fz", *OCCIPITAL[1:]]
    elsewhere = eegpt(renamed, 500, **settings)
    assert not close(first.embed(trials), elsewhere.embed(Trials(trials.data, renamed, 250.0)), 1e-4)


def test_weights_are_never_random_by_accident(tmp_path):
    with pytest.raises(ValueError, match="needs trained weights: pass checkpoint="):
        eegpt(["Oz"], 400)
    with pytest.raises(ValueError, match=r"EEGPT was not trained with EXG1, A1; .* among its 62: "):
        eegpt(["Oz", "EXG1", "A1"], 500, weights="random")
    with pytest.raises(ValueError, match=r"untrained network\. Got checkpoint="):
        eegpt(["Oz"], 400, weights="random", checkpoint=tmp_path / "x")
    with pytest.raises(ValueError, match="weights is 'any'"):
        eegpt(["Oz"], 400, weights="any")


def test_a_file_that_is_not_the_papers_weights_is_refused_unless_told_otherwise(tmp_path):
    path = trained(small(), tmp_path / "w.safetensors")
    whole = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(CheckpointError, match=f"its sha256 is {whole}, not fb34c206.*pass its sha256"):
        eegpt(OCCIPITAL, 500, checkpoint=path, architecture=SMALL)
    for sha256 in (whole, "any"):
        encoder = eegpt(OCCIPITAL, 500, checkpoint=path, architecture=SMALL, sha256=sha256)
        assert encoder.identity["checkpoint"]["sha256"] == whole


def test_a_study_takes_the_weights_file_that_it_is_given_if_it_allows_it(tmp_path):
    pytest.importorskip("pydantic")
    from mgpa.paper.studies.config import EncoderSection
    from mgpa.paper.studies.recordings import make_encoder

    path = trained(small(), tmp_path / "w.safetensors")
    settings = {"architecture": SMALL, "sfreq": 250.0}
    given = EncoderSection(name="eegpt", checkpoint=str(path), parameters=settings)
    with pytest.raises(CheckpointError, match="not the expected file"):
        make_encoder(given, signals())
    encoder = make_encoder(given.model_copy(update={"parameters": settings | {"sha256": "any"}}), signals())
    assert encoder.identity["checkpoint"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_random_weights_say_so_follow_their_seed_and_leave_other_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first = small(random_state=7)
    assert torch.equal(torch.rand(3), expected)
    assert first.identity["checkpoint"] == "random weights, seed 7"
    trials = signals()
    assert np.array_equal(first.embed(trials), small(random_state=7).embed(trials))
    assert not close(first.embed(trials), small(random_state=8).embed(trials), 0.1)


def test_nothing_is_resampled_unasked():
    encoder = small(n_times=256, sfreq=256.0)
    match = "128 samples at 128 Hz; EEGPT was set up for 256 at 256 Hz.*resample="
    with pytest.raises(ValueError, match=match):
        encoder.embed(signals(n_times=128, sfreq=128.0))
    with pytest.raises(ValueError, match="256 samples at 250 Hz"):
        encoder.embed(signals(n_times=256, sfreq=250.0))
    with pytest.raises(ValueError, match="set up for 128 at 128 Hz"):
        small(n_times=256, sfreq=256.0, resample=(2, 1)).embed(signals(n_times=256, sfreq=256.0))


def test_batch_size_changes_rounding_only_and_no_trials_give_no_tokens():
    trials = signals(n=11)
    tokens = [small(batch_size=size).embed(trials) for size in (1, 4, 11, 64)]
    for other in tokens[1:]:
        assert close(tokens[0], other)
    assert small().embed(trials.take(slice(0, 0))).shape == (0, 15, 32)
    assert close(tokens[0][3:4], small().embed(trials.take([3])))


def test_half_precision_is_stated_and_close():
    trials = signals()
    exact = small().embed(trials)
    stored = small(dtype="float16")
    assert stored.embed(trials).dtype == np.float16
    assert stored.identity["dtype"] == "float16"
    assert np.array_equal(stored.embed(trials), exact.astype(np.float16))
    computed = small(precision="float16")
    assert computed.identity["precision"] == "float16"
    assert not np.array_equal(computed.embed(trials), exact)
    assert close(computed.embed(trials), exact, 0.05)


def test_tokens_that_are_not_finite_are_an_error():
    encoder = TorchEncoder(torch.nn.Identity(), ["Oz"], 50, sfreq=100.0, scaling=1e-6, dtype="float16")
    data = np.full((3, 1, 50), 1e-6)
    data[1] = 1.0  # a million: more than half precision holds
    with pytest.raises(ValueError, match="1 trials, the first of them 1, are not finite as float16"):
        encoder.embed(Trials(data, ["Oz"], 100.0))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"scaling": 0.0}, "scaling is 0.0; expected"),
        ({"resample": (3, 1)}, "with 500 \\* down divisible"),
        ({"precision": "half"}, "precision is 'half'"),
        ({"device": "gpu"}, "device must be 'auto' or"),
    ],
)
def test_settings_are_checked(settings, match):
    with pytest.raises(ValueError, match=match):
        TorchEncoder(torch.nn.Identity(), ["Oz"], 500, sfreq=250.0, **settings)


def test_a_module_may_give_one_embedding_a_trial():
    flat = TorchEncoder(torch.nn.Flatten(), ["Oz"], 500, sfreq=250.0)
    trials = signals(n=3)
    table = encode(trials, flat)
    assert table.X.shape == (3, 500)
    mean = TorchEncoder(torch.nn.Identity(), ["Oz"], 500, sfreq=250.0, tokens=lambda m, x: m(x).mean(2))
    assert mean.embed(trials).shape == (3, 1)
    assert TorchEncoder(torch.nn.Identity(), ["Oz"], 500, sfreq=250.0).embed(trials).shape == (3, 1, 500)
    with pytest.raises(ValueError, match=r"shape \(1, 1, 1, 500\) for one trial; expected \(1, d\)"):
        TorchEncoder(torch.nn.Unflatten(1, (1, 1)), ["Oz"], 500, sfreq=250.0)


def test_the_identity_goes_with_the_table():
    encoder = small(layout="all")
    table = encode(signals(columns={"label": list("ababa")}), encoder)
    assert table.X.shape == (5, 60, 32)
    said = json.loads(json.dumps(table.info["encoder"]))
    assert said == encoder.identity
    assert said["architecture"] == SMALL
    assert {"name", "braindecode", "checkpoint", "layout", "scaling", "channels", "sfreq"} <= said.keys()


def test_a_torchaudio_built_for_another_torch_is_done_without(tmp_path):
    (tmp_path / "torchaudio" / "functional").mkdir(parents=True)
    (tmp_path / "torchaudio" / "__init__.py").write_text("from . import _extension, functional")
    (tmp_path / "torchaudio" / "_extension.py").write_text("raise OSError('undefined symbol')")
    (tmp_path / "torchaudio" / "functional" / "__init__.py").write_text(
        "from torchaudio._extension import _IS_TORCHAUDIO_EXT_AVAILABLE, fail_if_no_align\n"
        "@fail_if_no_align\ndef align(): pass\n"
        "def fftconvolve(): pass\ndef filtfilt(): pass\ndef lfilter(): pass"
    )
    code = (
        "from mgpa.eeg import braindecode\nbraindecode._import_torchaudio()\nimport torchaudio\n"
        "assert not torchaudio.functional._IS_TORCHAUDIO_EXT_AVAILABLE\n"
        "print('loaded')"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "loaded\n", done


def test_a_torchaudio_that_does_not_load_at_all_is_explained(monkeypatch):
    real = importlib.import_module

    def fail(name, *args):
        if name.startswith("braindecode"):
            raise OSError("libtorch.so: undefined symbol")
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ImportError, match=r"undefined symbol.*from one index: pip install torch"):
        eegpt(["Oz"], 500, weights="random")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install 'braindecode"):
        eegpt(["Oz"], 500, weights="random")

"""The page about addresses is true: its code runs, and its numbers and commands are those of the package."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(names, *blocks):
    for block in blocks:
        exec(block, names)
    return names


def block_with(word):
    (block,) = (block for block in BLOCKS if word in block)
    return block


@pytest.fixture
def names(memory, capsys):
    pytest.importorskip("pyarrow")
    run_so_far = run({}, BLOCKS[0])
    assert capsys.readouterr().out == "720\n"
    return run_so_far


def test_a_data_set_of_hugging_face_is_fitted_on_and_corrected(names, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets.disable_progress_bars()
    run(names, block_with("from datasets"))
    assert "embedding" in names["corrected"].column_names
    found = np.asarray(names["corrected"]["embedding"][:])
    assert found.dtype == names["table"].X.dtype
    np.testing.assert_allclose(found, names["m"].transform(names["table"].X), rtol=1e-12)
    rounded = names["dataset"].with_format("numpy")[:2]["embedding"]
    assert rounded.dtype == np.float32  # "makes float32 of everything"
    kept = names["dataset"].with_format("numpy", dtype=np.float64)[:2]["embedding"]
    assert kept.dtype == np.float64


def test_batches_of_a_data_loader_are_corrected(names, capsys):
    torch = pytest.importorskip("torch")
    run(names, block_with("def collate"), block_with("class Rows"))
    expected = names["m"].transform(names["table"].X)
    loader = torch.utils.data.DataLoader(names["pairs"], batch_size=64, collate_fn=names["collate"])
    np.testing.assert_allclose(torch.cat([X for X, _ in loader]), expected, atol=1e-5)
    np.testing.assert_allclose(names["streamed"], expected, atol=1e-5)
    assert capsys.readouterr().out.startswith("torch.Size([64, 16]) torch.Size([64])\n")


def test_every_address_on_the_page_is_one_that_is_known_here():
    from mgpa._common.remote import READ_ONLY, SCHEMES
    from mgpa.maps.io.mapfile import MAX_FILE_BYTES
    from mgpa.tables.parquet import BUFFER_REMOTE

    rows = re.findall(r"^\| (`\w+://.*)$", PAGE, re.MULTILINE)
    listed = {}
    for row in rows:
        addresses, _, writes, needs = (cell.strip() for cell in row.strip("|").split("|"))
        for scheme in re.findall(r"`(\w+)://", addresses):
            listed[scheme] = (writes, needs)
    assert listed.keys() == {*SCHEMES, "file"}
    for scheme, package in SCHEMES.items():
        assert (listed[scheme][0] == "no") == (scheme in READ_ONLY)
        assert package in listed[scheme][1] or scheme == "memory"
    assert f"refused beyond {MAX_FILE_BYTES // 2**30} GiB" in PAGE
    assert f"at most {BUFFER_REMOTE // 2**20} MiB" in " ".join(PAGE.split())

"""Addresses: what they name, what is shown of them, and what is said when nothing can be read there."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from mgpa._common.remote import as_place, is_address, redacted
from mgpa.errors import StoreError

SECRET = "https://user:pass@host/a/t.parquet?X-Amz-Signature=123&b=c"


def test_paths_stay_paths_and_addresses_become_places():
    assert as_place("folder/t.npz") == Path("folder/t.npz")
    assert as_place(Path("folder/t.npz")) == Path("folder/t.npz")
    assert as_place("C:\\folder\\t.npz") == Path("C:\\folder\\t.npz")
    place = as_place("S3://bucket/a/t.tar.parquet/")
    assert (place.scheme, place.name, place.stem, place.suffix) == (
        "s3",
        "t.tar.parquet",
        "t.tar",
        ".parquet",
    )
    assert as_place(place) is place
    assert str(place / "X" / "c/0") == "s3://bucket/a/t.tar.parquet/X/c/0"
    assert as_place("file:///a%20b/t.npz") == Path("/a b/t.npz")
    assert not is_address("folder/t.npz")


def test_an_address_that_went_through_pathlib_is_refused():
    with pytest.raises(ValueError, match=r"pathlib removed a slash.*pass it as a string"):
        as_place(Path("s3://bucket/t.npz"))
    with pytest.raises(ValueError, match="names another machine; a local address starts with file:///"):
        as_place("file://host/t.npz")


def test_secrets_are_not_shown_and_not_lost():
    place = as_place(SECRET)
    for text in (str(place), repr(place), redacted(SECRET)):
        assert "pass" not in text
        assert "user" not in text
        assert "123" not in text
    assert place.name == "t.parquet"
    assert pickle.loads(pickle.dumps(place))._address == SECRET
    assert redacted("no address: a@b?c") == "no address: a@b?c"
    assert redacted("at s3://bucket/t.npz, or http://h/x") == "at s3://bucket/t.npz, or http://h/x"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ImportError, match=r"gs:// needs fsspec, gcsfs: pip install 'fsspec\S*' 'gcsfs'"):
        as_place("gs://bucket/t.npz").exists()
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"s3:// needs fsspec, s3fs: pip install 'fsspec\S*' 's3fs"):
        as_place("s3://bucket/t.npz").exists()


def test_opening_a_map_in_a_file_loads_no_package_for_addresses(tmp_path):
    code = (
        "import sys, mgpa\n"
        "m = mgpa.maps.AffineMap.identity(2)\n"
        f"m.save({str(tmp_path / 'm.safetensors')!r})\n"
        f"mgpa.load_map({str(tmp_path / 'm.safetensors')!r})\n"
        "print(sorted({'fsspec', 's3fs', 'aiohttp', 'urllib.request'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_whatever_a_store_raises_names_the_address_and_no_secret(memory, monkeypatch):
    import fsspec

    def fail(*_, **__):
        raise RuntimeError(f"cannot do that with {SECRET}")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", fail)
    with pytest.raises(StoreError, match=r"memory://folder/x: cannot do that with https://…@host") as refused:
        as_place(f"{memory}/x").exists()
    assert "pass" not in str(refused.value)
    assert refused.value.__suppress_context__

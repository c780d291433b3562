"""`mgpa export`: maps for other runtimes."""

import pytest

from terminal import done, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


@pytest.mark.parametrize(("name", "package"), [("map.onnx", "onnx"), ("map.pt", "torch")])
def test_a_map_is_written_for_another_runtime(folder, tmp_path, name, package):
    pytest.importorskip(package)
    done("export", folder / "map one.safetensors", "--out", tmp_path / name)
    assert (tmp_path / name).stat().st_size > 100


def test_a_name_that_says_no_format_is_refused(folder, tmp_path):
    said = refused("export", folder / "map one.safetensors", "--out", tmp_path / "m.x")
    assert said == "m.x says neither ONNX (.onnx) nor torch (.pt); pass --format."

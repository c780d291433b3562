"""Apply maps with numpy, torch or ONNX."""

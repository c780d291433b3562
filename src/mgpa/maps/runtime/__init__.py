"""Runtimes that apply maps: numpy, torch and ONNX."""

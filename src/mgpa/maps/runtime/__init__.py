"""Maps at work: numpy, torch and ONNX."""

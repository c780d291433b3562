"""Read and write maps: one safetensors file per map, or folders written by the paper's original code."""

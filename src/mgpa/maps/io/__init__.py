"""Maps in files: one safetensors file per map, and folders written by the paper authors' code."""

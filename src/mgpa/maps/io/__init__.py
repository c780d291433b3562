"""Maps in files: one safetensors file per map, and folders written by the code of the paper's authors."""

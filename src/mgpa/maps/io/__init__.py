"""Maps in files: one safetensors file a map, and folders of the paper authors' own code."""

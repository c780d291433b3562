"""What modules of every layer use: array namespaces, checks, atomic files, progress, lazy names."""

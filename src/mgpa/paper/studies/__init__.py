"""Studies from a TOML file to tables and figures: the paper's four, and yours."""

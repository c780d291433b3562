"""Run studies described in TOML files, the paper's four or your own, and write their tables and figures."""

"""The paper's studies, each from its data or its model to its numbers, tables and figures."""

"""Properties are tried on random cases, the same ones each time."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**20)


def examples(n):
    """Return settings for a property tried on n examples."""
    return settings(
        max_examples=n, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )

"""What tests of figures share."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_fits(few_curves: None) -> None:
    """Figures are drawn with few prior curves."""

import pytest

from results.bad_input import BadInput
from results.rules.choice import check_chooses


def test_test_chooses_nothing_where_validation_can() -> None:
    with pytest.raises(BadInput, match=r"^test_error is only reported and cannot choose trials; use validation_error$"):
        check_chooses("test_error", ("test_error", "validation_error"))
    check_chooses("validation_error", ("test_error", "validation_error"))
    check_chooses("test_error", ("test_error", "validation_loss"))  # nothing else is there, as in stores of 0.1

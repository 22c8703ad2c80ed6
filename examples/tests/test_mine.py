import pytest
from mine import advantages, hasty_advantages

from annotator.testing import assert_conforms

NAMES = {"rewards": "token_level_rewards", "mask": "response_mask", "prompt": "group"}
HERE = {"scale": "group"}  # Ours has no such option: it always divides by the deviation.


def test_ours_is_verls():
    assert_conforms(advantages, "grpo-advantage", to="verl", mapping=NAMES, knobs=HERE)


def test_the_hasty_one_is_caught():
    with pytest.raises(AssertionError, match="smallest input"):
        assert_conforms(hasty_advantages, "grpo-advantage", to="verl", mapping=NAMES, knobs=HERE)

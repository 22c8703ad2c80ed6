"""The zoo met in the wild: plain files, as people write them, that know nothing of the catalogue.

Each file of ``tests/zoo/`` is either an equivalent rewriting, which must be found equal, or carries one deviation,
which must be found different and named. Numbers are those of the zoo.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from annotator import catalog
from annotator.contracts import diff

ZOO = Path(__file__).parents[1] / "zoo"
EXAMPLES = 8


@dataclass(frozen=True)
class Wild:
    """A function of a user. ``deviation`` is the catalogue's name for what is wrong with it, if anything is."""

    contract: str
    target: str
    deviation: str = ""
    number: int | None = None
    mapping: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.target.partition(":")[0].removesuffix(".py")


GRPO, DPO, SAMPLING, ADAMW = "grpo-advantage", "dpo-loss", "token-sampling", "adamw-step"
GRPO_NAMES = {"rewards": "token_level_rewards", "mask": "response_mask"}

WRONG = (
    Wild(GRPO, "grpo/np_std.py:compute_advantages", "population-std", 6),
    Wild(GRPO, "grpo/whiten_batch.py:advantage", "batch-statistics", 7),
    Wild(GRPO, "grpo/broadcast_only.py:group_advantage", "mask-forgotten", 12, GRPO_NAMES | {"prompt_ids": "group"}),
    Wild(GRPO, "grpo/rsqrt_style.py:advantages", "eps-inside-root"),
    Wild(GRPO, "grpo/visible_rewards.py:advantages", "masked-rewards-dropped"),
    Wild(GRPO, "grpo/reshape_groups.py:advantages", "groups-adjoin"),
    Wild(GRPO, "grpo/no_eps.py:advantages", "no-eps"),
    Wild(GRPO, "grpo/average_reward.py:advantages", "token-mean"),
    Wild(DPO, "dpo/ipo_sum.py:ipo", "ipo-sums-tokens", 19, {"tau": "beta"}),
    Wild(DPO, "dpo/pads.py:dpo", "pads-summed", 22),
    Wild(DPO, "dpo/swapped.py:dpo_loss", "sides-interchanged"),
    Wild(DPO, "dpo/half_graph.py:dpo", "rejected-detached"),
    Wild(DPO, "dpo/reference_free.py:loss", "no-reference"),
    Wild(DPO, "dpo/per_token.py:dpo", "averaged-over-tokens"),
    Wild(DPO, "dpo/log_of_sigmoid.py:dpo", "unstable-log-sigmoid"),
    Wild(DPO, "dpo/summed.py:dpo", "loss-summed"),
    Wild(SAMPLING, "sampling/no_temperature_in_logprobs.py:sample", "log-probabilities-at-temperature-one", 8),
    Wild(SAMPLING, "sampling/full_vocabulary_logprobs.py:sample", "not-renormalised", 9),
    Wild(SAMPLING, "sampling/raw_logprobs.py:sample", "raw-log-probabilities", 10),
    Wild(SAMPLING, "sampling/heat_last.py:sample", "temperature-last"),
    Wild(SAMPLING, "sampling/tight_nucleus.py:sample", "nucleus-without-crossing"),
    Wild(ADAMW, "adamw/adam_l2.py:train", "l2"),
    Wild(ADAMW, "adamw/cold_start.py:run", "no-correction"),
    Wild(ADAMW, "adamw/off_by_one.py:steps", "step-from-two"),
    Wild(ADAMW, "adamw/eps_under_root.py:adamw", "eps-inside-root"),
)

EQUAL = (
    Wild(GRPO, "grpo/equal_loops.py:advantages"),
    Wild(
        GRPO,
        "grpo/equal_matrix.py:advantages",
        mapping=GRPO_NAMES | {"prompt": "group", "epsilon": "eps", "adv": "advantages"},
    ),
    Wild(GRPO, "grpo/equal_segments.py:grpo"),
    Wild(GRPO, "grpo/equal_dr_grpo.py:unscaled"),
    Wild(DPO, "dpo/equal_softplus.py:dpo"),
    Wild(DPO, "dpo/equal_logaddexp.py:dpo"),
    Wild(DPO, "dpo/equal_ipo_loops.py:ipo"),
    Wild(SAMPLING, "sampling/equal_torch.py:sample"),
    Wild(SAMPLING, "sampling/equal_rows.py:sample"),
    Wild(SAMPLING, "sampling/equal_jax.py:sample"),
    Wild(ADAMW, "adamw/equal_loop.py:trajectory"),
    Wild(ADAMW, "adamw/equal_scan.py:trajectory"),
    Wild(
        ADAMW,
        "adamw/equal_numpy.py:trajectory",
        mapping={"start": "parameters", "grads": "gradients", "decay": "weight_decay"},
    ),
)


def verdict_on(wild: Wild):
    file, function = wild.target.split(":")
    contract = catalog.contract(wild.contract)
    return diff(ZOO / file, function, contract, mapping=wild.mapping, examples=EXAMPLES, timeout=120.0)


@pytest.mark.zoo
@pytest.mark.parametrize("wild", WRONG, ids=str)
def test_a_deviation_is_caught_and_named(wild):
    verdict = verdict_on(wild)
    assert not verdict.equal
    assert verdict.explanation is not None, verdict.headline()
    assert [item.name for item in verdict.explanation.deviations] == [wild.deviation]
    assert [item.zoo for item in verdict.explanation.deviations] == [wild.number]


@pytest.mark.zoo
@pytest.mark.parametrize("wild", EQUAL, ids=str)
def test_an_equivalent_rewriting_raises_no_alarm(wild):
    verdict = verdict_on(wild)
    assert verdict.equal, "\n".join(verdict.render())


COARSE = Wild(ADAMW, "adamw/coarse_correction.py:trajectory")


@pytest.mark.zoo
def test_the_same_mathematics_in_coarse_arithmetic_is_called_so():
    """1 - beta**t in float32: right on paper, and less accurate than the references, which take it in float64."""
    verdict = verdict_on(COARSE)
    assert not verdict.equal
    assert verdict.explanation is not None
    assert verdict.explanation.kind == "arithmetic"


def test_every_numbered_deviation_of_the_catalogue_is_met():
    numbered = {d.zoo for name in catalog.names() for d in catalog.contract(name).deviations if d.zoo is not None}
    assert numbered <= {wild.number for wild in WRONG}


@pytest.mark.parametrize("contract", catalog.names())
def test_each_contract_has_three_equivalent_rewritings(contract):
    assert sum(wild.contract == contract for wild in EQUAL) >= 3


def test_every_file_is_in_a_table_and_knows_nothing_of_the_catalogue():
    helpers = {"sampling/filters.py"}
    files = {path.relative_to(ZOO).as_posix(): path for path in ZOO.rglob("*.py")}
    assert set(files) - helpers == {wild.target.partition(":")[0] for wild in (*WRONG, *EQUAL, COARSE)}
    assert not [name for name, path in files.items() if {"annotator", "minimal"} & set(path.read_text().split())]

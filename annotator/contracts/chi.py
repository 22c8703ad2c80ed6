"""Whether drawn tokens follow stated probabilities: Pearson's chi-square at a fixed false-alarm rate.

Seeds are fixed, so a test that passes once passes always; the rate says how probable it was that the seed was unlucky.
"""

from __future__ import annotations

import numpy as np

FALSE_ALARM = 1e-6
"""The probability with which a correct sampler would be called wrong, over all tests of one finding together."""

DRAWS = 20_000

_SMALLEST_EXPECTED = 5.0


def p_value(tokens: np.ndarray, probabilities: np.ndarray) -> float:
    """How probable counts as far off as those of ``tokens [draws]`` are under ``probabilities [V]``.

    0 when a token outside the support was drawn, 1 when only one token can be. Cells that expect fewer than five draws
    are pooled, as the statistic's limit asks.
    """
    from scipy.stats import chi2

    if ((tokens < 0) | (tokens >= probabilities.size)).any():
        return 0.0
    counts = np.bincount(tokens, minlength=probabilities.size).astype(np.float64)
    if counts[probabilities <= 0].sum() > 0:
        return 0.0
    observed, expected = _pooled(counts, probabilities * (tokens.size / probabilities.sum()))
    if observed.size < 2:
        return 1.0
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic, observed.size - 1))


def _pooled(counts: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells with enough expected draws, the rare ones together as one (joined to the smallest if still too rare)."""
    large = expected >= _SMALLEST_EXPECTED
    observed, wanted = counts[large], expected[large]
    rest_observed, rest_wanted = counts[~large].sum(), expected[~large].sum()
    if rest_wanted >= _SMALLEST_EXPECTED:
        return np.append(observed, rest_observed), np.append(wanted, rest_wanted)
    if rest_wanted > 0 and wanted.size:
        smallest = int(wanted.argmin())
        observed[smallest] += rest_observed
        wanted[smallest] += rest_wanted
    return observed, wanted


def joint(p_values: list[float]) -> float:
    """The smallest of several p-values after Bonferroni's correction."""
    return min(1.0, min(p_values, default=1.0) * max(len(p_values), 1))

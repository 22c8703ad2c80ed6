"""DPO and its relatives: a preference pair becomes a loss without a reward model (JAX twin).

Direct preference optimisation (arXiv 2305.18290) solves the RLHF objective for the reward: up to a term that only
depends on the prompt, r(y) = beta log pi(y) / pi_ref(y). Put into the Bradley-Terry model of a preference of y_w
(chosen) over y_l (rejected), that term cancels and what is left is a loss on log-probabilities alone,

    L = -log sigmoid(beta (h_w - h_l)),      h = log pi(y) - log pi_ref(y)   (the log-ratio, in nats).

The relatives keep h and change what is asked of it: a margin (hinge), a target (IPO, SPPO), each side by itself
(NCA, BCO, APO), the order of the batch (AOT), noise in the labels (robust, EXO).

Axes: B pairs, T padded length of a completion. Log-probabilities are of single tokens, in nats. ``beta``
is the strength of the tie to pi_ref, without unit; for IPO it is the paper's tau.

``loss_type`` and ``f_divergence`` choose code, so they are static under ``jax.jit``; all numbers may be traced.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Pairs(NamedTuple):
    """What the losses see of the pairs. All [B]; w is the chosen completion, l the rejected one."""

    w: Array  # log pi(y_w), weighted by ld_alpha
    l: Array  # noqa: E741 - the paper's name; log pi(y_l)
    ref_w: Array  # log pi_ref(y_w)
    ref_l: Array  # log pi_ref(y_l)
    score_w: Array  # f'(pi / pi_ref) of y_w; for the reverse KL its log-ratio h_w
    score_l: Array  # the same of y_l
    nll_w: Array  # -log pi(y_w), unweighted
    length_w: Array  # real tokens of y_w
    length_l: Array  # real tokens of y_l

    @property
    def h_w(self) -> Array:
        """Log-ratio of the chosen completion, [B]."""
        return self.w - self.ref_w

    @property
    def h_l(self) -> Array:
        """Log-ratio of the rejected completion, [B]."""
        return self.l - self.ref_l

    @property
    def margin(self) -> Array:
        """How far the policy prefers the chosen completion more than the reference model does, [B]."""
        return self.score_w - self.score_l

    @property
    def margin_per_token(self) -> Array:
        """The margin of the scores' averages over tokens, [B]; an empty completion counts as one token."""
        return self.score_w / jnp.maximum(self.length_w, 1) - self.score_l / jnp.maximum(self.length_l, 1)


class Options(NamedTuple):
    """The numbers in the losses: strength, share of flipped labels, DiscoPOP's temperature."""

    beta: float
    label_smoothing: float
    discopop_tau: float


def sigmoid(p: Pairs, o: Options) -> Array:
    """DPO (2305.18290, eq. 7): -log sigmoid(beta margin), [B]."""
    return -jax.nn.log_sigmoid(o.beta * p.margin)


def sigmoid_norm(p: Pairs, o: Options) -> Array:
    """DPO on averages over tokens, [B]."""
    return -jax.nn.log_sigmoid(o.beta * p.margin_per_token)


def hinge(p: Pairs, o: Options) -> Array:
    """SLiC's hinge (2305.10425) on the normalised margin: max(0, 1 - beta margin), [B]."""
    return jax.nn.relu(1 - o.beta * p.margin)


def ipo(p: Pairs, o: Options) -> Array:
    """IPO (2310.12036, eq. 17): (margin - 1 / (2 tau))^2, on averages over tokens, [B]."""
    return (p.margin_per_token - 1 / (2 * o.beta)) ** 2


def exo_pair(p: Pairs, o: Options) -> Array:
    """EXO (2402.00856, eq. 16): KL of the model's preference from the smoothed label [1 - e, e], [B]."""
    m = o.beta * p.margin
    log_e, log_not_e = jnp.log(o.label_smoothing), jnp.log1p(-o.label_smoothing)
    q_w, q_l = jax.nn.sigmoid(m), jax.nn.sigmoid(-m)
    return q_w * (jax.nn.log_sigmoid(m) - log_not_e) + q_l * (jax.nn.log_sigmoid(-m) - log_e)


def nca_pair(p: Pairs, o: Options) -> Array:
    """NCA (2402.05369): raise the chosen, and pull both towards the reference model, [B]."""
    r_w, r_l = o.beta * p.h_w, o.beta * p.h_l
    return -jax.nn.log_sigmoid(r_w) - 0.5 * jax.nn.log_sigmoid(-r_w) - 0.5 * jax.nn.log_sigmoid(-r_l)


def robust(p: Pairs, o: Options) -> Array:
    """Robust DPO (2403.00409): unbiased when a share e < 1/2 of the labels is flipped, [B]."""
    m, e = o.beta * p.margin, o.label_smoothing
    return (-(1 - e) * jax.nn.log_sigmoid(m) + e * jax.nn.log_sigmoid(-m)) / (1 - 2 * e)


def bco_pair(p: Pairs, o: Options) -> Array:
    """BCO (2404.04656) without its moving shift: classify each side against 0, [B]."""
    return -jax.nn.log_sigmoid(o.beta * p.h_w) - jax.nn.log_sigmoid(-o.beta * p.h_l)


def sppo_hard(p: Pairs, o: Options) -> Array:
    """SPPO (2405.00675, eq. 4.7) with win probabilities 1 and 0: each log-ratio has a target, [B]."""
    return (p.h_w - 0.5 / o.beta) ** 2 + (p.h_l + 0.5 / o.beta) ** 2


def smoothed(m: Array, o: Options) -> Array:
    """-log sigmoid of m, with the label turned round in a share ``label_smoothing`` of the cases, [B]."""
    return -(1 - o.label_smoothing) * jax.nn.log_sigmoid(m) - o.label_smoothing * jax.nn.log_sigmoid(-m)


def aot(p: Pairs, o: Options) -> Array:
    """AOT (2406.05882), paired: quantiles of the policy's preferences against those of the reference model's, [B]."""
    return smoothed(o.beta * (jnp.sort(p.w - p.l) - jnp.sort(p.ref_w - p.ref_l)), o)


def aot_unpaired(p: Pairs, o: Options) -> Array:
    """AOT, unpaired: quantiles of the chosen log-ratios against those of the rejected, [B]."""
    return smoothed(o.beta * (jnp.sort(p.h_w) - jnp.sort(p.h_l)), o)


def apo_zero(p: Pairs, o: Options) -> Array:
    """APO-zero (2408.06266, eq. 7): the chosen up, the rejected down, [B]."""
    return jax.nn.sigmoid(-o.beta * p.h_w) + jax.nn.sigmoid(o.beta * p.h_l)


def apo_down(p: Pairs, o: Options) -> Array:
    """APO-down (2408.06266, eq. 8): both down, the rejected more, [B]."""
    return jax.nn.sigmoid(o.beta * p.h_w) + jax.nn.sigmoid(-o.beta * (p.h_w - p.h_l))


def discopop(p: Pairs, o: Options) -> Array:
    """DiscoPOP (2406.08414, eq. 5): from logistic to exponential as the margin grows, [B]."""
    m = o.beta * p.margin
    gate = jax.nn.sigmoid(m / o.discopop_tau)
    return (1 - gate) * -jax.nn.log_sigmoid(m) + gate * jnp.exp(-m)


def chosen_nll(p: Pairs) -> Array:
    """Negative log-likelihood of a chosen token: one mean over all of the batch, [B] -> []; of no token it is 0."""
    return p.nll_w.sum() / jnp.maximum(p.length_w.sum(), 1)


def sft(p: Pairs, o: Options) -> Array:
    """Plain likelihood of the chosen tokens, [B] (each entry the same)."""
    return jnp.full_like(p.nll_w, chosen_nll(p))


LOSSES = {
    "sigmoid": sigmoid,
    "sigmoid_norm": sigmoid_norm,
    "hinge": hinge,
    "ipo": ipo,
    "exo_pair": exo_pair,
    "nca_pair": nca_pair,
    "robust": robust,
    "bco_pair": bco_pair,
    "sppo_hard": sppo_hard,
    "aot": aot,
    "aot_unpaired": aot_unpaired,
    "apo_zero": apo_zero,
    "apo_down": apo_down,
    "discopop": discopop,
    "sft": sft,
}


def divergence_scores(h: Array, f_divergence: str) -> Array:
    """f'(t) at t = exp(h), the score that replaces the log-ratio under another divergence (2309.16240), [B] -> [B]."""
    if f_divergence == "forward_kl":
        return 1 - jnp.exp(-h)
    if f_divergence == "js_divergence":
        return math.log(2) + jax.nn.log_sigmoid(h)
    return h  # reverse_kl: f'(t) = log t + 1, and the 1 cancels in the margin


def shared_length(mask: Array, other: Array) -> Array:
    """The length that both completions of a pair reach, in tokens, [B, T] -> [B]."""
    return jnp.minimum(mask.sum(axis=1), other.sum(axis=1))  # [B]


def sequence_logps(logps: Array, mask: Array, shared: Array, ld_alpha: float) -> Array:
    """Log-probability of a completion: the sum over its real tokens, [B, T] -> [B].

    Masked slots are dropped before they meet any arithmetic: NaN times 0 would still be NaN. LD-DPO (2409.06411)
    gives the tokens beyond the ``shared`` length the weight ``ld_alpha``, so that length itself is not preferred.
    """
    real = jnp.where(mask, logps, 0.0)  # [B, T]
    tail = mask.cumsum(axis=1) > shared[:, None]  # [B, T]
    return jnp.where(tail, ld_alpha * real, real).sum(axis=1)  # [B, T] -> [B]


def collect_pairs(
    policy_chosen_logps: Array,
    policy_rejected_logps: Array,
    ref_chosen_logps: Array,
    ref_rejected_logps: Array,
    chosen_mask: Array,
    rejected_mask: Array,
    *,
    f_divergence: str = "reverse_kl",
    ld_alpha: float = 1.0,
) -> Pairs:
    """From tokens to completions: log-probabilities, scores and lengths of each pair, six times [B, T] -> `Pairs`."""
    shared = shared_length(chosen_mask, rejected_mask)  # [B]
    w = sequence_logps(policy_chosen_logps, chosen_mask, shared, ld_alpha)  # [B, T] -> [B]
    l = sequence_logps(policy_rejected_logps, rejected_mask, shared, ld_alpha)  # noqa: E741 - [B, T] -> [B]
    ref_w = jax.lax.stop_gradient(sequence_logps(ref_chosen_logps, chosen_mask, shared, ld_alpha))  # [B, T] -> [B]
    ref_l = jax.lax.stop_gradient(sequence_logps(ref_rejected_logps, rejected_mask, shared, ld_alpha))  # [B, T] -> [B]
    return Pairs(
        w=w,
        l=l,
        ref_w=ref_w,
        ref_l=ref_l,
        score_w=divergence_scores(w - ref_w, f_divergence),  # [B]
        score_l=divergence_scores(l - ref_l, f_divergence),  # [B]
        nll_w=-sequence_logps(policy_chosen_logps, chosen_mask, shared, 1.0),  # [B, T] -> [B]
        length_w=chosen_mask.sum(axis=1).astype(w.dtype),  # [B, T] -> [B]
        length_l=rejected_mask.sum(axis=1).astype(w.dtype),  # [B, T] -> [B]
    )


def dpo_loss(
    policy_chosen_logps: Array,
    policy_rejected_logps: Array,
    ref_chosen_logps: Array,
    ref_rejected_logps: Array,
    chosen_mask: Array,
    rejected_mask: Array,
    *,
    beta: float = 0.1,
    loss_type: str = "sigmoid",
    label_smoothing: float = 0.0,
    f_divergence: str = "reverse_kl",
    ld_alpha: float = 1.0,
    discopop_tau: float = 0.05,
    sft_weight: float = 0.0,
) -> tuple[Array, Array, Array]:
    """The mean loss of B pairs and the implicit rewards of both sides, six times [B, T] -> [], [B], [B].

    The rewards beta h are what is logged: detached, and of the log-ratio whatever the divergence. ``label_smoothing``
    is read by robust, exo_pair, aot and aot_unpaired only; ``discopop_tau`` by discopop only. ``sft_weight`` times
    the negative log-likelihood of the chosen tokens is added: RPO's alpha (2404.19733, third version, eq. 1), which
    keeps the chosen from growing unlikely along with the rejected.
    """
    pairs = collect_pairs(
        policy_chosen_logps,
        policy_rejected_logps,
        ref_chosen_logps,
        ref_rejected_logps,
        chosen_mask,
        rejected_mask,
        f_divergence=f_divergence,
        ld_alpha=ld_alpha,
    )
    preference = LOSSES[loss_type](pairs, Options(beta, label_smoothing, discopop_tau)).mean()  # [B] -> []
    loss = preference + sft_weight * chosen_nll(pairs)  # []
    return loss, jax.lax.stop_gradient(beta * pairs.h_w), jax.lax.stop_gradient(beta * pairs.h_l)  # [], [B], [B]

r"""The formula of each contract as a page shows it: LaTeX, one line an equation, and what its letters stand for.

Apart from the contracts, because a recorded proof rests on every byte of a contract's file, and how its formula is
set shows nothing about how it runs. Only what `annotator.site.formula` turns into MathML stands here: no
environments but ``cases``, words as ``\operatorname{}`` or ``\text{}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Formula:
    """Equations in LaTeX, and the meaning of each of their symbols."""

    lines: tuple[str, ...]
    symbols: Mapping[str, str] = field(default_factory=dict)


_RATIO = r"\rho_t = \pi(y_t) / \pi_\text{old}(y_t)"

FORMULAS: Mapping[str, Formula] = {
    "adamw-step": Formula(
        (
            r"m_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t",
            r"v_t = \beta_2 v_{t-1} + (1 - \beta_2) g_t^2",
            r"\theta_t = (1 - \eta \lambda) \theta_{t-1}"
            r" - \eta \frac{m_t / (1 - \beta_1^t)}{\sqrt{v_t / (1 - \beta_2^t)} + \varepsilon}",
        ),
        {
            r"g_t": "gradient of step t, counted from 1",
            r"m, v": "first and second moment, 0 at the start",
            r"\eta, \lambda": "learning rate and weight decay",
            r"\varepsilon": "eps",
        },
    ),
    "dpo-loss": Formula(
        (
            r"h(y) = \sum_t \log\, \frac{\pi(y_t)}{\pi_\text{ref}(y_t)}",
            r"L = -\operatorname{mean} \log\, \sigma \left( \beta \left( h(y_\text{chosen})"
            r" - h(y_\text{rejected}) \right) \right)",
        ),
        {
            r"h": "log-ratio of a completion, the sum over its real tokens",
            r"\beta": "strength of the tie to the reference model",
            r"\sigma": "the logistic function; this is the loss type sigmoid, the others ask something else of h",
        },
    ),
    "gae": Formula(
        (
            r"\delta_t = r_t + \gamma V'_t - V_t",
            r"A_t = \sum_{k \ge 0} (\gamma \lambda)^k \delta_{t+k}",
            r"R_t = A_t + V_t",
        ),
        {
            r"V'_t": "value of the next real step; 0 after a termination",
            r"\gamma, \lambda": "discount, and what weighs bias against variance",
            r"R_t": "the return, which the critic is taught",
        },
    ),
    "gradient-clipping": Formula(
        (
            r"n = \left( \sum_i | g_i |^p \right)^{1/p}",
            r"g \leftarrow g \cdot \min \left( 1, \frac{c}{n + \varepsilon} \right)",
        ),
        {
            r"n": "norm of the whole gradient, over every tensor on every shard",
            r"p": "norm_type; infinity takes the largest entry",
            r"c": "max_norm",
        },
    ),
    "grpo-advantage": Formula(
        (
            r"A_{i,t} = m_{i,t} \frac{r_i - \operatorname{mean}(r)}{\operatorname{std}(r) + \varepsilon}",
            r"\operatorname{std}(r)^2 = \frac{1}{G - 1} \sum_{j=1}^{G} ( r_j - \operatorname{mean}(r) )^2",
        ),
        {
            r"r_i": "reward of response i, the sum over its tokens",
            r"r": "rewards of the G responses to the same prompt",
            r"m_{i,t}": "1 at the tokens that the policy wrote, else 0",
        },
    ),
    "kl-cov": Formula(
        (
            _RATIO,
            r"c_t = ( \log\, \pi(y_t) - \operatorname{mean} \log\, \pi ) ( A_t - \operatorname{mean} A )",
            r"\ell_t = -A_t \rho_t + \begin{cases} \kappa | \log\, \rho_t | & \text{where } c_t \text{ is among the"
            r" largest} \\ 0 & \text{elsewhere} \end{cases}",
        ),
        {
            r"c_t": "covariance of a token; means over the tokens of the whole train batch",
            r"\kappa": "coef; the largest are the share of tokens with the largest covariance",
        },
    ),
    "kl-penalty": Formula(
        (
            r"d = \log\, \pi(y_t) - \log\, \pi_\text{ref}(y_t)",
            r"k_1 = d, \quad k_2 = d^2 / 2, \quad k_3 = e^{-d} - 1 + d",
        ),
        {r"y_t": "the token that was drawn from the policy"},
    ),
    "kto-loss": Formula(
        (
            r"h = \log\, \pi(y) - \log\, \pi_\text{ref}(y), \quad z_0 = \max \left( 0, \operatorname{mean} h' \right)",
            r"L = \operatorname{mean} \begin{cases} w_D \left( 1 - \sigma(\beta (h - z_0)) \right) & \text{good}"
            r" \\ w_U \left( 1 - \sigma(\beta (z_0 - h)) \right) & \text{bad} \end{cases}",
        ),
        {
            r"h'": "the same log-ratio of mismatched completions; without gradient",
            r"z_0": "what gains and losses are counted from; 0 in APO-zero",
            r"w_D, w_U": "weights of good and of bad completions",
        },
    ),
    "loss-aggregation": Formula(
        (
            r"L = \sum_{i,t} m_{i,t} w_i \ell_{i,t}",
            r"w_i = \begin{cases} D / N & \text{token-mean} \\ D & \text{token-sum} \\ D / S &"
            r" \text{seq-mean-token-sum} \\ D / (S H) & \text{seq-mean-token-sum-norm}"
            r" \\ D / (S n_i) & \text{seq-mean-token-mean} \end{cases}",
        ),
        {
            r"D": "data-parallel ranks, whose gradients are averaged",
            r"N, S": "tokens and responses of the whole batch",
            r"n_i": "tokens of response i",
            r"H": "horizon, a constant",
        },
    ),
    "orpo-loss": Formula(
        (
            r"\log\, \operatorname{odds}(y) = \log\, p(y) - \log (1 - p(y))",
            r"L = L_\text{NLL} - \beta \operatorname{mean} \log\, \sigma \left("
            r" \log\, \operatorname{odds}(y_\text{chosen}) - \log\, \operatorname{odds}(y_\text{rejected}) \right)",
        ),
        {
            r"\log\, p(y)": "average log-probability of a completion's tokens",
            r"L_\text{NLL}": "negative log-likelihood of the chosen side, one mean over its tokens",
            r"\beta": "weight of the odds ratio's term",
        },
    ),
    "policy-loss": Formula(
        (
            _RATIO,
            r"\ell_t = -w_t \min \left( \min(\rho_t, c) A_t, \operatorname{clip}(\rho_t, 1 - \epsilon_\text{low},"
            r" 1 + \epsilon_\text{high}) A_t \right) + \beta k_t",
            r"k_t = e^d - d - 1, \quad d = \log\, \pi_\text{ref}(y_t) - \log\, \pi(y_t)",
        ),
        {
            r"A_t": "advantage of a token",
            r"c": "dual_clip, which matters for a negative advantage only",
            r"w_t": "the engine's importance weight, where it is used",
            r"\beta": "kl_coef; the token losses are then aggregated",
        },
    ),
    "position-ids": Formula(
        (r"p_{i,t} = \sum_{s<t} m_{i,s} \quad \text{where } m_{i,t} = 1",),
        {r"m": "1 at real tokens, 0 at padding, wherever it lies"},
    ),
    "prefix-cache": Formula(
        (
            r"h_i = H(h_{i-1}, x_{(i-1) b + 1}, \dots, x_{i b})",
            r"\operatorname{hit}(x_1, \dots, x_n) = b \cdot \max \lbrace k : h_1, \dots, h_k \text{ are remembered},"
            r" k b \le n - 1 \rbrace",
        ),
        {r"h_i": "hash of block i, which names the whole prefix", r"b": "block_size", r"n": "tokens of the prompt"},
    ),
    "rejection-sampling": Formula(
        (
            r"P(x \text{ stands}) = \min \left( 1, \frac{p(x)}{q(x)} \right)",
            r"P(v \text{ replaces } x) = \frac{\max(p(v) - q(v), 0)}{\sum_u \max(p(u) - q(u), 0)}",
        ),
        {
            r"p, q": "the target's and the draft's distribution at the position",
            r"x": "the token that was drafted, drawn from q",
        },
    ),
    "remax-advantage": Formula(
        (r"A_t = \sum_{s \ge t} m_s r_s - b",),
        {
            r"b": "reward of the greedy reply to the same prompt",
            r"m_s": "1 at the tokens that the policy wrote, else 0",
        },
    ),
    "rloo-advantage": Formula(
        (r"A_{i,t} = m_{i,t} \left( r_i - \frac{1}{G - 1} \sum_{j \ne i} r_j \right)",),
        {
            r"r_j": "rewards of the G responses to the same prompt",
            r"m_{i,t}": "1 at the tokens that the policy wrote, else 0",
        },
    ),
    "rope": Formula(
        (
            r"\theta_i = b^{-2i/R}",
            r"x' = x \cos (m \theta_i) - y \sin (m \theta_i)",
            r"y' = y \cos (m \theta_i) + x \sin (m \theta_i)",
        ),
        {
            r"m": "position of the token",
            r"(x, y)": "a pair: coordinates i and i + R/2 (NeoX), or 2i and 2i + 1 (GPT-J)",
            r"b, R": "base, and how many coordinates of a head turn",
        },
    ),
    "terminal-reward": Formula(
        (r"r_{i,t} = \begin{cases} s_i & \text{where } t = n_i - 1 \\ 0 & \text{elsewhere} \end{cases}",),
        {r"s_i": "score of response i", r"n_i": "its tokens; positions are counted from 0"},
    ),
    "token-log-probs": Formula(
        (
            r"\log\, \pi(y) = \frac{z_y}{T} - \log\, \sum_v \exp\, \frac{z_v}{T}",
            r"H = -\sum_v \pi(v) \log\, \pi(v)",
        ),
        {r"z": "logits", r"T": "temperature that the tokens were drawn at", r"v": "runs over the vocabulary"},
    ),
    "token-sampling": Formula(
        (
            r"z \leftarrow \begin{cases} z / r & \text{seen, } z > 0 \\ z r & \text{seen, } z \le 0 \\ z & \text{else}"
            r" \end{cases}",
            r"z \leftarrow \frac{z - f c - p [c > 0]}{T}",
            r"\text{then min-p, top-k and top-p remove tokens, in this order}",
            r"\log\, \pi = \operatorname{log} \operatorname{softmax}(z)",
        ),
        {
            r"r, f, p": "repetition, frequency and presence penalties",
            r"c": "how often a token stands in the output",
            r"T": "temperature; below 1e-5 the row is greedy",
        },
    ),
    "value-loss": Formula(
        (
            r"v'_t = \operatorname{clip}(v_t, V_t - \epsilon, V_t + \epsilon)",
            r"\ell_t = \frac{1}{2} \max \left( (v_t - R_t)^2, (v'_t - R_t)^2 \right)",
        ),
        {
            r"v_t, V_t": "what the critic says now, and what it said at rollout",
            r"R_t": "the return",
            r"\epsilon": "clip_range",
        },
    ),
}

"""The first update of GRPO in verl: rewards become advantages on the driver, and multiply the actor's ratio.

G prompts with n responses each, B = G·n rows of T slots; a prompt's responses are equally long. Every other response
is right, but for the last prompt's, which are all wrong. The actor has not moved since it sampled: its
log-probabilities are those of then, as in the first pass over a batch.
"""

from typing import Any

from annotator import pins

SIZES = ({"B": 6, "T": 5, "G": 3, "n": 2}, {"B": 28, "T": 9, "G": 7, "n": 4})


def run(B: int, T: int, G: int, n: int) -> Any:
    """The token mean of the policy loss, to be differentiated with respect to the actor's log-probabilities."""
    import numpy as np
    import torch

    core = pins.load("verl:verl.trainer.ppo.core_algos")
    trainer = pins.load("verl:verl.trainer.ppo.ray_trainer")
    protocol = pins.load("verl:verl.protocol")
    config = pins.load("verl:verl.workers.config").ActorConfig(
        strategy="fsdp", rollout_n=n, ppo_micro_batch_size_per_gpu=B, clip_ratio=0.2, use_dynamic_bsz=False
    )

    row = torch.arange(B)
    length = row // n % (T - 1) + 2
    mask = (torch.arange(T) < length[:, None]).float()  # [B, T]
    rewards = torch.zeros(B, T)
    rewards[row, length - 1] = ((row % 2 == 0) & (row < B - n)).float()  # at the last token, as verl's managers put it
    uid = np.array([f"prompt {number // n}" for number in range(B)], dtype=object)
    tensors = {"token_level_rewards": rewards, "response_mask": mask}
    batch = protocol.DataProto.from_dict(tensors=tensors, non_tensors={"uid": uid})
    batch = trainer.compute_advantage(batch, core.AdvantageEstimator.GRPO, num_repeat=n)

    log_prob = torch.linspace(-2.0, -0.5, B * T).reshape(B, T).requires_grad_()
    loss, _ = core.compute_policy_loss_vanilla(
        old_log_prob=log_prob.detach(),
        log_prob=log_prob,
        advantages=batch.batch["advantages"],
        response_mask=mask,
        loss_agg_mode="token-mean",
        config=config,
    )
    return loss

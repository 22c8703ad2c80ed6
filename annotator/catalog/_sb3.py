"""Stable-Baselines3 on a scripted world: real algorithm, real vectorised environment, real rollout buffer.

What an episode's end means is decided in three places there: the environment wrapper marks a time limit and keeps the
last observation, ``collect_rollouts`` adds the discounted value of that observation to the reward, and the buffer runs
the recursion. So the adapter lets all three run. Only the seams are given: what the world shows (observations whose one
number is the critic's value), what the critic says of them (that number), and the width of the buffer's arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from annotator import pins
from annotator.catalog._third_party import quiet

Script = Mapping[str, Any]
"""``rewards``, ``values``, ``terminated``, ``truncated`` and ``final_values`` [B, T], ``last_values`` [B]."""


@functools.cache
def _classes() -> tuple[Any, Any, Any]:
    """The world, its critic and the buffer, as classes of the pinned ones."""
    with quiet():
        buffers = pins.load("stable-baselines3:stable_baselines3.common.buffers")
        import gymnasium
        import torch

    class World(gymnasium.Env):
        """Plays one row of a script, whatever is done in it."""

        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self) -> None:
            self.row: dict[str, Any] = {}
            self.t = 0

        def play(self, row: dict[str, Any]) -> None:
            self.row, self.t = row, 0

        def _seen(self) -> Any:
            values = self.row.get("values", np.zeros(1))
            return np.array([values[self.t] if self.t < len(values) else self.row["last_values"]])

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return self._seen(), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            t, row = self.t, self.row
            self.t += 1
            ended, limited = bool(row["terminated"][t]), bool(row["truncated"][t])
            seen = np.array([row["final_values"][t]]) if ended or limited else self._seen()
            return seen, float(row["rewards"][t]), ended, limited, {}

    class Critic:
        """Stands where the policy does: the value of an observation is the number in it."""

        def __init__(self, dtype: Any) -> None:
            self.dtype = dtype

        def set_training_mode(self, mode: bool) -> None:
            """It has no modes."""

        def predict_values(self, seen: Any) -> Any:
            return seen.to(self.dtype)  # [B, 1]

        def obs_to_tensor(self, seen: Any) -> tuple[Any, bool]:
            return torch.as_tensor(seen)[None], False  # [1, 1]

        def __call__(self, seen: Any) -> tuple[Any, Any, Any]:
            nothing = torch.zeros(len(seen))
            return nothing.long(), self.predict_values(seen), nothing

    class Buffer(buffers.RolloutBuffer):  # type: ignore[misc, name-defined]
        """The rollout buffer with arrays as wide as the case's; the pinned one always takes float32."""

        width = np.float32

        def reset(self) -> None:
            super().reset()
            for name in ("rewards", "returns", "values", "advantages", "episode_starts"):
                setattr(self, name, getattr(self, name).astype(self.width))

    return World, Critic, Buffer


@dataclass
class Stage:
    """A real algorithm on a real vectorised environment of so many rows."""

    algorithm: Any
    worlds: list[Any] = field(default_factory=list)


@functools.cache
def stage(rows: int) -> Stage:
    """Built once for each number of rows."""
    with quiet():
        world, _, _ = _classes()
        worlds = [world() for _ in range(rows)]
        vectorised = pins.load("stable-baselines3:stable_baselines3.common.vec_env.dummy_vec_env")
        a2c = pins.load("stable-baselines3:stable_baselines3.a2c.a2c")
        env = vectorised.DummyVecEnv([functools.partial(lambda made: made, made) for made in worlds])
        return Stage(a2c.A2C("MlpPolicy", env, n_steps=2, device="cpu", policy_kwargs={"net_arch": []}), worlds)


def rollout(script: Script, *, gamma: float, lam: float, dtype: Any) -> Any:
    """Let the algorithm collect the scripted rollout; the filled buffer. ``dtype`` is torch's."""
    import torch

    width = np.float64 if dtype == torch.float64 else np.float32
    rows, steps = script["rewards"].shape
    made = stage(rows)
    algorithm, (_, critic, buffer_class) = made.algorithm, _classes()
    for i, world in enumerate(made.worlds):
        world.play({name: array[i] for name, array in script.items()})
    with quiet():
        space = algorithm.env
        space.buf_rews = np.zeros(rows, dtype=width)  # the wrapper keeps rewards in float32
        algorithm.policy, algorithm.gamma = critic(dtype), gamma
        buffer = type("Buffer", (buffer_class,), {"width": width})(
            steps, space.observation_space, space.action_space, "cpu", gae_lambda=lam, gamma=gamma, n_envs=rows
        )
        _, callback = algorithm._setup_learn(steps * rows, progress_bar=False)
        algorithm.collect_rollouts(space, callback, buffer, n_rollout_steps=steps)
    return buffer

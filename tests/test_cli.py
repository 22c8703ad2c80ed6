"""The command line as a user meets it: exit codes, one-line errors, JSON, no colours in a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from annotator.cli import cli
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[1]
INDEXED = Workspace.find(ROOT).index.is_file()
needs_index = pytest.mark.skipif(not INDEXED, reason="the pins are not fetched and indexed here")


def annotator(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tool as a user would, its output piped."""
    return subprocess.run(
        [sys.executable, "-m", "annotator.cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("verb", list(cli.commands))
def test_every_verb_explains_itself(verb: str) -> None:
    shown = annotator(verb, "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith(f"Usage: annotator.cli {verb}") or f" {verb} " in shown.stdout.splitlines()[0]


@pytest.mark.parametrize("verb", [verb for verb in cli.commands if verb != "serve"])
def test_every_verb_but_serve_speaks_json(verb: str) -> None:
    assert "--json" in annotator(verb, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fnd", "x"], ["fnd", "expected a verb", "did you mean find"]),
        (["nonsense"], ["expected a verb", "verbs: fetch, index"]),
        (["fetch", "vrel"], ["vrel", "did you mean verl"]),
        (["fetch", "--mirror", "torch-cpp"], ["--mirror", "expected NAME=VALUE"]),
        (["read", "grpo-advantag"], ["expected a reading", "verl/grpo-advantage"]),
        (["conform", "grpo-advantages"], ["expected a contract of the catalogue", "did you mean grpo-advantage"]),
        (["diff", "mine.py", "grpo-advantage"], ["expected FILE:FUNC CONTRACT", "for example: annotator diff"]),
        (["diff", "absent.py:f", "grpo-advantage"], ["absent.py"]),
        (["-C", "tests", "--debug", "fetch", "--nope"], ["No such option", "--nope"]),
    ],
)
def test_a_mistake_brings_one_line_and_exit_code_2(arguments: list[str], parts: list[str]) -> None:
    shown = annotator(*arguments)
    assert shown.returncode == 2, shown
    assert "Traceback" not in shown.stderr
    for part in parts:
        assert part in shown.stderr
    if shown.stderr.startswith("error:"):
        assert len(shown.stderr.strip().splitlines()) == 1


def test_outside_a_checkout_the_place_and_the_remedy_are_named(tmp_path: Path) -> None:
    shown = annotator("fetch", cwd=tmp_path, ANNOTATOR_ROOT=str(tmp_path))
    assert shown.returncode == 2
    assert str(tmp_path) in shown.stderr
    assert "set ANNOTATOR_ROOT" in shown.stderr


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in annotator("--debug", "fetch", "vrel").stderr


@needs_index
def test_find_gives_definition_signature_uses_readings_and_contracts() -> None:
    shown = annotator("find", "compute_grpo_outcome_advantage", "--json")
    assert shown.returncode == 0, shown.stderr
    first = json.loads(shown.stdout)[0]
    assert first["symbol"] == "verl:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"
    assert "token_level_rewards" in first["signature"]
    told = {"reading": "verl/grpo-advantage", "step": "scores", "contract": "grpo-advantage"}
    assert told in first["readings"]
    assert first["contracts"] == ["grpo-advantage"]
    assert any(use["path"] == "verl/trainer/ppo/ray_trainer.py" for use in first["uses"])


@needs_index
def test_find_shows_calls_and_chains_of_them() -> None:
    shown = annotator("find", "compute_grpo_outcome_advantage", "--callers", "--json")
    made = [c for c in json.loads(shown.stdout)["calls"] if c["path"].endswith("ray_trainer.py")]
    assert [c["certainty"] for c in made] == ["exact", "inferred"]  # by its name, and by way of the registry
    assert "ADV_ESTIMATOR_REGISTRY" in made[1]["reason"]
    call = made[0]
    assert call["caller"] == "verl:verl.trainer.ppo.ray_trainer.compute_advantage"
    assert call["place"].endswith(f"ray_trainer.py:{call['line']}")
    shown = annotator("find", "PPOTrainer._compute_advantage", "--callees", "--limit", "2")
    assert [line.split(",")[0].strip() for line in shown.stdout.splitlines()[1:4:2]] == ["calls", "calls"]
    assert shown.stdout.splitlines()[-1].endswith("--limit shows them")
    shown = annotator("find", "--path", "compute_advantage", "compute_grpo_outcome_advantage", "--json")
    assert [c["callee"] for c in json.loads(shown.stdout)["calls"]] == [call["callee"]]


@needs_index
def test_find_shows_what_a_line_leads_to() -> None:
    place = annotator("find", "compute_grpo_outcome_advantage", "--json", "--limit", "1")
    use = next(use for use in json.loads(place.stdout)[0]["uses"] if not use["text"].startswith(("from", "import")))
    shown = annotator("find", "--at", use["place"], "--json")
    (link,) = [one for one in json.loads(shown.stdout)["links"] if one["name"] == "compute_grpo_outcome_advantage"]
    assert (link["certainty"], link["column"]) == ("exact", use["column"])
    assert link["target"] == "verl:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"
    plain = annotator("find", "--at", f"{use['place']}:{use['column']}")
    assert plain.stdout.count("exact") == 1
    assert "\x1b" not in plain.stdout
    assert annotator("find", "--at", "verl/nowhere.py:1").returncode == 2


@needs_index
def test_index_tells_how_much_is_unresolved() -> None:
    shown = annotator("index", "trl", "--unresolved", "--sample", "3", "--json")
    (row,) = json.loads(shown.stdout)
    assert (row["pin"], row["language"], row["files"]) == ("trl", "python", 3)
    assert row["exact"] + row["inferred"] + row["unresolved"] == pytest.approx(1)
    assert sum(row["reasons"].values()) == round(row["unresolved"] * row["identifiers"])
    assert "% unresolved" in annotator("index", "trl", "--unresolved", "--sample", "3").stdout


@needs_index
def test_find_shows_what_a_registered_name_stands_for() -> None:
    shown = annotator("find", "--registered", "grpo", "--json")
    (row,) = (row for row in json.loads(shown.stdout) if row["registry"] == "register_adv_est")
    assert row["target"] == "verl:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"
    shown = annotator("find", "LlamaForCausalLM", "--registered", "--pin", "vllm")
    assert shown.stdout.startswith("vllm:vllm.model_executor.models.llama.LlamaForCausalLM  inferred")
    shown = annotator("find", "--registered", "gprogpro")
    assert shown.returncode == 2
    assert "a name that is registered" in shown.stderr


@needs_index
def test_find_shows_what_declares_and_reads_a_configuration_key() -> None:
    shown = json.loads(annotator("find", "--config", "actor.clip_ratio", "--json", "--limit", "2").stdout)
    first, field = shown["declared"]
    assert first["place"].startswith("vendored_refs/verl/verl/trainer/config/actor/actor.yaml:")
    assert first["target"] == "verl:verl.workers.config.actor.ActorConfig.clip_ratio"
    assert (field["how"], len(shown["reads"]), shown["more"]) == ("field", 2, True)
    shown_ = annotator("find", "--config", "--gpu-memory-utilization", "--pin", "vllm")
    assert shown_.stdout.startswith("CacheConfig.gpu_memory_utilization  field\n")
    shown_ = annotator("find", "--config", "actor.clip_ratoi")
    assert (shown_.returncode, shown_.stdout) == (2, "")
    assert "a configuration key" in shown_.stderr
    assert "clip_ratio" in shown_.stderr


@needs_index
def test_find_shows_what_computes_a_metric() -> None:
    (row,) = json.loads(annotator("find", "--metric", "critic/score/mean", "--json").stdout)["logged"]
    assert (row["path"], row["certainty"]) == ("verl/trainer/ppo/metric_utils.py", "exact")
    assert row["hops"][0]["text"].startswith("score_mean = ")
    shown = annotator("find", "--metric", "rewards/some_func/mean")
    assert "inferred, its name is put together: rewards/{reward_func_name}/mean" in shown.stdout
    shown = annotator("find", "--metric", "critic/scor/mean")
    assert shown.returncode == 2
    assert "did you mean critic/score/mean" in shown.stderr


@needs_index
def test_a_chain_that_is_not_there_is_said_with_exit_code_1() -> None:
    shown = annotator("find", "--path", "compute_grpo_outcome_advantage", "compute_advantage")
    assert shown.returncode == 1
    assert shown.stdout.startswith("no chain of calls from verl:")


@pytest.mark.parametrize(
    "given", [[], ["a", "--path", "b", "c"], ["a", "--callers", "--callees"], ["--config", "a", "--metric", "b"]]
)
def test_find_takes_one_question_at_a_time(given: list[str]) -> None:
    shown = annotator("find", *given)
    assert shown.returncode == 2
    assert "expected NAME" in shown.stderr


@needs_index
def test_find_suggests_near_matches() -> None:
    shown = annotator("find", "compute_grpo_outcome_advantge")
    assert shown.returncode == 2
    assert "compute_grpo_outcome_advantage" in shown.stderr


@needs_index
def test_a_pipe_gets_no_colours_and_no_progress() -> None:
    shown = annotator("find", "compute_grpo_outcome_advantage")
    assert "\x1b" not in shown.stdout + shown.stderr
    assert shown.stderr == ""


@needs_index
def test_read_tours_every_step_with_its_code() -> None:
    shown = annotator("read", "grpo-advantage", "--json")
    steps = json.loads(shown.stdout)
    assert [step["id"] for step in steps].count("scores") == 1
    for step in steps:
        assert len(step["code"]) == step["last"] - step["first"] + 1
        assert step["note"]


def test_listing_contracts_is_fast_enough_to_need_nothing() -> None:
    rows = json.loads(annotator("conform", "--list", "--json").stdout)
    assert {row["contract"] for row in rows} >= {"grpo-advantage", "dpo-loss", "token-sampling", "adamw-step"}

"""Configuration keys on a little Hydra application: where they are declared, what they become, what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.index import Index
from annotator.index.composition import Setting, refers, settings
from annotator.index.configuration import Configured, configured, near
from tests.index.trees import indexed

TREE = {
    "app/__init__.py": "",
    "app/main.py": (
        "import hydra\n"
        "from omegaconf import DictConfig, OmegaConf\n"
        "from .configs import ActorConfig, FastActorConfig, Other\n"
        "@hydra.main(config_path='conf', config_name='train')\n"
        "def main(config):\n"
        "    run(config.worker.actor)\n"
        "    actor = config.worker.actor\n"
        "    print(actor.clip)\n"
        "    print(OmegaConf.select(config, 'worker.actor.clip'), config['worker']['actor'].get('clip', 1))\n"
        "def run(config: ActorConfig, critic_config=None, other: Other = None, box=None):\n"
        "    a = config.clip\n"
        "    b = critic_config.clip\n"
        "    c = other.clip\n"
        "    d = box.clip\n"
        "    e = config.clip()\n"
        "    return FastActorConfig(clip=0.5)\n"
        "def either(config: DictConfig | ActorConfig):\n"
        "    return config.get('clip')\n"
        "def held(actor_config, optim):\n"
        "    return actor_config.clip, optim.lr\n"
        "TABLE = {'clip': 1}\n"
        "class Trainer:\n"
        "    def __init__(self, config: ActorConfig):\n"
        "        self.limit = config.clip\n"
        "        self.double = 2 * config.clip; self.made = build(config.clip)\n"
        "    def step(self):\n"
        "        self.limit = 5\n"
        "        return self.limit + self.double + float(\n"
        "            self.made)\n"
        "class Stranger:\n"
        "    def step(self):\n"
        "        return self.limit\n"
    ),
    "app/configs.py": (
        "from dataclasses import dataclass\n"
        "DEFAULTS = None\n"
        "@dataclass\n"
        "class ActorConfig:\n"
        "    clip: float = 0.2\n"
        "    def check(self):\n"
        "        assert self.clip > 0\n"
        "@dataclass\n"
        "class FastActorConfig(ActorConfig):\n"
        "    speed: int = 1\n"
        "    optim: OptimConfig = None\n"
        "@dataclass\n"
        "class OptimConfig:\n"
        "    half: int = 2\n"
        "@dataclass\n"
        "class EngineArgs:\n"
        "    clip_speed: float = FastActorConfig.speed\n"
        "    def add(self, parser):\n"
        "        parser.add_argument('--clip-speed')\n"
        "class Other:\n"
        "    clip: float = 9\n"
    ),
    "app/conf/train.yaml": (
        "defaults:\n"
        "  - engine: fast\n"
        "  - actor@worker.actor: ${engine}_actor\n"
        "  - optional extra@extra: missing\n"
        "  - _self_\n"
        "worker:\n"
        "  size: 4\n"
        "limit: ${oc.select:worker.actor.clip,1}\n"
        "again: ${limit}\n"
    ),
    "app/conf/small.yaml": "defaults:\n  - train\n  - override engine: slow\n  - _self_\nworker:\n  size: 1\n",
    "app/conf/plain.yaml": "clip: 7\n",
    "app/conf/engine/fast.yaml": "# @package _global_\nengine: fast\n",
    "app/conf/engine/slow.yaml": "# @package _global_\nengine: slow\n",
    "app/conf/actor/base.yaml": (
        "_target_: app.configs.ActorConfig\nclip: 0.1\noptim:\n  lr: 1\n  half: ${.lr}\n  twice: ${..clip}\n"
    ),
    "app/conf/actor/fast_actor.yaml": (
        "defaults:\n  - ../optim@optim: sgd\n  - base\n  - _self_\n_target_: app.configs.FastActorConfig\nspeed: 3\n"
    ),
    "app/conf/actor/slow_actor.yaml": "defaults:\n  - base\nclip: 0.3\nslow: true\n",
    "app/conf/optim/sgd.yaml": "lr: 2\nmomentum: 0.9\n",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("configuration"), app=TREE) as opened:
        yield opened


def declared(found: Configured) -> set[tuple[str, str, str]]:
    return {(item.key, f"{item.path.rpartition('/')[2]}:{item.line}", item.note) for item in found.declared}


def reads(found: Configured) -> set[tuple[str, int, str]]:
    return {(item.path.rpartition("/")[2], item.line, item.certainty) for item in found.reads}


TRAIN = "in app/conf/train.yaml"


@pytest.mark.parametrize("key", ["worker.actor.clip", "actor.clip", "worker.clip", "+worker.actor.clip=0.2"])
def test_declarations_by_full_and_partial_keys(index: Index, key: str) -> None:
    assert declared(configured(index, key)) >= {("worker.actor.clip", "base.yaml:2", TRAIN)}
    (field,) = {item.target.symbol for item in configured(index, key).declared if item.target}
    assert field == "app:app.configs.ActorConfig.clip"


def test_a_key_that_several_files_set(index: Index) -> None:
    found = declared(configured(index, "actor.optim.lr"))
    assert ("worker.actor.optim.lr", "base.yaml:4", TRAIN) in found
    assert ("worker.actor.optim.lr", "sgd.yaml:1", f"{TRAIN}, overridden") in found


def test_declarations_in_effect_come_first(index: Index) -> None:
    found = [(item.path.rpartition("/")[2], item.note) for item in configured(index, "worker.actor.clip").declared]
    assert found[0] == ("base.yaml", TRAIN)
    assert ("slow_actor.yaml", "in app/conf/small.yaml") in found


def test_what_a_choice_brings_is_said_to_need_it(index: Index) -> None:
    assert declared(configured(index, "actor.slow")) == {
        ("worker.actor.slow", "slow_actor.yaml:4", "in app/conf/small.yaml")
    }, "small.yaml makes the choice, so nothing is left to choose"
    assert ("worker.actor.momentum", "sgd.yaml:2", TRAIN) not in declared(configured(index, "momentum"))


def test_files_that_no_application_reaches_declare_nothing(index: Index) -> None:
    assert all("plain.yaml" not in place for _, place, _ in declared(configured(index, "clip")))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("worker.actor.optim.half", ("worker.actor.optim.lr app/conf/actor/base.yaml:4 1",)),
        ("worker.actor.optim.twice", ("worker.actor.clip app/conf/actor/base.yaml:2 0.1",)),
        (
            "again",
            (
                "limit app/conf/train.yaml:8 ${oc.select:worker.actor.clip,1}",
                "worker.actor.clip app/conf/actor/base.yaml:2 0.1",
            ),
        ),
        ("worker.size", ()),
    ],
)
def test_interpolations_are_followed(index: Index, key: str, expected: tuple[str, ...]) -> None:
    assert configured(index, key).declared[0].refers == expected


def test_a_section_becomes_its_class(index: Index) -> None:
    found = {item.target and item.target.symbol for item in configured(index, "worker.actor").declared}
    assert found == {"app:app.configs.FastActorConfig"}
    (target, *_) = configured(index, "worker.actor._target_").declared
    assert target.target is not None
    assert target.target.symbol == "app:app.configs.FastActorConfig"


def test_a_section_without_a_class_has_that_of_the_field_that_holds_it(index: Index) -> None:
    (yaml, field) = configured(index, "worker.actor.optim.half").declared
    assert yaml.target is not None
    assert yaml.target.symbol == "app:app.configs.OptimConfig.half"
    assert (field.how, field.key) == ("field", "OptimConfig.half")
    assert {item.target for item in configured(index, "worker.size").declared} == {None}, "what nothing holds has none"


def test_a_field_leads_back_to_the_yaml(index: Index) -> None:
    assert ("worker.actor.clip", "base.yaml:2", TRAIN) in declared(configured(index, "ActorConfig.clip"))
    assert declared(configured(index, "Other.clip")) == set(), "no class of configuration"


def test_an_option_is_the_field_that_is_spelt_like_it(index: Index) -> None:
    found = configured(index, "--clip-speed")
    assert declared(found) == {("EngineArgs.clip_speed", "configs.py:17", ""), ("--clip-speed", "configs.py:19", "")}
    assert found.declared[0].target is not None
    assert found.declared[0].target.symbol == "app:app.configs.FastActorConfig.speed"


def test_reads(index: Index) -> None:
    found = configured(index, "worker.actor.clip")
    assert reads(found) == {
        ("configs.py", 7, "exact"),
        ("main.py", 11, "exact"),
        ("main.py", 16, "exact"),
        ("train.yaml", 8, "exact"),
        ("base.yaml", 6, "exact"),
        ("main.py", 8, "inferred"),
        ("main.py", 9, "inferred"),
        ("main.py", 18, "inferred"),
        ("main.py", 20, "inferred"),
        ("main.py", 24, "exact"),
        ("main.py", 25, "exact"),
        ("main.py", 28, "inferred"),
    }, "not of a critic, of another class, of a box, no call, no key of a table"
    assert [read.how for read in found.reads if read.line == 16] == ["set"]
    assert [read.how for read in found.reads if read.line == 28] == ["copy"]
    assert ("main.py", 20, "inferred") in reads(configured(index, "optim.lr")), "called like its section"


def test_unknown_keys_bring_near_ones(index: Index) -> None:
    assert configured(index, "actor.clop").declared == ()
    assert near(index, "actor.clop") == ("worker.actor.clip",)
    assert near(index, "zzzz") == ()


def effective(found: list[Setting], primary: str) -> dict[str, str]:
    return {
        setting.dotted: setting.value
        for setting in found
        if setting.primary == primary and setting.kind == "value" and not setting.choice and not setting.overridden
    }


def composed_by_hydra(folder: Path, name: str) -> dict[str, object]:
    hydra = pytest.importorskip("hydra")
    omegaconf = pytest.importorskip("omegaconf")
    with hydra.initialize_config_dir(version_base=None, config_dir=str(folder.resolve())):
        whole = omegaconf.OmegaConf.to_container(hydra.compose(name), resolve=False)
    return dict(leaves(whole, ""))


def leaves(node: object, above: str) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, f"{above}.{key}" if above else str(key))
    else:
        yield above, node


def loaded(value: str) -> object:
    yaml = pytest.importorskip("yaml")
    return value if "${" in value else yaml.safe_load(value)


def alike(written: str, value: object) -> bool:
    if str(loaded(written)) == str(value):
        return True
    try:
        return float(written) == float(str(value))
    except ValueError:
        return False


def agree_with_hydra(index: Index, pin: str, primary: str) -> int:
    folder, _, name = primary.rpartition("/")
    ours = effective(settings(index, pin), primary)
    theirs = composed_by_hydra(index.workspace.tree(pin) / folder, name.removesuffix(".yaml"))
    assert set(ours) == set(theirs)
    assert [key for key in theirs if not alike(ours[key], theirs[key])] == []
    return len(theirs)


@pytest.mark.parametrize("name", ["train", "small"])
def test_it_composes_as_hydra_does(index: Index, name: str) -> None:
    assert agree_with_hydra(index, "app", f"app/conf/{name}.yaml") > 5


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer", "sft_trainer_engine", "evaluation"])
def test_it_composes_the_pin_as_hydra_does(pins: Index, name: str) -> None:
    assert agree_with_hydra(pins, "verl", f"verl/trainer/config/{name}.yaml") > 8


def test_references_of_a_value() -> None:
    where = ("a.yaml", 1, 0)
    setting = Setting(("x", "y"), *where, "${oc.select:a.b,${c}} ${.z} ${..w} ${oc.env:HOME}", "value", "a.yaml")
    assert refers(setting) == [("a", "b"), ("c",), ("x", "z"), ("w",)]

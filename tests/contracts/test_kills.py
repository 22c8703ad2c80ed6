"""The power of a contract: what catches each deviation, and what is refused."""

import dataclasses

import pytest

from annotator.contracts import Deviation, Kill, dialect_is_real, power, refuse
from annotator.contracts.kills import survivors
from annotator.errors import ContractError
from tests.contracts import toy

SLOPPY = dataclasses.replace(toy.REFERENCE, requires=("no_such_library",))


def _rows(dtype="float64", **changes):
    return {row.deviation: row for row in power(toy.contract(**changes), examples=10) if row.dtype == dtype}


def test_the_matrix_says_which_probe_caught_what():
    rows = _rows()
    assert rows["padded"].probes == ("value", "gradient", "edge") or "value" in rows["padded"].probes
    assert "gradient" in rows["cut"].probes
    assert "value" not in rows["cut"].probes
    assert rows["poisoned"].probes == ("edge",)
    assert rows["poisoned"].case == "NaN under the mask"
    assert all(isinstance(row, Kill) and row.caught and "caught by" in row.line() for row in rows.values())


def test_a_contract_that_sees_its_deviations_is_not_refused():
    refuse(toy.contract(), examples=10)
    assert survivors(toy.contract(), examples=10) == []


UNSEEN = [
    ({"edges": lambda: ()}, "poisoned"),  # without the edge nothing puts NaN under the mask
    ({"deviations": (Deviation("twin", "nothing", "nothing", toy.mean_torch),)}, "twin"),
]


@pytest.mark.parametrize(("changes", "name"), UNSEEN)
def test_a_contract_under_which_a_deviation_survives_is_refused(changes, name):
    assert not _rows(**changes)[name].caught
    assert "SURVIVES" in _rows(**changes)[name].line()
    with pytest.raises(ContractError, match=f"survives {name} in float64, {name} in float32"):
        refuse(toy.contract(**changes), examples=10)


def test_a_bound_set_by_an_inexact_reference_is_seen_to_be_too_wide():
    """In float32 this reference errs by 10 percent, and 20 percent then pass: the float32 row shows that."""

    def rough(values, mask, eps):
        out = toy.mean_torch(values, mask, eps)
        return {**out, "mean": out["mean"] * (1.1 if values.dtype.itemsize == 4 else 1.0)}

    def slightly(values, mask, eps):
        out = toy.mean_torch(values, mask, eps)
        return {**out, "mean": out["mean"] * 1.05}

    changes = {
        "implementations": (dataclasses.replace(toy.REFERENCE, call=rough),),
        "deviations": (Deviation("slightly", "5 percent more", "exact", slightly),),
    }
    assert _rows("float64", **changes)["slightly"].caught
    assert not _rows("float32", **changes)["slightly"].caught
    assert survivors(toy.contract(**changes), examples=10) == ["slightly in float32"]


def test_a_deviation_must_run():
    def broken(values, mask, eps):
        raise ZeroDivisionError

    made = toy.contract(deviations=(Deviation("broken", "raises", "runs", broken),))
    for ask in (power, survivors):
        with pytest.raises(ContractError, match="ZeroDivisionError"):
            ask(made, examples=2)


def test_power_needs_a_reference():
    with pytest.raises(ContractError, match="no_such_library"):
        power(toy.contract(implementations=(SLOPPY,)), examples=2)


def test_a_dialect_is_real_when_moving_its_knob_shows():
    made = toy.contract(implementations=(toy.REFERENCE, toy.MINIMAL[1]))
    assert dialect_is_real(made, "ref", examples=10) == []


def test_a_dialect_that_nothing_depends_on_is_not_real():
    def without(values, mask, eps):
        return toy.mean_numpy(values, mask, 1e-6)

    numb = dataclasses.replace(toy.MINIMAL[1], call=without)
    made = toy.contract(implementations=(toy.REFERENCE, numb))
    assert dialect_is_real(made, "ref", examples=10) == ["eps=0.0001"]

"""Prefix caching in small facts that can be checked by hand: blocks of two tokens, block 0 kept aside."""

from __future__ import annotations

import pytest

from minimal.serving.prefix_cache import PrefixCache

A, B = [1, 2, 3, 4], [5, 6, 7, 8]


def cache(*words, num_blocks=8, block_size=2):
    made = PrefixCache(num_blocks, block_size)
    for name, *arguments in words:
        getattr(made, name)(*arguments)
    return made


def test_blocks_are_given_out_from_the_front_of_the_queue():
    made = cache(("allocate", 0, A), ("allocate", 1, [9]))
    assert made.block_table == [3]
    assert made.eviction_order == [4, 5, 6, 7]
    assert made.free_blocks == 4


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [
        (A, 2),  # all of it is remembered, and the last token is computed all the same
        ([*A, 9], 4),
        ([1, 2, 3], 2),
        ([1, 2], 0),
        ([1, 2, 9, 4, 5], 2),
        ([9, 2, 3, 4, 5], 0),
        ([3, 4, 5], 0),
    ],
)
def test_the_longest_run_of_full_blocks_is_hit(prompt, cached):
    made = cache(("allocate", 0, A), ("lookup", prompt))
    assert (made.cached_tokens, made.query_tokens) == (cached, len(prompt) - cached)


def test_a_partial_block_is_remembered_once_it_is_full():
    asked = ("lookup", [*A, 9])
    assert cache(("allocate", 0, A[:3]), asked).cached_tokens == 2
    assert cache(("allocate", 0, A[:3]), ("append", 0, A[3:]), asked).cached_tokens == 4


def test_a_block_is_free_when_the_last_request_lets_go_of_it():
    both = (("allocate", 0, [*A, 9]), ("allocate", 1, [*A, 8]))
    assert cache(*both).references[1:5] == [2, 2, 1, 1]
    assert cache(*both, ("free", 0)).eviction_order == [3, 5, 6, 7]
    assert cache(*both, ("free", 0), ("free", 1)).eviction_order == [4, 3, 5, 6, 7, 2, 1]


def test_what_is_given_out_anew_is_no_longer_hit():
    gone = (("allocate", 0, A), ("free", 0), ("allocate", 1, B))
    assert cache(*gone, ("lookup", [*A, 9]), num_blocks=5).cached_tokens == 4
    assert cache(*gone, ("lookup", [*A, 9]), num_blocks=4).cached_tokens == 2


def test_what_is_hit_is_not_given_out():
    made = cache(("allocate", 0, A), ("free", 0), ("allocate", 1, [*A, 9]), num_blocks=4)
    assert made.block_table == [1, 2, 3]
    assert not made.free_blocks


def test_of_two_blocks_with_one_content_the_first_is_hit_until_it_is_evicted():
    twice = (("allocate", 0, A), ("allocate", 1, A))
    assert cache(*twice).block_table == [1, 3]
    assert cache(*twice, ("allocate", 2, [*A, 9])).block_table == [1, 2, 4]
    assert cache(*twice, ("free", 0), ("allocate", 2, B), ("lookup", [*A, 7]), num_blocks=5).cached_tokens == 4


def test_a_reset_forgets_all_and_keeps_the_order():
    made = cache(("allocate", 0, A), ("free", 0), ("reset",), ("lookup", [*A, 9]))
    assert made.cached_tokens == 0
    assert made.eviction_order == [3, 4, 5, 6, 7, 2, 1]
    assert cache(("allocate", 0, A), ("reset",), ("lookup", [*A, 9])).cached_tokens == 4


@pytest.mark.parametrize(
    "word", [("allocate", 0, B), ("allocate", 1, [*B, 9]), ("append", 0, [*B, 9]), ("append", 7, B), ("free", 7)]
)
def test_what_cannot_be_done_changes_nothing(word):
    before, after = (cache(("allocate", 0, A), *more, num_blocks=5) for more in ((), (word,)))
    assert after.block_table == []
    for name in ("eviction_order", "references", "hash_of", "blocks_of", "requests"):
        assert getattr(before, name) == getattr(after, name), name


def test_a_prompt_is_not_the_callers_list():
    prompt = list(A)
    made = cache(("allocate", 0, prompt), ("append", 0, [5]))
    assert prompt == A
    assert made.requests[0].tokens == [*A, 5]


def test_block_size_three():
    made = cache(("allocate", 0, [1, 2, 3, 4]), ("lookup", [1, 2, 3, 4, 5, 6]), block_size=3)
    assert made.cached_tokens == 3

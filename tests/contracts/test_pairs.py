"""Few rows of a product hold every pair of two axes' values."""

import itertools

import pytest

from tests.contracts import pairs as pairs_lib

_AXES = ('abcdefgh', range(7), [(), (4,), (2, 3)])


def _covered(rows):
  return set().union(*(pairs_lib.of(*row) for row in rows))


@pytest.mark.parametrize('num_axes', [2, 3])
def test_every_pair_of_two_axes_is_in_a_row(num_axes):
  axes = _AXES[:num_axes]
  rows = pairs_lib.pairs(*axes)
  product = list(itertools.product(*axes))
  assert set(rows) <= set(product) and len(set(rows)) == len(rows)
  assert _covered(rows) == _covered(product)
  # The negative control: no row is there for nothing.
  for row in rows:
    assert _covered(set(rows) - {row}) < _covered(product)


def test_three_axes_take_hardly_more_rows_than_the_two_longest():
  assert 8 * 7 <= len(pairs_lib.pairs(*_AXES)) <= 8 * 7 + 3


def test_what_must_meet_can_be_chosen():
  met = lambda a, b, c: pairs_lib.of(a, c) | pairs_lib.of(b, c)
  rows = pairs_lib.pairs(*_AXES, met=met)
  assert len(rows) == 8 * 3
  assert set().union(*(met(*row) for row in rows)) == set().union(
    *(met(*row) for row in itertools.product(*_AXES))
  )


def test_the_rows_are_always_the_same():
  assert pairs_lib.pairs(*_AXES) == pairs_lib.pairs(*_AXES)

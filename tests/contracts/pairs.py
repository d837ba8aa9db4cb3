"""Few cases of many axes: each two values of two axes meet in one of them."""

import itertools

__all__ = ['of', 'pairs']


def of(*values):
  """Returns the pairs of values at two positions, a set."""
  return set(itertools.combinations(enumerate(values), 2))


def pairs(*axes, met=of):
  """Returns few rows of the product of axes that meet all that its rows meet.

  Greedy: the row that meets most of what is missing; of several the one with
  most new pairs, then the first. So the same axes give the same rows.

  Args:
    *axes: Iterables of values.
    met: (*row) -> what meets in a row, a set. By default all of its pairs.

  Returns:
    A list of tuples with one value of each axis, in the order of the product.
  """
  rows = {row: met(*row) for row in itertools.product(*axes)}
  missing = set().union(*rows.values())
  chosen, seen = set(), set()
  while missing:
    best = max(rows, key=lambda r: (len(rows[r] & missing), len(of(*r) - seen)))
    chosen.add(best)
    missing -= rows[best]
    seen |= of(*best)
  return [row for row in rows if row in chosen]

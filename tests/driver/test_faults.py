"""Runs that are killed, meet a full disk, an exception or a second writer."""

import json

import pytest

from tests.driver import child
from tests.driver import faults

# What the run that met a fault must say. A killed one says nothing.
_WORDS = {
  'disk full': 'No space left',
  'exception': ('KeyboardInterrupt', 'planted'),
  'two writers': 'in use by process',
}


@pytest.mark.nightly
@pytest.mark.parametrize('kind', faults.COUNTS)
def test_a_run_that_met_a_fault_ends_with_the_bits_of_one_that_did_not(kind):
  told = child.run('-m', faults.__name__, kind)
  rows = [json.loads(line) for line in told.splitlines()]
  assert len(rows) == faults.COUNTS[kind]
  for row in rows:
    assert row['same_bits'], row
    # At most the block in progress is computed twice.
    assert 0 <= row['num_lost'] <= 1, row
    if kind.startswith('killed'):
      # A random moment may come after the end.
      assert row['is_killed'] or kind == 'killed', row
    else:
      words = _WORDS[kind]
      words = words if isinstance(words, str) else words[not row['stage']]
      assert words in row['told'], row
  if kind.startswith('killed'):
    assert sum(row['is_killed'] for row in rows) > len(rows) // 2

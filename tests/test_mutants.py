"""The list of slips fits the code, and the tests that it names exist."""

import ast
import collections

import pytest

from tests import mutants

_MUTANTS = mutants.read()
_OTHER = mutants.Mutant('family', 'other', 'file', 'a + b', 'a - b', ())


def test_every_slip_can_be_made_and_is_still_python():
  for mutant in _MUTANTS:
    text = (mutants.ROOT / mutant.file).read_text()
    ast.parse(mutants.apply(mutant, text))


def test_every_test_that_is_named_exists():
  for mutant in _MUTANTS:
    assert mutant.tests, mutant.what
    for test in mutant.tests:
      file, *names = test.split('::')
      tree = ast.parse((mutants.ROOT / file).read_text())
      functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
      assert {name.split('[')[0] for name in names} <= functions, test


def test_slips_are_many_differ_and_are_of_all_families():
  assert len(_MUTANTS) >= 40
  assert len({m.what for m in _MUTANTS}) == len(_MUTANTS)
  assert len({(m.file, m.old, m.new) for m in _MUTANTS}) == len(_MUTANTS)
  counts = collections.Counter(m.family for m in _MUTANTS)
  assert min(counts.values()) > 1


@pytest.mark.parametrize('text', ['a - b', 'a + b, a + b'])
def test_a_text_that_is_not_there_once_is_refused(text):
  with pytest.raises(ValueError, match='times in file, not once'):
    mutants.apply(_OTHER, text)


def test_a_line_that_lacks_a_field_is_refused_by_its_number():
  with pytest.raises(ValueError, match='Line 2 .* has 3 fields'):
    mutants.read('# what it is\na || b || c\n')

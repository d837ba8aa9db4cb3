"""The list of slips fits the code, and the tests that it names exist."""

import ast

import pytest

from tests import mutants


@pytest.mark.parametrize('mutant', mutants.read(), ids=lambda m: m.what)
def test_a_slip_can_be_made_and_its_test_exists(mutant):
  slip = mutants.apply(mutant, (mutants.ROOT / mutant.file).read_text())
  ast.parse(slip)
  file, _, name = mutant.test.partition('::')
  text = (mutants.ROOT / file).read_text()
  assert f'def {name.partition("[")[0]}' in text


@pytest.mark.parametrize('text', ['a - b', 'a + b, a + b'])
def test_a_text_that_is_not_there_once_is_refused(text):
  other = mutants.Mutant('other', 'file', 'a + b', 'a - b', '')
  with pytest.raises(ValueError, match='times in file, not once'):
    mutants.apply(other, text)

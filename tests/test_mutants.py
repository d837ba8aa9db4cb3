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

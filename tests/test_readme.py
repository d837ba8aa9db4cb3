"""The README: short, its examples run, its numbers are those of the records."""

import pathlib
import re

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / 'README.md'
TEXT = README.read_text()
PAGES = (README, ROOT / 'docs' / 'choose.md')
EXAMPLES = [
  pytest.param(example, id=f'{page.stem}-{i}')
  for page in PAGES
  for i, example in enumerate(
    re.findall(r'```python\n(.*?)```', page.read_text(), re.DOTALL)
  )
]
_KEYS = ('method', 'target')
_MOST_LINES = 170


def test_the_readme_has_at_most_170_lines():
  assert len(TEXT.splitlines()) <= _MOST_LINES


def test_there_is_an_example_of_each_kind():
  text = '\n'.join(example.values[0] for example in EXAMPLES)
  for name in (
    'sample_posterior',
    'langevin',
    'marginal_gradient',
    'kernel_hamiltonian',
  ):
    assert name in text


@pytest.mark.full
@pytest.mark.parametrize('example', EXAMPLES)
def test_examples_run_and_move(example):
  names = {}
  exec(compile(example, 'example', 'exec'), names)
  if 'posterior' in names:
    assert names['posterior'].converged
    return
  states = names['result'].states
  num_results, num_chains = states.shape[:2]
  assert num_results in (500, 2000) and num_chains in (4, 10)
  # The coordinate's deviation is 1, or 0.4 for a log intensity given counts.
  assert np.std(np.asarray(states)[..., 0]) > 0.25


@pytest.mark.nightly
def test_the_verdict_shown_is_what_the_first_example_prints(capsys):
  code, shown = re.search(
    r'```python\n(.*?)```\n\n```text\n(.*?)```', TEXT, re.DOTALL
  ).groups()
  exec(compile(code, str(README), 'exec'), {})
  printed = capsys.readouterr().out
  # Numbers are those of a processor and its load; what was found is not.
  for text in (
    'Converged: 1000 draws of 8 chains, 10 coordinates',
    'conditional Gaussian driven by spread, mean',
  ):
    assert text in printed and text in shown

"""The README: short, its examples run, its numbers are those of the records."""

import json
import pathlib
import re

import numpy as np
import pytest

from experiments.documentation import readme_table

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


def test_the_table_of_results_is_made_from_the_records():
  assert readme_table.with_table(TEXT) == TEXT


def test_a_number_that_was_changed_by_hand_does_not_stay():
  changed = re.sub(r'\| \d+\.\d \|$', '| 4.56 |', TEXT, count=1, flags=re.M)
  assert changed != TEXT
  assert readme_table.with_table(changed) == TEXT


def test_the_table_shows_losses_as_well_as_wins():
  _, *lines = re.findall(r'^\| .* \|$', TEXT.partition('<!--')[2], re.M)
  losses = [line for line in lines if line.endswith('** |')]
  assert 0 < len(losses) < len(lines)
  ratios = [float(line.split('|')[-2].strip(' *')) for line in lines]
  assert [ratio < 1 for ratio in ratios] == [line in losses for line in lines]


def test_numbers_are_read_from_the_cell_that_is_named():
  assert readme_table.value('gp_wine', 'Chains', 'KMC finite', '10') == 10
  # ESS (min, med, max), and one with a comma in thousands.
  assert readme_table.value('heart', 'ESS (min, med, max)', 'AM') == 319.1
  line = 'gadMALAf, dense, 5000 adaptation steps'
  adapting = 'Gradients, adapting'
  assert readme_table.value('brownian_motion', adapting, line) == 50000


def test_a_number_of_chains_that_disagree_has_a_star():
  line = 'nutpie (low rank)'
  assert readme_table.value('brownian_motion', 'largest R-hat', line) > 1.01
  assert 'nutpie, low rank: 75\\* |' in TEXT
  # The negative control: one within the bound.
  assert 'mGrad: 932 |' in TEXT


def test_a_cell_that_is_not_there_is_refused():
  with pytest.raises(ValueError, match='no line .*NUTZ'):
    readme_table.value('heart', 'ESS (min, med, max)', 'NUTZ')
  with pytest.raises(ValueError, match="column 'Speed'"):
    readme_table.value('heart', 'Speed', 'AM')
  with pytest.raises(ValueError, match='needs the lines'):
    readme_table.with_table('# Nothing')


def test_the_counts_in_words_are_those_of_the_records():
  results = ROOT / 'docs' / 'results'
  pairs = json.loads((results / 'inference_gym/summary.json').read_text())
  wrong = sum(pair['outcomes']['biased'] for pair in pairs)
  right = sum(pair['outcomes']['passed'] for pair in pairs)
  assert f'{wrong} of {wrong + right} such runs' in TEXT
  methods, targets = ({pair[key] for pair in pairs} for key in _KEYS)
  assert f'{len(methods)} samplers on {len(targets)} targets' in TEXT
  calibration = (results / 'calibration.md').read_text()
  assert f'{calibration.count("| passes |")} kernels pass' in TEXT

"""Every Python example of the README runs as it stands."""

import pathlib
import re

import numpy as np
import pytest

README = pathlib.Path(__file__).resolve().parent.parent / 'README.md'
EXAMPLES = re.findall(r'```python\n(.*?)```', README.read_text(), re.DOTALL)


def test_the_readme_has_an_example_of_each_driver():
  assert any('sample_chain' in example for example in EXAMPLES)
  assert any('tfpa.sample(' in example for example in EXAMPLES)


@pytest.mark.parametrize('example', EXAMPLES)
def test_readme_examples_run_and_move(example):
  names = {}
  exec(compile(example, str(README), 'exec'), names)
  states = names['states'] if 'states' in names else names['result'].states
  num_results, num_chains = states.shape[:2]
  assert num_results == 500 and num_chains in (4, 10)
  # The coordinate's deviation is 1, or 0.4 for a log intensity given counts.
  assert np.std(np.asarray(states)[..., 0]) > 0.25

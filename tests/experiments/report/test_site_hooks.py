"""Notebooks and docstrings become pages of the site."""

import json
import pathlib
import re

import pytest

from experiments.report import docstrings
from experiments.report import notebooks

_DOCS = pathlib.Path(__file__).resolve().parents[3] / 'docs'
_NOTEBOOKS = sorted(_DOCS.glob('tutorials/*.ipynb'))
_MOST_BYTES = 300_000

each_notebook = pytest.mark.parametrize(
  'path', _NOTEBOOKS, ids=[path.stem for path in _NOTEBOOKS]
)


@each_notebook
def test_notebooks_are_executed_and_small(path):
  assert path.stat().st_size < _MOST_BYTES
  cells = json.loads(path.read_text())['cells']
  code = [c for c in cells if c['cell_type'] == 'code']
  counts = [cell['execution_count'] for cell in code]
  assert counts == list(range(1, len(code) + 1)), 'not run in order'
  for output in (output for cell in code for output in cell['outputs']):
    assert output['output_type'] != 'error'
    assert not re.search(r'/(home|root|work|tmp|usr)/', json.dumps(output))


@each_notebook
def test_notebooks_become_pages_with_their_figures(path):
  notebook = json.loads(path.read_text())
  text, images = notebooks.to_markdown(notebook, path.stem)
  assert text.startswith('# ')
  assert text.count('```') % 2 == 0
  assert images
  for name, content in images.items():
    assert f'({name})' in text
    assert content[:4] == b'\x89PNG'


def test_outputs_are_fenced_even_where_they_hold_fences():
  cell = {
    'cell_type': 'code',
    'source': ['print("```")'],
    'outputs': [{'name': 'stdout', 'text': ['```\n', 'x\n']}],
  }
  text, images = notebooks.to_markdown({'cells': [cell]}, 'a')
  assert text == '````python\nprint("```")\n````\n\n````text\n```\nx\n````\n'
  assert not images


class _Stream(dict):
  text = property(
    lambda self: self['text'], lambda self, text: self.update(text=text)
  )


def test_readers_see_only_the_warnings_that_a_cell_writes_to_stderr():
  log = 'I0000 00:00:1 cudart_stub.cc:31] no GPU\n'
  said = '/tmp/cell.py:3: UserWarning: R-hat is 2.\n  run = sample()\n'
  shown = _Stream(name='stderr', text=log + said)
  assert notebooks._is_shown('a', shown)
  assert shown.text == 'UserWarning: R-hat is 2.\n'
  assert not notebooks._is_shown('a', _Stream(name='stderr', text=log))
  with pytest.raises(RuntimeError, match='wrote to stderr'):
    notebooks._is_shown('a', _Stream(name='stderr', text='Traceback'))


def test_formulas_are_fenced_and_sections_left_alone():
  text = 'First.\n\n  a = b\n\n    c\n\nLast:\n\n  d\n\nArgs:\n  e: f\n    g.'
  assert docstrings.with_fenced_formulas(text) == (
    'First.\n\n\n```text\na = b\n\n  c\n```\n\n'
    'Last:\n\n  d\n\nArgs:\n  e: f\n    g.'
  )


def test_fields_are_explained_by_the_comment_beside_or_above():
  lines = [
    '# Not this.',
    'x: int',
    '# Two',
    '# lines.',
    'y: int',
    'z: int  # z',
  ]
  assert docstrings.comment_of(lines, 5) == 'Two lines.'
  assert docstrings.comment_of(lines, 6) == 'z'
  assert docstrings.comment_of(['w: int', 'x: int'], 2) == ''

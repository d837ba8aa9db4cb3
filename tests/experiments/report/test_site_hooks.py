"""Notebooks and docstrings become pages of the site."""

import pytest

from experiments.report import docstrings
from experiments.report import formulas
from experiments.report import notebooks


def test_outputs_are_fenced_even_where_they_hold_fences():
  cell = {
    'cell_type': 'code',
    'source': ['print("```")'],
    'outputs': [
      {'name': 'stdout', 'text': ['```\n', 'x\n']},
      {'data': {'image/png': 'iVBORw==', 'text/plain': 'a figure'}},
    ],
  }
  text, images = notebooks.to_markdown({'cells': [cell]}, 'a')
  assert text == (
    '````python\nprint("```")\n````\n\n````text\n```\nx\n````\n\n'
    '![Figure 1](a_1.png)\n'
  )
  assert images == {'a_1.png': b'\x89PNG'}


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


def test_formulas_are_pictures_that_hang_below_the_baseline():
  page = formulas.drawn(
    '<p><span class="arithmatex">\\(y &lt; 1\\)</span>.</p>'
  )
  assert page.startswith('<p><span class="formula"><svg')
  assert 'aria-label="y &lt; 1"' in page and 'vertical-align:-0.' in page
  with pytest.raises(ValueError, match='unknown'):
    formulas.drawn('<div class="arithmatex">\\[\\unknown\\]</div>')

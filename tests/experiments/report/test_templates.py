"""Tables from records: their filters, their rounding, and the whole site."""

import pathlib

import jinja2
import pytest

from experiments.report import records
from experiments.report import templates
from experiments.run import store

_ROOT = pathlib.Path(templates.__file__).resolve().parents[2]


@pytest.fixture
def kept(monkeypatch):
  """Returns a list: the records that pages see."""
  found = []
  monkeypatch.setattr(records, '_read', lambda study: found)
  return found


def _record(case, seed=0, **values):
  return store.Record('any', case, seed, None, 'finished', values)


def test_rows_are_grouped_filtered_and_joined_in_their_order(kept):
  kept += [
    _record('b', 0, x=1.0, y=3),
    _record('a', 0, x=5.0, y=1),
    _record('b', 1, x=4.0, y=2),
  ]
  text = templates.render(
    "{% for case, found in rows('any')|groups('case') %}"
    "{{ case }} {{ found|each('min(x, y)')|median|digits('.1f') }} "
    "{{ found|having('x > 2')|count }} {% endfor %}"
  )
  assert text == 'b 1.5 1 a 1.0 1 '


def test_what_a_record_does_not_have_is_an_error_and_no_gap(kept):
  kept += [_record('a', x=1.0)]
  for text in (
    "{{ rows('any')[0].y }}",
    "{{ rows('any')|each('y')|median }}",
    "{{ rows('any')|having('y > 1')|count }}",
  ):
    with pytest.raises(jinja2.UndefinedError, match='y'):
      templates.render(text)


@pytest.mark.parametrize(
  'value, text',
  [
    (None, '-'),
    (0, '0'),
    (0.00012, '1.2e-04'),
    (0.0123, '0.012'),
    (1.0, '1.00'),
    (12.34, '12.3'),
    (123.4, '123'),
    (99999.4, '99999'),
    (123456.0, '1.2e+05'),
  ],
)
def test_numbers_have_three_digits_and_no_exponent_if_possible(value, text):
  assert templates.number(value) == text


@pytest.mark.full
def test_every_page_is_filled_in_from_its_records():
  """`make docs` builds the site strictly; it needs the extra `docs`."""
  sources = [path.read_text() for path in (_ROOT / 'docs').rglob('*.md')]
  pages = [text for text in sources if templates.is_template(text)]
  assert len(pages) > 50
  for page in pages:
    text = templates.render(page)
    assert '{{' not in text and '{%' not in text, page

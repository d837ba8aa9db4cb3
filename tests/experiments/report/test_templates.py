"""Tables from records: their filters, their rounding, and the whole site."""

import pathlib

import jinja2
import pytest

from experiments.papers import tables
from experiments.report import compare_sites
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


def test_cells_of_runs_show_what_is_unknown_singular_or_failed():
  record = dict.fromkeys(
    [
      *('seconds', 'accept_rate', 'ess_min', 'ess_median', 'ess_max'),
      *('ess_squared', 'ess_log_prob', 'min_ess_per_second'),
      *('min_ess_per_second_sd', 'median_ess_per_second'),
      *('min_ess_per_sampling_second', 'median_ess_per_sampling_second'),
      *('min_ess_per_gradient', 'median_ess_per_gradient', 'ess_bulk'),
      *('ess_tail', 'rhat_max', 'rhat_median', 'entropy_weight'),
      *('condition_number', 'step_size', 'compile_seconds'),
    ]
  )
  record.update(
    num_finished=2, num_failed=1, num_singular=3, rhat_max=1e16, ess_min=1.25,
    min_ess_per_second=7.0,
  )  # fmt: skip
  names = tables.columns([record])
  assert not set(tables.LATENT) & set(names)
  cells = dict(zip(names, tables.cells(record, names)))
  assert cells['ESS (min, med, max)'] == '(1.2, -, -)'
  # One repeat has no deviation.
  assert cells['Min ESS/s (1 st.d.), median'] == '7.00, -'
  assert cells['R-hat (max, med)'] == '> 1000, -'
  assert cells['Learned beta, condition'] == '-, 3 singular'
  assert cells['Repeats'] == '2 (+ 1 failed)'
  assert tables.columns([{**record, 'step_size': 0.1}]) == list(tables.COLUMNS)


def test_a_cell_that_differs_between_two_sites_is_listed(tmp_path):
  for name, cell in (('before', '1.0'), ('after', '1.1')):
    folder = tmp_path / name
    folder.mkdir()
    page = f'<table><tr><td>x</td><td>{cell}</td></tr></table><p>{name}</p>'
    (folder / 'page.html').write_text(page)
  found = list(
    compare_sites.differences(tmp_path / 'before', tmp_path / 'after')
  )
  assert found == ['page.html: -| x | 1.0 ', 'page.html: +| x | 1.1 ']
  same = compare_sites.differences(tmp_path / 'before', tmp_path / 'before')
  assert not list(same)


@pytest.mark.full
def test_every_page_is_filled_in_from_its_records():
  """`make docs` builds the site strictly; it needs the extra `docs`."""
  sources = [path.read_text() for path in (_ROOT / 'docs').rglob('*.md')]
  pages = [text for text in sources if templates.is_template(text)]
  assert len(pages) > 50
  for page in pages:
    text = templates.render(page)
    assert '{{' not in text and '{%' not in text, page

"""The page holds the numbers of the records, wins and losses alike."""

import html.parser
import pathlib

import numpy as np
import pytest

from experiments.panel import goals
from experiments.panel import grid
from experiments.panel import page
from experiments.panel import page_tables
from experiments.panel import summary
from experiments.studies.panel import config as configs

PANEL = (
  pathlib.Path(__file__).resolve().parents[3]
  / 'configs'
  / 'inference_gym'
  / 'panel.yaml'
)


def _record(method, seed, efficiency, target='Banana', **changes):
  record = {
    'target': target,
    'method': method,
    'is_peer': method == 'NUTS (windowed)',
    'seed': seed,
    'library': '0.0.test',
    'commit': 'abc',
    'dtype': 'float32',
    'event_size': 2,
    'is_cold': seed == 0,
    'status': 'finished',
    'missed': [],
    'is_biased': False,
    'seconds': {'compile': 20.0, 'adaptation': 1.0, 'sampling': 2.5},
    'accept_rate': 0.5,
    'rhat_max': 1.003,
    'method_name': method,
    'num_chains': 2,
    'num_results': 1000,
    'num_diverging': 10,
    'gradients_per_chain': {'adaptation': 500.0, 'sampling': 500.0},
    'min_ess_bulk': 2000.0 * efficiency,
    'min_ess_tail': 1000.0 * efficiency,
    'ess': {'median': 3000.0 * efficiency},
    'z': {'worst': 2.25, 'num_comparisons': 4},
    'truth': {'of': 'inference_gym', 'of_square': 'x', 'is_converged': True},
    'squared_bias': {
      'gradients': [110, 200],
      'num_draws': [10, 100],
      'worst': [0.5, 0.0123],
      'mean': [0.25, 0.00456],
    },
  }
  return {**record, **changes}


def _records():
  own = [_record('gadMALAf', s, 1e-3 * (11 + s)) for s in range(10)]
  peer = [_record('NUTS (windowed)', s, 1e-3 * (41 + s)) for s in range(10)]
  lost = [
    _record('AM', s, 9.0, missed=['R-hat'], rhat_max=1.7) for s in range(9)
  ]
  lost.append({**lost[0], 'seed': 9, 'status': 'failed', 'error': 'it <blew>'})
  return own + peer + lost


@pytest.fixture(scope='module')
def panel():
  return configs.load_panel(PANEL)


@pytest.fixture(scope='module')
def pairs():
  return summary.summarize(_records())


def test_seeds_are_joined_to_medians_and_middle_eighty_percent(pairs):
  found = pairs['Banana', 'gadMALAf'].metrics['min_ess_per_gradient']
  np.testing.assert_allclose(found, [15.5, 11.9, 19.1])
  assert pairs['Banana', 'gadMALAf'].num_comparisons == 40
  # Cold runs are those that compiled.
  assert pairs['Banana', 'gadMALAf'].metrics['cold_seconds'].median == 23.5
  assert pairs['Banana', 'gadMALAf'].metrics['warm_seconds'].median == 3.5


def test_the_least_of_bulk_and_tails_counts():
  in_bulk = _record('AM', 0, 1.0, min_ess_bulk=700.0)
  assert summary.least_ess(_record('AM', 0, 1.0)) == 1000.0
  assert summary.least_ess(in_bulk) == 700.0
  assert summary.least_ess({**in_bulk, 'min_ess_tail': None}) is None


def test_runs_that_diverge_are_told_from_steady_ones():
  # One of 200 draws of two chains is allowed.
  records = [_record('AM', 0, 1.0), _record('AM', 1, 1.0, num_diverging=11)]
  records.append(_record('AM', 2, 1.0, is_biased=True, num_diverging=11))
  found = summary.summarize(records)['Banana', 'AM']
  assert (found.outcomes['passed'], found.outcomes['biased']) == (2, 1)
  assert (found.steady['passed'], found.steady['biased']) == (1, 0)


def test_seconds_of_what_python_drives_are_not_compared():
  records = [_record('gadMALAf', s, 1.0 + s) for s in range(10)]
  records += [
    _record('nutpie (diagonal)', s, 1.0, method_name='nutpie', is_peer=True)
    for s in range(10)
  ]
  found = summary.summarize(records)
  table = page_tables.contest_table(found, 'min_ess_per_second', 'T', 'n')
  assert table.rows[0][3].text == 'not timed'
  assert table.rows[0][-1].text == 'undecided: one side is not timed'
  table = page_tables.contest_table(found, 'min_ess_per_gradient', 'T', 'n')
  assert 'library ahead' in table.rows[0][-1].text


def test_seconds_that_hold_a_compilation_are_left_out():
  first = _record('NUTS (windowed)', 0, 1.0, method_name='windowed_nuts')
  seconds = {'compile': 0.0, 'adaptation': 0.0, 'sampling': 20.0}
  second = {**first, 'seed': 1, 'seconds': seconds}
  found = summary.summarize([first, second])['Banana', 'NUTS (windowed)']
  assert found.metrics['min_ess_per_second'].median == 1000.0 / 3.5
  assert found.metrics['warm_seconds'].median == 3.5
  # Of others nothing is compiled for a second seed.
  assert len(found.values['min_ess_per_gradient']) == 2


def test_a_run_that_failed_lends_no_efficiency(pairs):
  lost = pairs['Banana', 'AM']
  assert lost.outcomes['not converged'] == 9
  assert lost.outcomes['failed'] == 1
  assert not lost.counts
  assert 'min_ess_per_gradient' not in lost.metrics
  # How far off it is does count.
  assert lost.metrics['worst_bias'].median == 0.0123


def test_a_loss_is_shown_as_plainly_as_a_win(pairs):
  (contest,) = summary.contests(pairs, 'min_ess_per_gradient')
  assert (contest.own.method, contest.peer.method) == (
    'gadMALAf',
    'NUTS (windowed)',
  )
  np.testing.assert_allclose(contest.ratio.median, 15.5 / 45.5)
  assert contest.ratio.low < 15.5 / 45.5 < contest.ratio.high < 1
  table = page_tables.contest_table(pairs, 'min_ess_per_gradient', 'T', 'n')
  verdict = table.rows[0][-1]
  assert verdict.kind == 'bad'
  assert 'library behind' in verdict.text
  swapped = {
    name: pair._replace(is_peer=not pair.is_peer)
    for name, pair in pairs.items()
  }
  table = page_tables.contest_table(swapped, 'min_ess_per_gradient', 'T', 'n')
  assert table.rows[0][-1].kind == 'good'


def test_a_ratio_whose_interval_includes_one_is_called_even():
  records = [_record('gadMALAf', s, 1.0 + (s % 5)) for s in range(10)]
  records += [_record('NUTS (windowed)', s, 1.1 + (s % 5)) for s in range(10)]
  table = page_tables.contest_table(
    summary.summarize(records), 'min_ess_per_gradient', 'T', 'n'
  )
  assert 'even' in table.rows[0][-1].text


@pytest.mark.parametrize(
  'peer, texts',
  [
    ([], ['none was run', 'undecided: one side was not run']),
    ([('refused', None)], ['none was run', 'undecided: one side was not run']),
    ([('finished', ['R-hat'])], ['none passed', 'only the library passed']),
  ],
)
def test_a_side_that_was_not_run_did_not_lose(peer, texts):
  records = [_record('gadMALAf', s, 1.0 + (s % 5)) for s in range(10)]
  for status, missed in peer:
    other = _record('NUTS (windowed)', 0, 1.0, missed=missed, error='x')
    records.append({**other, 'status': status})
  table = page_tables.contest_table(
    summary.summarize(records), 'min_ess_per_gradient', 'T', 'n'
  )
  assert [table.rows[0][3].text, table.rows[0][5].text] == texts


def test_goals_are_met_or_missed_by_the_numbers():
  brownian = 'BrownianMotionUnknownScalesMissingMiddleObservations'
  heart = 'logistic_regression_heart'
  found = {
    (brownian, 'gadMALAf'): 0.0125,
    (brownian, 'gadMALAf, arrow'): 0.008,
    (heart, 'GSM HMC-5'): 0.06,
    (heart, 'BlackJAX NUTS (dense)'): 0.1,
  }
  records = [
    _record(method, seed, value, target=target)
    for (target, method), value in found.items()
    for seed in range(3)
  ]
  records.append(_record('gadMALAe', 0, 1.0, target=brownian, missed=['R-hat']))
  pairs = summary.summarize(records)
  rows = {row[0]: row[1:] for row in goals.brownian_table(pairs).rows}
  assert rows['gadMALAf'][0].startswith('80.0 [')
  assert rows['gadMALAf'][-1].text == 'met'
  assert rows['gadMALAf, arrow'][0].startswith('125 [')
  assert rows['gadMALAf, arrow'][-1].text == 'MISSED'
  assert rows['gadMALAe'][-1].text == 'MISSED'
  rows = goals.regression_table(pairs).rows
  decided = [row for row in rows if row[2] != 'not run' and row[0] == heart]
  # The stand-ins' seconds go with their gradients: 0.6 of the rival's.
  assert [row[3] for row in decided] == ['per gradient', 'per second']
  assert [row[-1].text.split()[0] for row in decided] == ['met', 'MISSED']
  assert all(row[4].startswith('0.6 [') for row in decided)


class _Texts(html.parser.HTMLParser):
  """The texts of a page, and what it would fetch from elsewhere."""

  def __init__(self, text):
    super().__init__()
    self.texts, self.fetched, self.open = [], [], []
    self.feed(text)
    self.all = ' '.join(self.texts)

  def handle_starttag(self, tag, attributes):
    self.open.append(tag)
    self.fetched += [
      value
      for key, value in attributes
      if key in ('src', 'xlink:href', 'href') and not value.startswith('#')
    ]

  def handle_data(self, data):
    self.texts.append(data)


def test_the_page_holds_the_numbers_of_the_records_and_stands_alone(panel):
  shown = _Texts(page.to_page(panel, _records(), num_stale=3))
  for text in (
    '15.5 [11.9, 19.1]',  # Min ESS per 1000 gradients.
    '45.5 [41.9, 49.1]',
    '0.34 [',  # Their ratio.
    '4.43 [3.40, 5.46]',  # Min ESS per second.
    '0.012 [0.012, 0.012]',  # Squared bias at the end.
    '23.5 [23.5, 23.5]',  # Cold seconds.
    '10/10 not converged',
    '33% of 30',  # Failed of all runs of all methods.
    'it <blew>',
    '3 records',
    panel.gates_digest,
    '0.0.test (abc)',
  ):
    assert text in shown.all, text
  assert shown.open.count('svg') == 1
  assert shown.fetched == []


def test_the_page_says_what_was_not_run(panel):
  shown = _Texts(page.to_page(panel, _records())).all
  config = panel.config
  num_pairs = len(config.target_labels()) * len(config.method_labels())
  assert f'Records are in for 3 of {num_pairs} pairs' in shown
  not_run = shown[shown.index('Not run yet') :]
  assert 'AM on EightSchools' in not_run and 'AM on Banana' not in not_run


def test_the_page_says_what_is_otherwise_for_a_target():
  overrides = [
    'gradients_of_target={EightSchools: 777}',
    'targets_without_xla=[Banana]',
  ]
  text = page.to_page(configs.load_panel(PANEL, overrides), _records())
  assert 'fewer of them per chain: EightSchools: 777.' in text
  assert 'methods all alike: Banana.' in text
  plain = ['gradients_of_target={}', 'targets_without_xla=[]']
  text = page.to_page(configs.load_panel(PANEL, plain), _records())
  assert 'fewer of them per chain' not in text
  assert 'without XLA' not in text


def test_markdown_marks_the_best_and_keeps_its_columns(pairs):
  table = page_tables.metric_table(pairs, 'min_ess_per_gradient', 'T', 'n')
  text = grid.to_markdown(table)
  lines = [line for line in text.splitlines() if line.startswith('|')]
  assert len({line.count('|') for line in lines}) == 1
  assert '| NUTS (windowed) | **45.5 [41.9, 49.1]** |' in lines
  assert '| AM | not converged |' in lines


@pytest.mark.parametrize(
  ('value', 'text'),
  [(None, '-'), (0, '0'), (1234.5, '1234'), (12.34, '12.3'), (1.234, '1.23')]
  + [(0.01234, '0.012'), (1e-5, '1.0e-05'), (123456.0, '1.2e+05')],
)
def test_numbers_are_short(value, text):
  assert grid.number(value) == text

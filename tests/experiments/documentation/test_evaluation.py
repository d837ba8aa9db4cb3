"""The page of the evaluation: who passes, who is wrong, and its figures."""

import pathlib

from experiments.documentation import evaluation


def _run(target, passes=True, converged=True, z=1.0):
  return dict(target=target, passes_gates=passes, converged=converged, z=z)


def _pair(method, target, **outcomes):
  counts = dict.fromkeys(('passed', 'biased', 'not converged', 'refused'), 0)
  counts.update(outcomes)
  # One of those that are off did not diverge.
  steady = dict(passed=counts['passed'], biased=min(counts['biased'], 1))
  return dict(method=method, target=target, outcomes=counts, steady=steady)


def test_a_run_is_right_wrong_or_neither():
  runs = [
    *(_run('a'), _run('a', z=None), _run('a', z=-4.5)),
    # The gates or its own verdict say no.
    *(_run('a', passes=False, z=9.0), _run('a', converged=False, z=9.0)),
  ]
  pairs = [
    _pair(
      'NUTS', 'a', passed=7, biased=2, **{'not converged': 1, 'out of time': 2}
    ),
    _pair('AM', 'a', refused=10),
  ]
  found = evaluation.outcomes(runs, pairs)
  # Wrong by the gates alone, and of those that its verdict lets pass.
  assert found['sample_posterior']['a'] == (5, 5, 2, 4, 2, 3, 1)
  assert found['NUTS']['a'] == (12, 10, 7, 9, 2, 8, 1)
  assert found['AM']['a'].num_runs == 0
  # Four of five are enough, three are not, nor is nothing.
  of_five = [evaluation.Outcome(5, 5, n, n, 0, n, 0) for n in (4, 3)]
  by_target = dict(zip('ab', of_five), c=found['AM']['a'])
  assert evaluation.num_solved(by_target) == 1


def test_the_interval_is_wilsons():
  # Of 7 in 109; and of nothing in ten, 1.96^2 / (10 + 1.96^2).
  assert evaluation._interval(7, 109) == '3 to 13 %'
  assert evaluation._interval(0, 10) == '0 to 28 %'


def test_figures_show_every_target_and_model():
  pairs = [
    _pair('nutpie (low rank)', 'Banana', passed=10),
    _pair('BlackJAX ChEES', 'Banana', **{'out of time': 10}),
  ]
  runs = [_run('Banana'), _run('SyntheticLogGaussianCoxProcess')]
  found = evaluation.outcomes(runs, pairs)
  (axis,) = evaluation.draw_passes(found).axes
  labels = [label.get_text() for label in axis.get_yticklabels()]
  assert labels == ['Banana', 'Cox process']
  texts = [text.get_text() for text in axis.texts]
  assert texts.count('10') == 3 and texts.count('.') == len(texts) - 3
  record = dict(
    posterior='heart', sampler='PyMC', status='finished', converged=True,
    ess_bulk=500.0, ess_tail=400.0, num_gradients=1000.0, cpu_seconds=20.0,
    seed=0, commit='one',
  )  # fmt: skip
  ours = {**record, 'sampler': 'sample_posterior', 'cpu_seconds': 40.0}
  of_gradients, of_seconds = evaluation.draw_rates([record, ours]).axes
  marks = {line.get_label(): line.get_xdata() for line in of_seconds.lines}
  assert list(marks['PyMC']) == [2.0] and len(marks['nutpie']) == 0
  assert list(marks['sample_posterior']) == [1.0]
  marks = {line.get_label(): line.get_xdata() for line in of_gradients.lines}
  assert list(marks['PyMC']) == [50.0]


def test_pages_count_the_runs_that_are_wrong_in_one_way():
  root = pathlib.Path(evaluation.__file__).resolve().parents[2]
  found = evaluation.outcomes(evaluation.read_lines(evaluation._RUNS))
  _, *others = [
    (
      sum(o.num_wrong for o in by_target.values()),
      sum(o.num_within for o in by_target.values()),
    )
    for by_target in found.values()
  ]
  wrong, num = map(sum, zip(*others))
  pages = ('README.md', 'docs/choose.md', 'docs/results/panel.md')
  for text in [(root / page).read_text() for page in pages]:
    assert f'{wrong} of {num} ' in text
  solved = {name: evaluation.num_solved(found[name]) for name in found}
  best = solved.pop('sample_posterior')
  text = (root / 'README.md').read_text()
  assert f'on more than {max(solved.values())} of these' in text
  assert f'`sample_posterior` does on {best}' in text

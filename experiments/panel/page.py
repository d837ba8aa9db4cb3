"""The page of a panel: one HTML file, figures inside, and Markdown tables."""

import html
import json

from experiments.panel import goals
from experiments.panel import page_tables
from experiments.panel.curves import bias_curves
from experiments.panel.grid import to_html
from experiments.panel.grid import to_markdown
from experiments.panel.summary import NOT_RUN
from experiments.panel.summary import summarize

__all__ = ['select', 'tables', 'to_page', 'write_page']

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; color: #222;
  max-width: 90em; padding: 0 1em; }
p { max-width: 60em; } h1, h2, h3, p { overflow-wrap: anywhere; }
h2 { margin-top: 2em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border: 1px solid #ddd; padding: 3px 7px; text-align: left;
  vertical-align: top; }
th { background: #f3f3f3; } td:first-child { font-weight: 600;
  position: sticky; left: 0; background: #fff; }
.best { background: #cdeccd; font-weight: 600; } .good { background: #e3f5e3; }
.weak { background: #fff3cd; } .bad { background: #f8d7da; }
.none { color: #888; }
svg { max-width: 100%; height: auto; }
"""


def select(panel, file):
  """Returns the records that count: of the panel's pairs, with today's keys.

  Args:
    panel: the `Panel`.
    file: the `CellFile`.

  Returns:
    (records in the panel's order, number of records left out as stale).
  """
  keys = {
    (target, method): panel.key(target, method)
    for target in panel.targets
    for method in panel.methods
  }
  found = {name: [] for name in keys}
  num_stale = 0
  for record in file.records():
    name = record['target'], record['method']
    if keys.get(name) != record['key']:
      num_stale += 1
    else:
      found[name].append(record)
  return [r for group in found.values() for r in group], num_stale


_PER_GRADIENT = (
  'Least effective draws of bulk and tails, of the slowest coordinate, per '
  '1000 gradients, sampling alone: median over seeds that passed [middle '
  '80 %]. '
)
_PER_SECOND = (
  'Least effective draws of bulk and tails, of the slowest coordinate, per '
  'second, adaptation included, compilation not: median over seeds that passed '
  '[middle 80 %]. None of nutpie, which Python hands every gradient here. '
)
_CONTEST = (
  'The best sampler of the library against the best peer, each chosen by its '
  'median among those of which at least half of the runs passed. Ratio: of '
  'medians, with an 80 % interval from resampled seeds; called even where that '
  'includes 1.'
)
_MARKED = 'Best of each target marked; no number where most runs failed.'

# (name of the metric, title, note, whether more is better).
_METRICS = (
  (
    'min_ess_per_gradient',
    'Min ESS per 1000 gradients',
    _PER_GRADIENT + _MARKED,
    True,
  ),
  (
    'min_ess_per_gradient_in_all',
    'Min ESS per 1000 gradients, adaptation included',
    'As above, with the gradients of the adaptation in the denominator. '
    + _MARKED,
    True,
  ),
  (
    'median_ess_per_gradient',
    'Median ESS per 1000 gradients',
    'As above for the median coordinate, by the autocorrelations of its draws, '
    'at most as many as there are draws. ' + _MARKED,
    True,
  ),
  (
    'min_ess_per_second',
    'Min ESS per second',
    _PER_SECOND + _MARKED,
    True,
  ),
  (
    'worst_bias',
    'Squared bias at the end, worst coordinate',
    'b^2 after the whole budget, all runs that came to an end, converged or '
    'not, of pairs all of whose runs have a truth: median over seeds [middle '
    '80 %]. n independent draws have 1/n on average in one coordinate. Least '
    'marked.',
    False,
  ),
  (
    'mean_bias',
    'Squared bias at the end, mean over coordinates',
    'As above, averaged over coordinates. Least marked.',
    False,
  ),
  (
    'warm_seconds',
    'Seconds of a run, warm',
    'Adaptation and sampling of all chains; compiled before.',
    False,
  ),
  (
    'cold_seconds',
    'Seconds of a run, cold',
    'The first run of a process, with compilation.',
    False,
  ),
)


def tables(pairs):
  """Returns the page's tables, the most telling first."""
  contests = [
    ('min_ess_per_gradient', 'Who wins, per gradient', _PER_GRADIENT),
    ('min_ess_per_second', 'Who wins, per second', _PER_SECOND),
  ]
  return [
    *(
      page_tables.contest_table(pairs, metric, title, note + _CONTEST)
      for metric, title, note in contests
    ),
    page_tables.outcome_table(pairs),
    goals.brownian_table(pairs),
    goals.regression_table(pairs),
    *(page_tables.metric_table(pairs, *metric) for metric in _METRICS),
    page_tables.failures(pairs),
  ]


def to_page(panel, records, num_stale=0):
  """Returns the page as one HTML text."""
  pairs = summarize(records)
  shown = tables(pairs)
  parts = [to_html(table) for table in shown[:-1]]
  parts.append('<h2>Squared bias against gradients spent</h2>\n')
  parts.append(f'<p>{html.escape(_CURVES)}</p>\n')
  for target in dict.fromkeys(target for target, _ in pairs):
    figure = bias_curves(pairs, target)
    if figure is not None:
      parts.append(f'<h3>{html.escape(target)}</h3>\n{figure}\n')
  parts += [to_html(shown[-1]), to_html(page_tables.truth_table(records))]
  title = html.escape(panel.config.name)
  return (
    f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    f'<title>{title}</title><style>{_STYLE}</style></head><body>\n'
    f'<h1>Samplers side by side: {title}</h1>\n'
    f'{_introduction(panel, pairs, records, num_stale)}{"".join(parts)}'
    '</body></html>\n'
  )


_CURVES = (
  'b^2 = (mean of x^2 over draws - E[x^2])^2 / Var[x^2], all chains together. '
  'Lines are medians over seeds, bands the middle 80 %; peers are dashed. A '
  'line begins where the adaptation ends. One that levels off is biased, or '
  'as good as the truth is known.'
)


def _introduction(panel, pairs, records, num_stale):
  """Returns what was run, under which rules, as HTML paragraphs."""
  config, gates = panel.config, panel.gates
  judged = sum(pair.num_comparisons for pair in pairs.values())
  num_biased = sum(pair.outcomes['biased'] for pair in pairs.values())
  versions = sorted({f'{r["library"]} ({r["commit"]})' for r in records})
  texts = [
    config.description + '.',
    f'{len(config.methods)} methods, {len(config.targets)} targets, each with '
    f'each from {config.num_seeds} seeds, '
    f'{config.num_chains} chains, {config.gradients_per_chain} gradients per '
    f'chain, of which {config.adaptation_share:.0%} for adaptation. No setting '
    'was chosen for a target: what a method does not find itself is its '
    'default. All methods of a seed start at the same points: '
    f'{config.init.kind}, scale {getattr(config.init, "scale", "-")}, in '
    'unconstrained space.',
    *_exceptions(config),
    _coverage(config, pairs),
    'One gradient is one evaluation of the log density, with or without its '
    'gradient, or one Hessian-vector product. A sampler whose trajectories '
    'have random lengths gets as many steps as a short run of its own says '
    'that the budget allows. Where it then spends more or less than that by a '
    'quarter (by half or twice, later seeds), other numbers of steps are '
    'tried, six at most, and the run nearest to the budget is taken, whatever '
    'its draws; what that one spent is counted.',
    f'Gates, version {gates.version} ({panel.gates_digest}), fixed before the '
    f'runs: largest R-hat below {gates.max_rhat}, smallest effective sample '
    f'size (of draws, squares, ranks and tails) at least {gates.min_ess:g}; '
    'a run that passes both is judged: no mean or deviation of any coordinate '
    f'more than {gates.max_abs_z:g} Monte Carlo standard errors off the truth.',
    f'{num_biased} of the runs that were judged are off by more, in '
    f'{judged} comparisons, of which chance alone would give about '
    f'{judged * 6.3e-5:.1f}.',
    f'Library version and commit: {", ".join(versions) or "-"}.',
  ]
  if num_stale:
    texts.append(
      f'{num_stale} records of other settings, versions or references are '
      'left out.'
    )
  return ''.join(f'<p>{html.escape(text)}</p>\n' for text in texts)


def _exceptions(config):
  """Returns what is otherwise for some targets, a list of texts."""
  texts = []
  given = config.gradients_of_target
  if given:
    listed = ', '.join(f'{label}: {count}' for label, count in given.items())
    texts.append(
      'Where a gradient is expensive all methods have fewer of them per '
      f'chain: {listed}.'
    )
  if config.targets_without_xla:
    texts.append(
      "Compiled by tf.function without XLA, TensorFlow's methods all alike: "
      f'{", ".join(config.targets_without_xla)}.'
    )
  return texts


def _coverage(config, pairs):
  """Returns how much of the panel was run, and what was not, a sentence."""
  wanted = [
    (config.target_label(t), config.method_label(m))
    for t in range(len(config.targets))
    for m in range(len(config.methods))
  ]
  missing = [name for name in wanted if name not in pairs]
  partly = [
    name
    for name in wanted
    if name in pairs and _is_partly_run(pairs[name], config.num_seeds)
  ]
  text = (
    f'Records are in for {len(wanted) - len(missing)} of {len(wanted)} pairs; '
    'those that were refused or failed are marked below.'
  )
  if partly:
    text += f' Of some seeds only: {_listed(partly)}.'
  if missing:
    text += f' Not run yet: {_listed(missing)}.'
  return text


def _is_partly_run(pair, num_seeds):
  # What does not take a target, or is not installed, has one record.
  is_run = not any(pair.outcomes[name] for name in NOT_RUN)
  return is_run and pair.num_seeds < num_seeds


def _listed(names):
  return ', '.join(f'{method} on {target}' for target, method in names)


def write_page(panel, file):
  """Writes index.html, tables.md and summary.json beside the records."""
  records, num_stale = select(panel, file)
  pairs = summarize(records)
  page = file.folder / 'index.html'
  page.write_text(to_page(panel, records, num_stale), encoding='utf-8')
  text = '\n'.join(
    to_markdown(t) for t in [*tables(pairs), page_tables.truth_table(records)]
  )
  (file.folder / 'tables.md').write_text(text, encoding='utf-8')
  values = [
    {
      'target': pair.target,
      'method': pair.method,
      'outcomes': pair.outcomes,
      'steady': pair.steady
      and {k: pair.steady[k] for k in ('passed', 'biased')},
      **{name: found._asdict() for name, found in pair.metrics.items()},
    }
    for pair in pairs.values()
  ]
  (file.folder / 'summary.json').write_text(
    json.dumps(values, indent=1) + '\n', encoding='utf-8'
  )
  return page

"""The README's table and figure, written from the records.

  python -m experiments.report readme

Everything else is made when the site is built. The README must be readable
where nothing is built, so that this command writes its table between two
comments, and its figure beside the pages.
"""

import statistics
from collections.abc import Callable
from typing import NamedTuple

from experiments.report import figures
from experiments.report import panel
from experiments.report import papers
from experiments.report import records
from experiments.report import templates

_BEGIN = '<!-- Made by python -m experiments.report readme -->\n'
_END = '<!-- End of the table -->\n'
_MAX_RHAT = 1.01


class _Side(NamedTuple):
  """A sampler: its name here, its number, and its largest R-hat if known."""

  name: str
  number: float
  rhat: float | None = None


class _Row(NamedTuple):
  """A posterior, what was measured, and the library's number and a rival's."""

  posterior: str
  page: str
  measure: str
  own: _Side
  rival: _Side
  fewer_is_better: bool = False

  @property
  def ratio(self):
    ratio = self.own.number / self.rival.number
    return 1.0 / ratio if self.fewer_is_better else ratio


def _runs(name, case, study, field, factor):
  number = factor * papers.ours(f'papers/{study}', case, field)
  return _Side(name, number, papers.ours(f'papers/{study}', case, 'rhat_max'))


def _noisy(name, case, study, field, factor):
  return _Side(name, factor * papers.ours(study, case, field))


def _brownian(name, case, *_):
  runs = records.groups(records.rows('brownian_motion'), 'case')
  runs = dict(runs)[case]
  needed = statistics.median(r['gradients'] / r['min_ess'] for r in runs)
  # As its page shows it.
  return _Side(name, round(needed), max(r['rhat_max'] for r in runs))


def _gym(name, case, target, metric, _):
  found = panel.pairs()[target, case].metrics[metric]
  return _Side(name, float(templates.number(found.median)))


_GRADIENTS = 'per 1000 gradients'
_SECONDS = 'per second of sampling'
_IN_ALL = 'per second, adaptation included'
_ESTIMATES = 'per 1000 estimates'
_MATRIX = ('HMC dense, L = 3', 'GSM HMC-3')
_ARROW = ('HMC, arrow', 'GSM HMC-4, arrow')
_BEST_NUTS = ('NUTS, non-centered', 'NUTS (windowed, non_centered)')
_MAP = ('HMC, RealNVP', 'RealNVP HMC-3')
_SHORT = ('HMC, L = 3', 'HMC-3')
_WINE = ('papers/gp_wine', 'min_ess_per_estimate', 1000)
_PER_GRADIENT = ('min_ess_per_gradient', 1000)
_PER_SECOND = ('min_ess_per_sampling_second', 1)
_GYM_GRADIENT = ('min_ess_per_gradient', 1)
_GYM_SECOND = ('min_ess_per_second', 1)
# (Posterior, page, measure, where a number is, its study, field and factor, the
# library's (name, case), the rival's).
_ROWS: tuple[tuple[str, str, str, Callable, tuple, tuple, tuple], ...] = (
  ('Heart, d = 14', 'hamiltonian_models', _SECONDS, _runs,
   ('figure13_heart', *_PER_SECOND), _MATRIX, _SHORT),
  ('Heart, d = 14', 'hamiltonian_models', _GRADIENTS, _runs,
   ('figure13_heart', *_PER_GRADIENT), _MATRIX, _SHORT),
  ('S&P 500, d = 2519', 'stochastic_volatility', _SECONDS, _runs,
   ('stochastic_volatility', *_PER_SECOND), _ARROW, _BEST_NUTS),
  ('S&P 500, d = 2519', 'stochastic_volatility', _IN_ALL, _runs,
   ('stochastic_volatility', 'min_ess_per_second', 1), _ARROW, _BEST_NUTS),
  ('S&P 500, 100 days', 'volatility_100_days', _GRADIENTS, _runs,
   ('volatility_100_days', *_PER_GRADIENT),
   ('MALA, learned', 'gadMALAf'), ('NUTS', 'NUTS')),
  ('Cox process, 64 cells', 'hamiltonian_models', _SECONDS, _runs,
   ('figure18_cox_64', *_PER_SECOND),
   ('HMC dense, L = 5', 'GSM HMC-5'), ('Riemannian HMC', 'RM-HMC-3')),
  ('Cox process, 256 cells', 'hamiltonian_models', _SECONDS, _runs,
   ('figure19_cox_256', *_PER_SECOND),
   ('HMC dense, L = 5', 'GSM HMC-5'), ('NUTS, unit mass', 'NUTS (N)')),
  ('GP regression, d = 1001', 'latent_gaussian', 'of 5000 draws', _runs,
   ('regression_noise_001', 'ess_min', 1), ('mGrad', 'mGrad'),
   ('pCNL', 'pCNL')),
  ('Banana, d = 2', 'figure6_banana', _GRADIENTS, _runs,
   ('figure6_banana', *_PER_GRADIENT), _MAP, ('HMC', 'HMC-3')),
  ('Banana, d = 2', 'figure6_banana', _SECONDS, _runs,
   ('figure6_banana', *_PER_SECOND), _MAP, ('HMC', 'HMC-3')),
  ('ABC, d = 10, no gradient', 'kernel_hamiltonian', _ESTIMATES, _noisy,
   ('skew_normal', 'min_ess_per_call', 1000), ('kernel HMC', 'KMC finite'),
   ('random walk', 'RWM')),
  ('Noisy likelihood, ten chains', 'kernel_hamiltonian', _ESTIMATES, _noisy,
   _WINE, ('kernel HMC', 'KMC finite | 10'),
   ('random walk', 'Random walk | 10')),
  ('Noisy likelihood, one chain', 'kernel_hamiltonian', _ESTIMATES, _noisy,
   _WINE, ('kernel HMC', 'KMC finite | 1'),
   ('adaptive Metropolis', 'AM | 1')),
  ('Brownian motion, d = 32', 'brownian_motion',
   'gradients for one (fewer is better)', _brownian, (None, None, None),
   ('MALA, Fisher divergence',
    'Fisher-divergence MALA, dense, 10000 adaptation steps'),
   ('nutpie, low rank', 'nutpie (low rank)')),
  ('Gym: ill-conditioned, d = 100', 'panel', _GRADIENTS, _gym,
   ('IllConditionedGaussian', *_GYM_GRADIENT), ('HMC, dense', 'GSM HMC-5'),
   ('nutpie, low rank', 'nutpie (low rank)')),
  ('Gym: German credit', 'panel', _IN_ALL, _gym,
   ('logistic_regression_german', *_GYM_SECOND), ('HMC, dense', 'GSM HMC-5'),
   ('SNAPER', 'SNAPER-HMC')),
  ('Gym: heart', 'panel', _GRADIENTS, _gym,
   ('logistic_regression_heart', *_GYM_GRADIENT),
   ('kernel HMC', 'KMC finite'), ('ChEES', 'BlackJAX ChEES')),
  ('Gym: eight schools', 'panel', _IN_ALL, _gym,
   ('EightSchools', *_GYM_SECOND), ('HMC, diagonal', 'GSM HMC-5, diagonal'),
   ('SNAPER', 'SNAPER-HMC')),
  ('Gym: banana', 'panel', _IN_ALL, _gym, ('Banana', *_GYM_SECOND),
   ('random walk', 'gadRWM'), ('ChEES', 'BlackJAX ChEES')),
)  # fmt: skip


def table():
  """Returns the table in Markdown, what the library loses last."""
  rows = []
  for posterior, page, measure, side, place, own, rival in _ROWS:
    sides = side(*own, *place), side(*rival, *place)
    if own[1] == 'KMC finite | 10':  # Its page says so in words.
      sides = sides[0]._replace(rhat=1.024), sides[1]
    fewer = side is _brownian
    rows.append(_Row(posterior, page, measure, *sides, fewer))
  lines = [
    [
      f'[{row.posterior}](docs/results/{row.page}.md)',
      row.measure,
      _shown(row.own),
      _shown(row.rival),
      f'{row.ratio:.2g}' if row.ratio >= 1 else f'**{row.ratio:.2g}**',
    ]
    for row in sorted(rows, key=lambda row: row.ratio < 1)
  ]
  head = ('Posterior', 'Effective draws', 'tfp_adaptive', 'Rival', 'Ratio')
  return templates.table(head, lines) + '\n'


def _shown(side):
  """Returns name and number, with a star where chains have not met."""
  number = side.number
  text = f'{number:.0f}' if number >= 100 else f'{number:.3g}'
  star = '\\*' if side.rhat is not None and side.rhat > _MAX_RHAT else ''
  return f'{side.name}: {text}{star}'


def write():
  """Writes the table into the README, between its comments, and its figure."""
  path = records.ROOT / 'README.md'
  head, _, rest = path.read_text(encoding='utf-8').partition(_BEGIN)
  _, _, tail = rest.partition(_END)
  path.write_text(f'{head}{_BEGIN}{table()}{_END}{tail}', encoding='utf-8')
  figure = records.ROOT / 'docs' / 'results' / 'evaluation.png'
  figure.write_bytes(figures.passes())

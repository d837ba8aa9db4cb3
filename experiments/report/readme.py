"""The README's table and figure, written from the records.

  python -m experiments.report readme

Everything else is made when the site is built. The README must be readable
where nothing is built, so this command writes its table between two comments,
and its figure beside the pages.
"""

from experiments.papers import tables
from experiments.report import figures
from experiments.report import records
from experiments.report import rivals

_BEGIN = '<!-- Made by python -m experiments.report readme -->\n'
_END = '<!-- End of the table -->\n'
_SAMPLERS = (rivals.OURS, 'nutpie', 'NumPyro', 'PyMC')
# What `rivals.summary` yields for each sampler, after its name.
_ROWS = (
  'Models on which at least half of the runs converged',
  'Runs that converged',
  'Converged runs with a mean more than 4 standard errors off',
  'Models on which `sample_posterior` has more effective draws per CPU second',
  '... and per gradient',
)


def table() -> str:
  """Returns the table in Markdown: how often right, and how often ahead."""
  found = {name: cells for name, *cells in rivals.summary()}
  columns = [found[name] for name in _SAMPLERS]
  lines = [list(line) for line in zip(_ROWS, *columns)]
  names = [f'`{rivals.OURS}`', *_SAMPLERS[1:]]
  return tables.table(['', *names], lines) + '\n'


def write() -> None:
  """Writes the table into the README, between its comments, and its figure."""
  path = records.ROOT / 'README.md'
  head, _, rest = path.read_text(encoding='utf-8').partition(_BEGIN)
  _, _, tail = rest.partition(_END)
  path.write_text(f'{head}{_BEGIN}{table()}{_END}{tail}', encoding='utf-8')
  figure = records.ROOT / 'docs' / 'results' / 'rivals.png'
  figure.write_bytes(figures.rates())

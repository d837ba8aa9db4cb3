"""Numbers that the papers print, one YAML file for each, and ours beside them.

A file lists every figure and table: what it shows, the config that reproduces
it, the page that records the run, and the printed numbers. Ours are read from
that page, so that none is written by hand.
"""

import pathlib
from typing import NamedTuple
from typing import Optional

import pydantic

from experiments.documentation.readme_table import value
from experiments.run import yaml_files

__all__ = ['Claim', 'Entry', 'Finding', 'Paper', 'Row', 'found', 'load']

_FOLDER = pathlib.Path(__file__).parent
_PAPERS = (
  'gradient_adaptive_mcmc',
  'entropy_adaptive_hmc',
  'auxiliary_gradient',
  'kernel_hmc',
)
# What lies between is not told apart from the noise of some repeats.
LEAST, MOST = 0.8, 1.25
# Quantity -> column of a record's table, and which of a cell's numbers.
_COLUMNS = {
  'ess': ('ESS (min, med, max)', (0, 1, 2)),
  'min_ess': ('ESS (min, med, max)', (0,)),
  'median_ess': ('ESS (min, med, max)', (1,)),
  'delta': ('Learned delta', (0,)),
  'beta': ('Learned beta, condition', (0,)),
  'condition': ('Learned beta, condition', (-1,)),
  'log_prob_ess': ('ESS q^2, log pi (min)', (1,)),
  'per_gradient': ('ESS/gradient (min, med)', (0,)),
  'per_second': ('Sampling alone: ESS/s (min, med)', (0,)),
  'rhat': ('R-hat (max, med)', (0,)),
  'median_rhat': ('R-hat (max, med)', (1,)),
}
_SHOWN = {
  'ess': 'ESS',
  'per_second': 'min ESS/s',
}
_OF_A_MACHINE = ('per_second',)


class _Model(pydantic.BaseModel):
  model_config = pydantic.ConfigDict(extra='forbid', frozen=True)


class Row(_Model):
  """A line of a table of the paper, or of numbers that its text prints."""

  paper: str
  # Line of our record -> letter of the reason where the numbers differ.
  ours: dict[str, Optional[str]] = {}
  ess: Optional[tuple[float, float, float]] = None
  delta: Optional[float] = None
  beta: Optional[float] = None
  per_second: Optional[float] = None
  # A number of another column of the record.
  number: Optional[float] = None
  column: Optional[str] = None
  # Steps that it is divided by.
  per: float = 1.0

  def printed(self):
    """Yields (quantity, the paper's numbers)."""
    for name in ('ess', 'delta', 'beta', 'per_second'):
      numbers = getattr(self, name)
      if numbers is not None:
        yield name, numbers if name == 'ess' else (numbers,)
    if self.number is not None:
      yield self.column, (self.number / self.per,)


class Ratio(_Model):
  """A row's numbers over another's: free of a machine's seconds."""

  of: str
  over: str
  why: Optional[str] = None


class Claim(_Model):
  """What a figure shows, as a number of ours that lies on one side."""

  says: str
  column: str
  line: str
  over: Optional[str] = None
  above: Optional[float] = None
  below: Optional[float] = None
  why: Optional[str] = None
  heading: Optional[str] = None


class Entry(_Model):
  """A figure or a table of a paper."""

  number: str
  shows: str
  config: Optional[str] = None
  command: Optional[str] = None
  record: Optional[str] = None
  heading: str = ''
  # Why there is no record.
  missing: Optional[str] = None
  # Why there is no number, in the paper or of ours.
  picture: Optional[str] = None
  # The row, or the claim's text, for the short table.
  headline: Optional[str] = None
  # Of our numbers: sums over chains are divided.
  factor: float = 1.0
  note: Optional[str] = None
  rows: tuple[Row, ...] = ()
  ratios: tuple[Ratio, ...] = ()
  claims: tuple[Claim, ...] = ()

  @pydantic.model_validator(mode='after')
  def _is_whole(self):
    given = (self.record, self.missing, self.picture)
    if sum(text is not None for text in given) != 1:
      raise ValueError(
        f'{self.number} needs one of `record`, `missing` and `picture`.'
      )
    if not (self.config or self.command):
      raise ValueError(f'{self.number} needs a `config` or a `command`.')
    return self

  def command_line(self):
    """Returns the command that reproduces it."""
    tail = self.command or f'run configs/{self.config}.yaml'
    return f'python -m experiments {tail}'


class Paper(_Model):
  """A paper's figures and tables, and the reasons of differences by letter."""

  title: str
  link: str
  reasons: dict[str, str] = {}
  entries: tuple[Entry, ...]


class Finding(NamedTuple):
  """Numbers of the paper beside ours; for a claim the paper has none."""

  name: str
  # For a claim, the side that it wants.
  quantity: str
  paper: tuple
  ours: tuple
  repeats: str
  why: Optional[str]
  # Of the numbers, or of the claim: whether they agree.
  agrees: tuple

  @property
  def ratios(self):
    """Ours over the paper's."""
    return tuple(ours / paper for ours, paper in zip(self.ours, self.paper))


def load():
  """Returns the papers in the order of the page."""
  return [
    Paper.model_validate(yaml_files.load(_FOLDER / f'{name}.yaml'))
    for name in _PAPERS
  ]


def found(entry, reasons):
  """Returns the findings of a figure or table that has a record.

  Args:
    entry: `Entry`.
    reasons: Of the paper, by letter.

  Raises:
    ValueError: If numbers differ and no reason is given, if one is given where
      none is needed or that the paper's file has not, or if the record has no
      such line.
  """
  findings = []
  for row in entry.rows:
    for line, why in (row.ours or {row.paper: None}).items():
      findings.extend(_of_row(entry, row, line, why))
  for ratio in entry.ratios:
    findings.extend(_of_ratio(entry, ratio))
  findings.extend(_of_claim(entry, claim) for claim in entry.claims)
  for line in {(f.name, f.why) for f in findings}:
    _check(entry, [f for f in findings if (f.name, f.why) == line], reasons)
  return findings


def _of_row(entry, row, line, why):
  """Yields a finding for each quantity that the paper prints of a line."""
  name = row.paper
  if line == name and len(row.ours) > 1:
    name += ', default'
  elif len(row.ours) > 1 and line != f'{name} (paper)':
    name += f': {line}'
  for quantity, printed in row.printed():
    ours = _numbers(entry, quantity, line, entry.heading)
    finding = _finding(entry, name, quantity, (printed, ours), line, why)
    # What is left of a machine's seconds are ratios of lines.
    yield finding._replace(agrees=()) if quantity in _OF_A_MACHINE else finding


def _of_ratio(entry, ratio):
  """Yields a finding for each quantity that both lines have."""
  rows = {row.paper: row for row in entry.rows}
  of, over = rows[ratio.of], rows[ratio.over]
  lines = [next(iter(row.ours or {row.paper: None})) for row in (of, over)]
  divisors = dict(over.printed())
  for quantity, printed in of.printed():
    ours = [_numbers(entry, quantity, line, entry.heading) for line in lines]
    numbers = _divided(printed, divisors[quantity]), _divided(*ours)
    name = f'{ratio.of}, over {ratio.over}'
    yield _finding(entry, name, quantity, numbers, lines[0], ratio.why)


def _finding(entry, name, quantity, numbers, line, why):
  shown = _SHOWN.get(quantity, quantity)
  repeats = _repeats(entry, line)
  finding = Finding(name, shown, *numbers, repeats, why, ())
  inside = tuple(LEAST <= ratio <= MOST for ratio in finding.ratios)
  return finding._replace(agrees=inside)


def _of_claim(entry, claim):
  heading = entry.heading if claim.heading is None else claim.heading
  ours = _numbers(entry, claim.column, claim.line, heading)[:1]
  if claim.over:
    divisor = _numbers(entry, claim.column, claim.over, heading)[:1]
    ours = _divided(ours, divisor)
  agrees = (claim.above is None or ours[0] > claim.above) and (
    claim.below is None or ours[0] < claim.below
  )
  repeats = _repeats(entry, claim.line)
  bounds = [
    f'{side} {bound:g}'
    for side, bound in (('above', claim.above), ('below', claim.below))
    if bound is not None
  ]
  wanted = ', '.join(bounds)
  return Finding(claim.says, wanted, (), ours, repeats, claim.why, (agrees,))


def _divided(numbers, divisors):
  return tuple(a / b if b else float('inf') for a, b in zip(numbers, divisors))


def _numbers(entry, quantity, line, heading):
  column, places = _COLUMNS.get(quantity, (quantity, (0,)))
  first = line.split(' | ')
  factor = entry.factor if quantity == 'ess' else 1.0
  return tuple(
    factor * value(entry.record, column, *first, heading=heading, index=index)
    for index in places
  )


def _repeats(entry, line):
  first = line.split(' | ')
  try:
    number = value(entry.record, 'Repeats', *first, heading=entry.heading)
  except ValueError:  # A page of another form.
    return ''
  return f'{number:.0f}'


def _check(entry, findings, reasons):
  """Refuses a difference without a reason, and a reason without one."""
  where = f'{entry.number}, {findings[0].name}'
  why = findings[0].why
  if all(all(finding.agrees) for finding in findings):
    if why:
      raise ValueError(f'{where}: the numbers agree, so take out {why!r}.')
  elif why not in reasons:
    ours = [finding.ours for finding in findings]
    paper = [finding.paper for finding in findings]
    raise ValueError(
      f'{where}: {ours} is not {paper}; name one of {list(reasons)}, not '
      f'{why!r}, or add what explains it.'
    )

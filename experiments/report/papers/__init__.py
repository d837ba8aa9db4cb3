"""Numbers that the papers print, and ours beside them.

Each paper has a YAML file that lists every figure and table. An entry has its
content, the config that reproduces it, the page and the records of the run, and
the printed numbers. Our numbers come from the records.
"""

import collections
import functools
import operator
import pathlib
from typing import NamedTuple

import pydantic
import yaml

from experiments.report import records

_FOLDER = pathlib.Path(__file__).parent
_CONFIGS = records.ROOT / 'configs'
_PAPERS = (
  'gradient_adaptive_mcmc',
  'entropy_adaptive_hmc',
  'auxiliary_gradient',
  'kernel_hmc',
)
# Ratios between these bounds may be noise of a few repeats.
_LEAST, _MOST = 0.8, 1.25
# Quantity of a row -> its name in a table, and fields of our records.
_QUANTITIES = {
  'ess': ('ESS', ('ess_min', 'ess_median', 'ess_max')),
  'delta': ('delta', ('step_size',)),
  'beta': ('beta', ('entropy_weight',)),
  'per_second': ('min ESS/s', ('min_ess_per_sampling_second',)),
}
# Kinds of figures, the worst last.
KINDS = {
  'picture': 'a picture',
  'agrees': 'same experiment, all agree',
  'differs': 'same experiment, some numbers differ',
  'fewer steps': 'fewer steps',
  'changed': 'another experiment',
  'not run': 'not run',
}
_NAMES = {
  'ess.min': 'Min ESS',
  'log_sigma': 'log sigma',
  'log_l': 'log l',
}


class _Model(pydantic.BaseModel):
  model_config = pydantic.ConfigDict(extra='forbid', frozen=True)


class Row(_Model):
  """A line of a table of the paper, or of numbers in its text."""

  paper: str
  # Case of our records -> letter of the reason, if the numbers differ.
  ours: dict[str, str | None] = {}
  ess: tuple[float, float, float] | None = None
  delta: float | None = None
  beta: float | None = None
  per_second: float | None = None
  # A number of another field of the records.
  number: float | None = None
  column: str | None = None
  # Number of steps by which `number` is divided.
  per: float = 1.0

  def cases(self):
    """Returns {case of our records: reason}."""
    return self.ours or {self.paper: None}

  def printed(self):
    """Returns {quantity: the paper's numbers}."""
    numbers = {name: getattr(self, name) for name in _QUANTITIES}
    numbers = {
      name: value if name == 'ess' else (value,)
      for name, value in numbers.items()
      if value is not None
    }
    if self.number is not None:
      numbers[self.column] = (self.number / self.per,)
    return numbers


class Ratio(_Model):
  """A row's numbers over another row's, which do not depend on the machine."""

  of: str
  over: str
  why: str | None = None


class Claim(_Model):
  """A statement of a figure, as a bound on one of our numbers."""

  says: str
  column: str
  line: str
  over: str | None = None
  above: float | None = None
  below: float | None = None
  # Decimals to which our numbers are rounded first, as on their page.
  digits: int | None = None
  why: str | None = None


class Length(_Model):
  """Lengths of a run. None stands for what the paper does not say."""

  # Steps of a chain that adapt and that are recorded.
  steps: tuple[int | None, int | None] = (None, None)
  repeats: int | None = None


class Entry(_Model):
  """A figure or a table of a paper."""

  number: str
  shows: str
  config: str | None = None
  command: str | None = None
  # Page of the records, and `records` if these have another name.
  record: str | None = None
  records: str | None = None
  # Why there is no record.
  missing: str | None = None
  # Why there is no number in the paper or in our records.
  picture: str | None = None
  # Length of the paper's runs, and ours if config and records do not have it.
  paper: Length = Length()
  ours: Length = Length()
  # What differs from the paper's experiment, besides the length.
  changed: str | None = None
  # Lines of the figure or the table that were not run.
  left_out: str | None = None
  # The row, or the claim's text, for the short table.
  headline: str | None = None
  # Factor of our numbers, which are sums over chains.
  factor: float = 1.0
  note: str | None = None
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

  @property
  def command_line(self):
    tail = self.command or f'run configs/{self.config}.yaml'
    return f'python -m experiments {tail}'

  def our_steps(self):
    """Returns the steps of our chains that adapt and that are recorded."""
    if self.ours.steps[0] is not None or not self.config:
      return self.ours.steps
    config = yaml.safe_load((_CONFIGS / f'{self.config}.yaml').read_text())
    thinned = 1 + config.get('num_steps_between_results', 0)
    return config['num_adaptation_steps'], thinned * config['num_results']

  def our_repeats(self):
    """Returns the fewest and the most repeats of the lines that are shown."""
    if self.ours.repeats or not self.record:
      return 2 * (self.ours.repeats,)
    lines = [case for row in self.rows for case in row.cases()]
    lines += [c for claim in self.claims for c in (claim.line, claim.over)]
    found = [_repeats(self, line) for line in lines if line]
    found = [repeats for repeats in found if repeats]
    return min(found, default=None), max(found, default=None)

  def share_of_steps(self):
    """Returns our steps over the paper's, of those that the paper says."""
    pairs = zip(self.our_steps(), self.paper.steps)
    pairs = [(ours, paper) for ours, paper in pairs if ours and paper]
    if not pairs:
      return None
    return sum(ours for ours, _ in pairs) / sum(paper for _, paper in pairs)

  def shares(self):
    """Returns our steps times repeats over the paper's, fewest and most."""
    steps, repeats = self.share_of_steps(), self.paper.repeats
    if steps is None and repeats is None:
      return None, None
    return tuple(
      (1.0 if steps is None else steps)
      * (ours / repeats if ours and repeats else 1.0)
      for ours in self.our_repeats()
    )

  def kind(self, findings):
    """Returns one of `KINDS`."""
    if self.missing or self.changed:
      return 'not run' if self.missing else 'changed'
    if not findings:
      return 'picture'
    if (self.share_of_steps() or 1.0) < 0.99:
      return 'fewer steps'
    agrees = all(all(finding.agrees) for finding in findings)
    return 'agrees' if agrees else 'differs'


class Paper(_Model):
  """A paper's figures and tables, and the reasons of differences by letter."""

  title: str
  link: str
  reasons: dict[str, str] = {}
  entries: tuple[Entry, ...]

  @pydantic.field_validator('reasons')
  @classmethod
  def _are_measured(cls, reasons):
    for name, text in reasons.items():
      if 'probably' in text or 'not explained' in text:
        raise ValueError(f'{name}: measure the reason, or say what was tried.')
    return reasons

  @property
  def num_figures(self):
    """Returns the number of figures and tables, parts counted once."""
    return len({entry.number.partition(',')[0] for entry in self.entries})

  def kinds(self, findings):
    """Returns {kind: number of figures}, each of its worst part's kind."""
    worst = {}
    for entry in self.entries:
      number = entry.number.partition(',')[0]
      kind = entry.kind(findings.get(entry.number))
      worst[number] = max(worst.get(number, kind), kind, key=[*KINDS].index)
    return {kind: [*worst.values()].count(kind) for kind in KINDS}

  def without_numbers(self):
    """Returns {(reason, command): numbers of figures} without a record."""
    numbers = collections.defaultdict(list)
    for entry in self.entries:
      if not entry.record:
        said = entry.missing or entry.picture
        numbers[said, entry.command_line].append(entry.number)
    return numbers


class Finding(NamedTuple):
  """Numbers of the paper beside ours; a claim has no numbers of the paper."""

  name: str
  # Name of the quantity, or the bound of a claim.
  quantity: str
  paper: tuple
  ours: tuple
  repeats: int | str
  why: str | None
  # Whether each number agrees, or whether the claim holds.
  agrees: tuple

  @property
  def ratios(self):
    """Returns our numbers over the paper's."""
    return tuple(ours / paper for ours, paper in zip(self.ours, self.paper))


@functools.cache
def load():
  """Returns the papers in the order of the page, with their findings.

  Returns:
    List of (paper, {number of an entry with a record: findings}).
  """
  papers = [
    Paper.model_validate(yaml.safe_load((_FOLDER / f'{n}.yaml').read_text()))
    for n in _PAPERS
  ]
  return [
    (p, {e.number: found(e, p.reasons) for e in p.entries if e.record})
    for p in papers
  ]


def ours(study, case, field):
  """Returns a field of the records of a case, the mean over its seeds.

  Args:
    field: Name, or names inside each other with dots between them.

  Raises:
    ValueError: If there is no such case.
  """
  runs = [row for row in records.rows(study) if row['case'] == case]
  if not runs:
    raise ValueError(f'{study} has no records of {case!r}.')
  keys = field.split('.')
  values = [functools.reduce(operator.getitem, keys, run) for run in runs]
  values = [v[0] if isinstance(v, list) else v for v in values]
  return sum(values) / len(values)


def printed(record, line):
  """Returns the ESS that a paper prints in a line of the table of a page."""
  rows = [
    row
    for paper, _ in load()
    for entry in paper.entries
    if entry.record == record
    for row in entry.rows
    if row.paper == line and row.ess
  ]
  return rows[0].ess


def found(entry, reasons):
  """Returns the findings of a figure or table that has records.

  Raises:
    ValueError: If numbers differ without a reason, if a reason is not needed
      or not in the paper's file, or if the records have no such case.
  """
  findings = []
  for row in entry.rows:
    for case, why in row.cases().items():
      findings.extend(_of_row(entry, row, case, why))
  for ratio in entry.ratios:
    findings.extend(_of_ratio(entry, ratio))
  findings.extend(_of_claim(entry, claim) for claim in entry.claims)
  for line in {(f.name, f.why) for f in findings}:
    _check(entry, [f for f in findings if (f.name, f.why) == line], reasons)
  return findings


def _of_row(entry, row, case, why):
  """Yields a finding for each quantity that the paper prints in a line."""
  name = row.paper
  if case == name and f'{name} (paper)' in row.ours:
    name += ', default'
  elif len(row.ours) > 1 and case not in (name, f'{name} (paper)'):
    name += f': {case}'
  for quantity, printed in row.printed().items():
    numbers = printed, _numbers(entry, quantity, case)
    finding = _finding(entry, name, quantity, numbers, case, why)
    # Seconds depend on the machine, so only ratios of lines can agree.
    yield finding._replace(agrees=()) if quantity == 'per_second' else finding


def _of_ratio(entry, ratio):
  """Yields a finding for each quantity that both lines have."""
  rows = {row.paper: row for row in entry.rows}
  of, over = rows[ratio.of], rows[ratio.over]
  cases = [next(iter(row.cases())) for row in (of, over)]
  divisors = over.printed()
  for quantity, printed in of.printed().items():
    found = [_numbers(entry, quantity, case) for case in cases]
    numbers = _divided(printed, divisors[quantity]), _divided(*found)
    name = f'{ratio.of}, over {ratio.over}'
    yield _finding(entry, name, quantity, numbers, cases[0], ratio.why)


def _finding(entry, name, quantity, numbers, case, why):
  shown, _ = _QUANTITIES.get(quantity, (_NAMES.get(quantity, quantity), ()))
  finding = Finding(name, shown, *numbers, _repeats(entry, case), why, ())
  inside = tuple(_LEAST <= ratio <= _MOST for ratio in finding.ratios)
  return finding._replace(agrees=inside)


def _of_claim(entry, claim):
  numbers = _rounded(_numbers(entry, claim.column, claim.line), claim.digits)
  if claim.over:
    divisors = _numbers(entry, claim.column, claim.over)
    numbers = _divided(numbers, _rounded(divisors, claim.digits))
  bounds = {'above': claim.above, 'below': claim.below}
  wanted = ', '.join(
    f'{side} {bound:g}' for side, bound in bounds.items() if bound is not None
  )
  agrees = (claim.above is None or numbers[0] > claim.above) and (
    claim.below is None or numbers[0] < claim.below
  )
  return Finding(claim.says, wanted, (), numbers, '', claim.why, (agrees,))


def _rounded(numbers, digits):
  if digits is None:
    return numbers
  return tuple(float(f'{number:.{digits}f}') for number in numbers)


def _divided(numbers, divisors):
  return tuple(a / b if b else float('inf') for a, b in zip(numbers, divisors))


def _study(entry):
  return entry.records or f'papers/{entry.record}'


def _numbers(entry, quantity, case):
  _, fields = _QUANTITIES.get(quantity, ('', (quantity,)))
  factor = entry.factor if quantity == 'ess' else 1.0
  return tuple(factor * ours(_study(entry), case, field) for field in fields)


def _repeats(entry, case):
  runs = [row for row in records.rows(_study(entry)) if row['case'] == case]
  return runs[0].get('num_finished') or (len(runs) if len(runs) > 1 else '')


def _check(entry, findings, reasons):
  """Refuses a difference without a reason, and a reason without need."""
  where = f'{entry.number}, {findings[0].name}'
  why = findings[0].why
  if all(all(finding.agrees) for finding in findings):
    if why:
      raise ValueError(f'{where}: the numbers agree, so remove {why!r}.')
  elif why not in reasons:
    numbers = [finding.ours for finding in findings]
    paper = [finding.paper for finding in findings]
    raise ValueError(
      f'{where}: {numbers} is not {paper}. Name one of the reasons '
      f'{list(reasons)}, not {why!r}, or add a reason that explains the '
      'difference.'
    )

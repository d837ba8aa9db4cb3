"""The tables of docs/results/papers.md: the papers' numbers beside ours.

  python -m experiments.documentation.papers

writes each between its two comments; a test compares.
"""

import collections

from experiments.documentation import paper_numbers
from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table

__all__ = ['with_tables']

_PAGE = page('papers')
_HEAD = ('No.', 'What', 'Paper', 'Ours', 'Ratio', 'Agrees')
_DETAILS = ('No.', 'Line', 'Number', 'Paper', 'Ours', 'Ratio', 'Runs', 'Why')


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  papers = paper_numbers.load()
  findings = [
    {
      entry.number: paper_numbers.found(entry, paper.reasons)
      for entry in paper.entries
      if entry.record
    }
    for paper in papers
  ]
  pairs = list(zip(papers, findings))
  return fill(
    text, 'papers', [_summary(pairs), *(_of_paper(*pair) for pair in pairs)]
  )


def _summary(pairs):
  """Returns a line for each paper: how many numbers and claims agree."""
  head = ('Paper', 'Figures, tables', 'Not run', 'Numbers', 'Figures agree')
  rows = []
  for paper, findings in pairs:
    every = [f for found in findings.values() for f in found]
    numbers = [agrees for f in every if f.paper for agrees in f.agrees]
    claims = [agrees for f in every if not f.paper for agrees in f.agrees]
    whole = {entry.number.partition(',')[0] for entry in paper.entries}
    missing = [entry.number for entry in paper.entries if entry.missing]
    rows.append([
      f'[{paper.title}]({paper.link})',
      str(len(whole)),
      '; '.join(missing) or 'none',
      f'{sum(numbers)} of {len(numbers)}' if numbers else '-',
      f'{sum(claims)} of {len(claims)}' if claims else '-',
    ])  # fmt: skip
  return table(head, rows)


def _of_paper(paper, findings):
  """Returns the short table, what was not run, differences, and all lines."""
  rows = []
  for entry in paper.entries:
    rows.extend(_short(entry, findings.get(entry.number)))
  parts = [table(_HEAD, rows), *_lists(paper, findings)]
  details = _details(paper, findings)
  if details:
    parts.append(
      '<details markdown="1"><summary>Line by line</summary>\n\n'
      f'{table(_DETAILS, details)}\n</details>\n'
    )
  return '\n'.join(parts)


def _short(entry, findings):
  """Yields the lines of a figure or table in the short table."""
  if findings is None:
    row = entry.rows[0] if entry.rows else None
    printed = _first_printed(row) if row else ''
    ours = 'not run' if entry.missing else 'a picture'
    yield [entry.number, entry.shows, printed, ours, '', '']
    return
  number, shows = f'[{entry.number}]({entry.record}.md)', entry.shows
  lines = [f for f in findings if f.paper]
  if lines:
    first = next((f for f in lines if f.name == entry.headline), lines[0])
    agrees = [agree for f in lines for agree in f.agrees]
    yield [
      number,
      shows,
      f'{_cell(first.name)}: {_number(first.paper[0])}',
      _number(first.ours[0]),
      _ratio(first.ratios[0]),
      f'{sum(agrees)} of {len(agrees)}{_reasons(lines)}',
    ]
    shows = ''
  for claim in findings:
    if not claim.paper:
      said = f'{shows}: {claim.name}' if shows else claim.name
      agrees = 'yes' if all(claim.agrees) else f'no{_reasons([claim])}'
      ours = _number(claim.ours[0])
      yield [number, said, claim.quantity, ours, '', agrees]
      shows = ''


def _first_printed(row):
  _, numbers = next(row.printed())
  return f'{row.paper}: {_number(numbers[0])}'


def _reasons(findings):
  names = sorted({f.why for f in findings if f.why})
  return f' ({", ".join(names)})' if names else ''


def _lists(paper, findings):
  """Yields the lists of what was not run and of the reasons."""
  numbers = collections.defaultdict(list)
  for entry in paper.entries:
    if entry.number not in findings:
      said = entry.missing or entry.picture
      numbers[said, entry.command_line()].append(entry.number)
  if numbers:
    lines = [
      f'* {"; ".join(of)}: {said}\n  `{command}`\n'
      for (said, command), of in numbers.items()
    ]
    yield 'Without a record or without a number:\n\n' + ''.join(lines)
  used = {f.why for found in findings.values() for f in found}
  lines = [
    f'* **{name}**: {text}\n'
    for name, text in paper.reasons.items()
    if name in used
  ]
  lines += [
    f'* {entry.number}: {entry.note}\n'
    for entry in paper.entries
    if entry.note and entry.number in findings
  ]
  if lines:
    yield 'Differences:\n\n' + ''.join(lines)


def _details(paper, findings):
  """Returns a line for each line that the paper prints."""
  return [
    [
      entry.number,
      _cell(finding.name),
      finding.quantity,
      ', '.join(map(_number, finding.paper)),
      ', '.join(map(_number, finding.ours)),
      ', '.join(map(_ratio, finding.ratios)),
      finding.repeats,
      finding.why or '',
    ]
    for entry in paper.entries
    for finding in findings.get(entry.number, ())
    if finding.paper
  ]


def _cell(name):
  return name.replace(' | ', ', ')


def _number(number):
  return f'{number:.0f}' if number >= 100 else f'{number:.3g}'


def _ratio(ratio):
  return f'{ratio:.2f}' if ratio < 10 else _number(ratio)


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))

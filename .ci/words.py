"""Checks the English of pages, docstrings and comments for what a program sees.

  python .ci/words.py [--count] [PATH ...]

It reports sentences above 30 words, comments and sentences that begin with a
preposition where a subject belongs, British spelling, and words for which the
field has a better one. CONTRIBUTING.md has the rules that need a reader.

Without a path it checks all pages and the library.
"""

import argparse
import ast
import collections
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATHS = ('README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'docs', 'tfp_adaptive')

_MOST_WORDS = 30
_BEGINS = re.compile(r'^(Of|Behind|As of|That of|Those of|To the|By which)\b')
_BRITISH = re.compile(
  r'\b(neighbour|behaviour|colour|favour|centre|normalis|initialis|'
  r'optimis|summaris|generalis|parametris|reparameteris|analys(e[ds]|ing)\b)',
  re.IGNORECASE,
)
# A word, and what to write.
_WORDS = {
  r'\banew\b': 'again',
  r'\bin place of\b': 'instead of',
  r'\bgates?\b': 'check',
  r'\bneck\b': 'narrow region',
  r'\bsome \d+': 'about',
  r'\b(is|are|was|were) told\b': 'reported',
  r'\bgo(es)? on\b': 'continue, resume',
  r'\bsame bits\b': 'bit-identical',
  r'(?<!power )(?<!conditional )\blaws?\b(?! of large)': 'distribution',
  r'\bthe ones? of then\b': 'name it',
  r'\bwhere that\b': 'if',
  r'\bas many more\b': 'say how many',
}


def _sentences(text: str) -> Iterator[str]:
  """Yields the sentences of running text."""
  text = re.sub(r'`[^`]*`', 'code', text)
  text = re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', text)
  text = re.sub(r'https?://\S+', 'link', text)
  text = re.sub(r'\b(e\.g|i\.e|et al|vs|eq|Eq|Sec|Fig|No)\.', r'\1', text)
  for sentence in re.split(r'(?<=[.!?:;])["\')*]*\s+', ' '.join(text.split())):
    if sentence.strip():
      yield sentence.strip()


def _faults(text: str) -> Iterator[str]:
  """Yields what is wrong with one paragraph."""
  for sentence in _sentences(text):
    count = len(re.findall(r"[A-Za-z][\w'-]*", sentence))
    if count > _MOST_WORDS:
      yield f'{count} words: {sentence[:70]}...'
    if _BEGINS.match(sentence):
      yield f'begins with a preposition: {sentence[:70]}'
  plain = re.sub(r'`[^`]*`|\]\([^)]*\)', ' ', text)
  for match in _BRITISH.finditer(plain):
    yield f'British spelling: {match.group()}'
  for pattern, better in _WORDS.items():
    for match in re.finditer(pattern, plain, re.IGNORECASE):
      yield f'"{match.group()}": write "{better}"'


def _paragraphs_of_page(text: str) -> Iterator[tuple[int, str]]:
  """Yields (line, paragraph) of Markdown without code, tables, templates."""
  is_code, start, lines = False, 1, []
  for number, line in enumerate([*text.splitlines(), ''], start=1):
    stripped = line.strip()
    fence = stripped.startswith(('```', '~~~'))
    is_code = is_code != fence
    skipped = is_code or fence or line.startswith('    ')
    skipped = skipped or stripped.startswith(('|', '#', '{', '<', '!['))
    is_item = bool(re.match(r'([*-]|\d+\.) ', stripped))
    if lines and (skipped or not stripped or is_item):
      yield start, ' '.join(lines)
      lines = []
    if not skipped and stripped:
      start = start if lines else number
      lines.append(re.sub(r'^([*-]|\d+\.) ', '', stripped))


def _paragraphs_of_code(text: str) -> Iterator[tuple[int, str]]:
  """Yields (line, paragraph) of docstrings and of blocks of comments."""
  for node in ast.walk(ast.parse(text)):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    if isinstance(node, kinds) and (words := ast.get_docstring(node)):
      where = getattr(node, 'lineno', 1)
      words = words.partition('\nExample:\n')[0]
      words = re.sub(r'(?m)^( {4,}| *[|>]).*$', '', words)  # Formulas.
      for paragraph in re.split(r'\n\s*\n|\n(?= *\**\w+:)', words):
        yield where, re.sub(r'^ *\**[\w, *`]+: ', '', paragraph)
  start, lines, last = 0, [], -1
  tokens = tokenize.generate_tokens(io.StringIO(text).readline)
  comments = [t for t in tokens if t.type == tokenize.COMMENT]
  for token in comments:
    row = token.start[0]
    if lines and row != last + 1:
      yield start, ' '.join(lines)
      lines = []
    start, last = (start if lines else row), row
    lines.append(token.string.lstrip('#: '))
  if lines:
    yield start, ' '.join(lines)


def main() -> int:
  """Prints what is wrong; returns the exit code."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('paths', nargs='*')
  parser.add_argument('--count', action='store_true', help='Only count.')
  given = parser.parse_args()
  names = given.paths or PATHS
  counts = collections.Counter()
  for path in (ROOT / name for name in names):
    files = [path] if path.is_file() else sorted(path.rglob('*'))
    for file in files:
      if file.suffix not in ('.md', '.py'):
        continue
      text = file.read_text(encoding='utf-8')
      is_page = file.suffix == '.md'
      split = _paragraphs_of_page if is_page else _paragraphs_of_code
      for line, paragraph in split(text):
        for fault in _faults(paragraph):
          counts[file.relative_to(ROOT)] += 1
          if not given.count:
            print(f'{file.relative_to(ROOT)}:{line}: {fault}')
  if given.count:
    for file, count in counts.most_common():
      print(f'{count:5} {file}')
    print(f'{sum(counts.values()):5} in all')
  return 1 if counts else 0


if __name__ == '__main__':
  sys.exit(main())

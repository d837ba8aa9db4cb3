"""Pages are filled in from the records, as the site's build does."""

import pathlib
import re

from experiments.report import records
from experiments.report import templates
from experiments.run import find
from experiments.run import store

_DOCS = pathlib.Path(templates.__file__).resolve().parents[2] / 'docs'


def test_every_page_is_filled_in_from_its_records():
  """`make docs` builds the site strictly; it needs the extra `docs`."""
  sources = [path.read_text() for path in _DOCS.rglob('*.md')]
  pages = [text for text in sources if templates.is_template(text)]
  assert len(pages) > 50
  for page in pages:
    text = templates.render(page)
    assert '{{' not in text and '{%' not in text, page


def test_every_study_has_a_row_in_reproduce_and_every_row_its_records():
  text = (_DOCS / 'reproduce.md').read_text()
  studies = [name for kind, name, _ in find.entries() if kind == 'study']
  assert len(studies) > 5
  lost = [s for s in studies if not re.search(rf'experiments run {s}\b', text)]
  assert lost == []
  named = re.findall(r'`(records/.*?)`', text)
  assert [n for n in named if not (_DOCS.parent / n).exists()] == []


def test_the_latest_record_of_a_case_and_seed_is_its_row(tmp_path, monkeypatch):
  monkeypatch.setattr(records, 'ROOT', tmp_path)
  for key in 'ab':
    record = store.Record('s', 'mala | 4', 0, key, 'finished', {'key': key})
    store.append(tmp_path / 'records/s.jsonl', record)
  (row,) = records.rows('s', 'sampler', 'chains')
  assert (row['sampler'], row['chains'], row['key']) == ('mala', 4, 'b')

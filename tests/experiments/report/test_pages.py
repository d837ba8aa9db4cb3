"""Pages are filled in from the records, as the site's build does."""

import pathlib

from experiments.report import templates

_DOCS = pathlib.Path(templates.__file__).resolve().parents[2] / 'docs'


def test_every_page_is_filled_in_from_its_records():
  """`make docs` builds the site strictly; it needs the extra `docs`."""
  sources = [path.read_text() for path in _DOCS.rglob('*.md')]
  pages = [text for text in sources if templates.is_template(text)]
  assert len(pages) > 50
  for page in pages:
    text = templates.render(page)
    assert '{{' not in text and '{%' not in text, page

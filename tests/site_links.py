"""Links of a site that was built: those within it that lead nowhere.

  python -m tests.site_links site

It reads what a browser would: files and anchors, of pages, images, styles and
scripts. Links that leave the site are counted and not followed.
"""

import argparse
import html.parser
import pathlib
import sys
import urllib.parse

__all__ = ['broken_links']

_ATTRIBUTES = ('href', 'src')
_ANCHORS = ('id', 'name')
# Made for servers, which show it at any depth: its links start at the root.
_NOT_A_PAGE = '404.html'


class _Page(html.parser.HTMLParser):
  """What a page links to, and the anchors that it has."""

  def __init__(self, text):
    super().__init__()
    self.links, self.anchors = [], set()
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    for name, value in attrs:
      if value and name in _ANCHORS:
        self.anchors.add(value)
      elif value and name in _ATTRIBUTES:
        self.links.append(value)


def broken_links(folder):
  """Returns ([(page, link)] of broken links, number of links looked at).

  Args:
    folder: Of the site, a path.
  """
  folder = pathlib.Path(folder).resolve()
  pages = {
    path: _Page(path.read_text(encoding='utf-8'))
    for path in sorted(folder.rglob('*.html'))
    if path.name != _NOT_A_PAGE
  }
  broken, num_links = [], 0
  for path, page in pages.items():
    for link in page.links:
      parts = urllib.parse.urlsplit(link)
      if parts.scheme or parts.netloc:
        continue
      num_links += 1
      if not _leads_somewhere(folder, path, parts, pages):
        broken.append((path.relative_to(folder).as_posix(), link))
  return broken, num_links


def _leads_somewhere(folder, path, parts, pages):
  """Whether a link within the site has a file, and its anchor."""
  if parts.path.startswith('/'):
    return False  # The site may stand below the root of its server.
  target = path
  if parts.path:
    target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
  if target.is_dir():
    target = target / 'index.html'
  if not (target.is_file() and target.is_relative_to(folder)):
    return False
  anchor = urllib.parse.unquote(parts.fragment)
  if not anchor or target not in pages:
    return True
  return anchor in pages[target].anchors


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('site', type=pathlib.Path, help='folder that was built')
  broken, num_links = broken_links(parser.parse_args().site)
  for page, link in broken:
    print(f'{page}: {link}')
  print(f'{num_links} links within the site, {len(broken)} broken')
  sys.exit(bool(broken) or not num_links)


if __name__ == '__main__':
  main()
